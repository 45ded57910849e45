"""Checks whether the node of this machine is ready, for the health check of a container.

Tries both HTTP and HTTPS, since a health check does not know the node's settings. Does not verify the certificate,
which need not name 127.0.0.1.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping

TIMEOUT_S = 2.0
_PORT_DEFAULT = 8080
_LOOPBACK = "127.0.0.1"
_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104  loopback is one of them


def is_ready(environment: Mapping[str, str]) -> bool:
    """Ask /readyz at the address in PENSTOCK_HOST, 127.0.0.1 if that is every address, and the port in PENSTOCK_PORT.

    True if the node is ready.
    """
    given = environment.get("PENSTOCK_HOST", "").strip("[]")
    host = _LOOPBACK if given in _ALL_ADDRESSES else given
    word = environment.get("PENSTOCK_PORT", "")
    port = int(word) if word.isdecimal() else _PORT_DEFAULT  # Kubernetes may set it to tcp://…
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    plain = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    secure = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=unchecked)
    return any(map(_answers, (secure, plain) if environment.get("PENSTOCK_TLS_CERT") else (plain, secure)))


def _answers(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/readyz", headers={"Host": _LOOPBACK})  # which every node answers to
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
