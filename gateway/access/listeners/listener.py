"""A public listener as requests see it: the credentials that it takes, its hosts, and whom a certificate names."""

from __future__ import annotations

import ssl
from hashlib import sha256
from typing import NamedTuple

from gateway.access.hosts import is_one_of, name_of
from gateway.access.listeners.certificate_rules import CertificateRules
from gateway.access.listeners.listeners_file import DEFAULT, ListenerSpec
from gateway.http.problems import Problem

CERT, SIGNED = "cert", "signed"
_UNNAMED: tuple[None, tuple[str, ...], None] = (None, (), None)


class Certified(NamedTuple):
    """A client certificate whose chain was checked: `cert:<name>`; no name: no rule matches it."""

    key: str
    name: str | None
    groups: tuple[str, ...]
    tenant: str | None
    expires_ms: int


class PublicListener:
    """One listener of a process. Connections have it; None in its place takes every credential but certificates."""

    def __init__(self, spec: ListenerSpec) -> None:
        self.name = spec.name
        self.credentials = frozenset(spec.credentials)
        # The URLs of leaders are those of the default listener, which may take other credentials.
        self.leads = spec.name == DEFAULT
        self._rules = CertificateRules(spec.rules)
        self._hosts: frozenset[str] | None = frozenset(spec.hosts) if spec.hosts else None
        self._has_own_hosts = bool(spec.hosts)
        self._asks = bool(spec.client_ca)

    def __repr__(self) -> str:
        return f"PublicListener({self.name})"

    def use_names(self, names: frozenset[str]) -> None:
        """Takes the names of its own certificate: without `hosts` of its own, clients with certificates use these."""
        if self._asks and not self._has_own_hosts:
            self._hosts = names

    def check_host(self, host: str) -> None:
        """Checks the Host of a request of one of its connections. Raises Problem host_not_allowed.

        A client that has checked the certificate asks for another host only if it means another listener.
        """
        name = name_of(host)
        if self._hosts is not None and name is not None and not is_one_of(name, self._hosts):  # else it is malformed
            text = f"the listener {self.name!r} does not serve the host {host[:100]!r}: use its own address"
            raise Problem("host_not_allowed", text, setting="hosts")

    def read_certificate(self, connection: ssl.SSLObject | None) -> Certified | None:
        """Returns what the client certificate of a connection says; None: there is none."""
        certificate = None if connection is None else connection.getpeercert()
        if not certificate:
            return None
        assert connection is not None
        not_after, der = certificate["notAfter"], connection.getpeercert(binary_form=True)
        assert isinstance(not_after, str)
        assert der is not None
        name, groups, tenant = self._rules.find(certificate) or _UNNAMED
        expires_ms = int(ssl.cert_time_to_seconds(not_after) * 1000)
        return Certified(f"{CERT}:{self.name}:{sha256(der).hexdigest()}", name, groups, tenant, expires_ms)
