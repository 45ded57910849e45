"""The listeners file: public listeners beside the one of the options, each with the credentials that it takes.

Values and their checks by themselves; node/setup/public_listeners.py reads the file and checks it with the settings.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gateway.access.hosts import is_allowed_host
from gateway.access.listeners.certificate_rules import CertificateRule, CertificateRules, InvalidCertificateRule
from gateway.access.listeners.tls_context import TlsFiles

DEFAULT = "default"  # the listener of the options
LISTENERS_MAX = 16

Name = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}\Z")]
Version = Annotated[str, Meta(pattern=r"^1\.[23]\Z")]
Port = Annotated[int, Meta(ge=0, le=65_535)]


class Credential(StrEnum):
    """A kind of proof of who a caller is; `anonymous` is that of a caller without one."""

    TOKEN = "token"  # noqa: S105 - a word of the file
    OIDC = "oidc"
    CERT = "cert"
    SIGNED = "signed"
    ANONYMOUS = "anonymous"


ALL_BUT_CERT = (Credential.TOKEN, Credential.OIDC, Credential.SIGNED, Credential.ANONYMOUS)


class InvalidListeners(Exception):
    """The file cannot be used. The text is one line that names what to change."""


class Admission(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The callers that a listener takes. With `client_ca` it asks for a certificate.

    `hosts`: the hosts that it answers to; empty, with `client_ca`: those of its own certificate.
    """

    credentials: tuple[Credential, ...] = ALL_BUT_CERT
    client_ca: str = ""
    client_crl: str = ""
    hosts: tuple[str, ...] = ()
    rules: tuple[CertificateRule, ...] = ()


class ListenerSpec(Admission, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One public listener."""

    name: Name
    port: Port
    host: str = "127.0.0.1"
    tls_cert: str = ""
    tls_key: str = ""
    tls_min: Version = "1.2"

    @property
    def is_tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def files(self) -> TlsFiles:
        return TlsFiles(self.tls_cert, self.tls_key, self.client_ca, self.client_crl)

    @property
    def requires_certificate(self) -> bool:
        """True unless a certificate is one of several credentials. Beside a token it admits, and the token names."""
        return bool(self.client_ca) and (Credential.CERT not in self.credentials or len(self.credentials) == 1)


class ListenersFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file. `default` is what the options do not say of their listener; None: it takes all but `cert`."""

    default: Admission | None = None
    listeners: tuple[ListenerSpec, ...] = ()


def parse_listeners(text: str) -> ListenersFile:
    """Parses the text of a listeners file. Raises InvalidListeners."""
    try:
        file = msgspec.convert(tomllib.loads(text), ListenersFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise InvalidListeners(str(error)) from None
    if len(file.listeners) > LISTENERS_MAX:
        raise InvalidListeners(f"it has {len(file.listeners)} listeners; give at most {LISTENERS_MAX}")
    names = [DEFAULT, *(listener.name for listener in file.listeners)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidListeners(f"two listeners have the name {name!r}: give each its own, and none {DEFAULT!r}")
    return file


def check_listener(spec: ListenerSpec) -> None:
    """Checks what the types do not. Raises InvalidListeners."""
    try:
        _check(spec)
    except (InvalidListeners, InvalidCertificateRule) as error:
        raise InvalidListeners(f"the listener {spec.name!r}: {error}") from None


def _check(spec: ListenerSpec) -> None:
    takes_cert = Credential.CERT in spec.credentials
    if not spec.credentials or len(set(spec.credentials)) < len(spec.credentials):
        raise InvalidListeners(f"credentials: name each of {', '.join(Credential)} that it takes once, at least one")
    if bool(spec.tls_cert) != bool(spec.tls_key):
        raise InvalidListeners("only one of tls_cert and tls_key is given; give both or neither")
    if spec.client_ca and not spec.is_tls:
        raise InvalidListeners("client_ca needs tls_cert and tls_key: certificates of clients are a part of TLS")
    if spec.client_crl and not spec.client_ca:
        raise InvalidListeners("client_crl is given without client_ca, the CAs whose list it is")
    if takes_cert and not (spec.client_ca and spec.rules):
        raise InvalidListeners("credentials has cert: give client_ca, and rules that name the principals")
    if spec.rules and not takes_cert:
        raise InvalidListeners("it has rules for certificates, and cert is not among its credentials")
    for host in spec.hosts:
        if not is_allowed_host(host):
            raise InvalidListeners(f"hosts: {host[:100]!r} is not a host name; give names without scheme and port")
    for number, rule in enumerate(spec.rules, 1):
        try:
            CertificateRules([rule])
        except InvalidCertificateRule as error:
            raise InvalidListeners(f"rule {number}: {error}") from None
