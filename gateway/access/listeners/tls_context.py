"""The TLS of a public listener: one context for each generation of its files, and who is revoked in it.

A context is replaced as a whole when a file changes. A list of revoked certificates is never loaded into one that is in
use: a client that resumes a session of before would still get in. Where certificates are asked for, no session is
resumed across contexts. The name that a client asks for (SNI) chooses nothing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import NamedTuple

from engine.errors import StartRefused
from gateway.access.listeners.x509 import (
    CRL_BYTES_MAX,
    InvalidX509,
    certificates_of,
    expires_ms_of,
    names_of,
    read_crls,
    serial_of,
    subject_of,
)

MINIMUM = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsFiles(NamedTuple):
    """PEM files. `client_ca` has the CAs of clients, `client_crl` the lists of those CAs; empty: there is none."""

    cert: str
    key: str
    client_ca: str = ""
    client_crl: str = ""

    def given(self) -> list[str]:
        return [path for path in self if path]


@dataclass(frozen=True, slots=True)
class Generation:
    """The TLS of a listener from one reading of its files. `names` are those of its own certificate, which ends at
    `expires_ms`, or one of its chain does.
    """

    context: ssl.SSLContext
    names: frozenset[str]
    expires_ms: int
    authorities: frozenset[bytes] = frozenset()  # the certificates of the CAs of clients
    revoked: frozenset[int] = frozenset()  # serial numbers

    def refuses(self, connection: ssl.SSLObject) -> bool:
        """Returns whether the client certificate of an open connection would not be taken now: revoked, or its CA gone.

        A resumed session has no chain to look at: its client connects again. Serial numbers of all CAs are compared
        together, so that a client of another CA with the same number connects again too.
        """
        if not self.authorities or connection.getpeercert(binary_form=True) is None:
            return False
        chain = _chain(connection)
        return not chain or chain[-1] not in self.authorities or not self.revoked.isdisjoint(map(serial_of, chain))


def read_tls(files: TlsFiles, tls_min: str, *, requires_certificate: bool, now_ms: int) -> Generation:
    """Reads the files. A list that has ended, or that a CA has none of, is refused. Blocks. Raises StartRefused."""
    try:
        context = _context(files, tls_min, requires_certificate=requires_certificate)
        certificate = _text(files.cert)
        names, expires_ms = names_of(certificate), expires_ms_of(certificate)
    except (OSError, InvalidX509) as error:  # includes SSLError
        what, where = f"{files.cert} and {files.key}", "the certificate is a PEM chain, its key has no password"
        raise StartRefused(f"{what} cannot be used for TLS: {_reason(error)}", hint=where) from None
    if not files.client_ca:
        return Generation(context, names, expires_ms)
    try:
        context.load_verify_locations(files.client_ca)
        authorities = certificates_of(_text(files.client_ca))
        subjects = list(map(subject_of, authorities))
    except (OSError, InvalidX509) as error:
        hint = "client_ca is a PEM file with the certificates of CAs"
        raise StartRefused(f"{files.client_ca} has no CA of clients: {_reason(error)}", hint=hint) from None
    revoked = _add_revoked(context, files, subjects, now_ms) if files.client_crl else frozenset[int]()
    return Generation(context, names, expires_ms, frozenset(authorities), revoked)


def _context(files: TlsFiles, tls_min: str, *, requires_certificate: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = MINIMUM[tls_min]
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2: no suites with CBC (RFC 9113 9.2.2)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.load_cert_chain(files.cert, files.key, password="")  # an encrypted key is not prompted for
    if files.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED if requires_certificate else ssl.CERT_OPTIONAL
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
    return context


def _add_revoked(context: ssl.SSLContext, files: TlsFiles, subjects: list[bytes], now_ms: int) -> frozenset[int]:
    """Has a new context refuse what the lists name. Raises StartRefused."""
    hint = "client_crl has, in PEM, a list (CRL) of each CA in client_ca that has not ended; replace them in time"
    try:
        crls = read_crls(_text(files.client_crl))
        context.load_verify_locations(files.client_crl)
    except (OSError, InvalidX509) as error:
        raise StartRefused(f"{files.client_crl} cannot be used: {_reason(error)}", hint=hint) from None
    if crls.expires_ms is not None and crls.expires_ms <= now_ms:
        raise StartRefused(f"the list of revoked certificates {files.client_crl} has expired", hint=hint)
    if any(subject not in crls.issuers for subject in subjects):
        raise StartRefused(f"{files.client_crl} lacks the list of a CA in {files.client_ca}", hint=hint)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    return crls.serials


def _text(path: str) -> str:
    """Raises OSError, InvalidX509."""
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read(CRL_BYTES_MAX + 1)
    if len(text) > CRL_BYTES_MAX:
        raise InvalidX509(f"it is larger than {CRL_BYTES_MAX} bytes")
    return text


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def _chain(connection: ssl.SSLObject) -> list[bytes]:
    """Returns the checked chain of the other end, from its own certificate up; empty: the session was resumed."""
    chain = connection._sslobj.get_verified_chain() or ()  # type: ignore[attr-defined]  # public from Python 3.13 on
    return [certificate.public_bytes(ssl._ssl.ENCODING_DER) for certificate in chain]  # type: ignore[attr-defined]
