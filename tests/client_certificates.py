"""A CA for tests: certificates with any subject and names, and lists of revoked ones (CRL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
CN, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
Attributes = Sequence[tuple[x509.ObjectIdentifier, str]]


@dataclass(frozen=True)
class Issued:
    """The files of a certificate and its key, and its serial number."""

    cert: str
    key: str
    serial: int

    @property
    def pair(self) -> tuple[str, str]:
        return self.cert, self.key


class ClientAuthority:
    """A CA whose certificate is in the file `ca`, and its list of revoked certificates in `crl`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.ca, self.crl = str(directory / f"{name}.pem"), str(directory / f"{name}.crl")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=3))
            .not_valid_after(now + timedelta(days=3))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        )
        Path(self.ca).write_bytes(certificate.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def server(self, name: str, *hosts: str, usage: x509.ObjectIdentifier = SERVER) -> Issued:
        return self.issue(name, [(CN, hosts[0])], hosts=hosts, usage=usage)

    def issue(
        self,
        name: str,
        subject: Attributes = (),
        *,
        uris: Sequence[str] = (),
        hosts: Sequence[str] = (),
        usage: x509.ObjectIdentifier = CLIENT,
        life_s: float = 86_400,
    ) -> Issued:
        """Issues a certificate. Written again under the same name, it is a renewal."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.DNSName(host) for host in hosts]
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in subject]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(seconds=life_s))
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, SHA256())
        cert, private = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        return Issued(str(cert), str(private), certificate.serial_number)

    def revoke(self, *issued: Issued, life_s: float = 86_400) -> str:
        """Writes a list that names these certificates, and returns its path."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - timedelta(days=2))
            .next_update(now + timedelta(seconds=life_s))
        )
        for one in issued:
            revoked = x509.RevokedCertificateBuilder().serial_number(one.serial).revocation_date(now)
            builder = builder.add_revoked_certificate(revoked.build())
        Path(self.crl).write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        return self.crl
