"""The credentials of a request at its listener, and the client certificate of its connection.

A client certificate admits a connection, and names its caller unless a token does. Nothing outlives the certificate.
"""

from __future__ import annotations

import ssl

from gateway.access.listeners.listener import Certified, PublicListener
from gateway.http.problems import Problem

_CHALLENGES = {"token": "Bearer", "oidc": "Bearer"}
_NO_SCHEME = "Certificate"  # HTTP has no scheme for what TLS asks for, and a 401 has to name one


def admit(listener: PublicListener, connection: ssl.SSLObject | None, now_ms: int) -> Certified | None:
    """Returns the client certificate of a connection; None: it has none. Raises Problem unauthorized."""
    certified = listener.read_certificate(connection)
    if certified is not None and certified.expires_ms <= now_ms:
        raise not_taken(listener, "the client certificate has expired")
    return certified


def check_kind(listener: PublicListener, kind: str) -> None:
    """Checks that a listener takes this kind of credential. Raises Problem unauthorized."""
    if kind not in listener.credentials:
        raise not_taken(listener, f"this listener takes no credential of the kind {kind}")


def not_taken(listener: PublicListener, reason: str) -> Problem:
    kinds = sorted(listener.credentials)
    challenge = next((_CHALLENGES[kind] for kind in kinds if kind in _CHALLENGES), _NO_SCHEME)
    text = f"{reason}; the listener {listener.name!r} takes: {', '.join(kinds)}"
    return Problem("unauthorized", text, headers={"WWW-Authenticate": challenge})
