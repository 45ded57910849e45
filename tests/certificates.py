"""Certificates of a test's own CA, as files: made by the commands of openssl, as docs/operate/encryption.md shows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from loadtests.cluster.zookeeper import TlsFiles

NEW_RSA_KEY = ("req", "-newkey", "rsa:2048", "-nodes")
_NEW_KEY = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificate(NamedTuple):
    """The files of a certificate and its key, which is PKCS#8."""

    cert: Path
    key: Path


class Authority:
    """A CA with its certificate in the file `ca`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(exist_ok=True, parents=True)
        self.ca = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        self._directory = directory
        openssl(*_NEW_KEY, "-x509", "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca)

    def issue(
        self,
        name: str,
        *identities: str,
        days: int = 2,
        purpose: str = "serverAuth,clientAuth",
        new_key: tuple[str, ...] = _NEW_KEY,
    ) -> Certificate:
        """Issue a certificate for identities such as IP:127.0.0.1. With 0 days it expires at once.

        Written again under the same name, it is a renewal.
        """
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        files = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        extensions.write_text(f"subjectAltName={','.join(identities)}\nextendedKeyUsage={purpose}\n")
        openssl(*new_key, "-subj", f"/CN={name}", "-keyout", files.key, "-out", request)
        signing = ("-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-extfile", extensions)
        openssl("x509", "-req", "-in", request, *signing, "-days", str(days), "-out", files.cert)
        return files

    def issue_for_zookeeper(self, name: str, *identities: str, days: int = 2) -> TlsFiles:
        """Issue a certificate in the form that ZooKeeper reads."""
        files = self.issue(name, *identities, days=days)
        joined = self._directory / f"{name}-joined.pem"
        joined.write_bytes(files.key.read_bytes() + files.cert.read_bytes())
        return TlsFiles(joined, self.ca)


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
