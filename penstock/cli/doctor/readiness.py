"""Checks whether a node is ready, for health checks: the node that the user names, or else the node of this machine.

For the node of this machine both HTTP and HTTPS are tried, since the health check of a container does not know the
node's settings. Its certificate is not verified: it need not name 127.0.0.1.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping

import orjson

from penstock.cli.node import Node
from penstock.errors import ConnectionFailed
from penstock.transport.exchange import Request
from penstock.transport.nodes import reason_of

TIMEOUT_MS = 2000
_PORT_DEFAULT = 8080
_LOOPBACK = "127.0.0.1"
_ANSWERS = " answers "
_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104  loopback is one of them


def check_readiness(node: Node) -> str | None:
    """Returns why this node is not ready; None if it is."""
    try:
        answer = node.once(TIMEOUT_MS).send(Request("GET", "/readyz"))
    except ConnectionFailed as error:
        return f"not ready: cannot reach {error.detail}"
    return None if answer.status == 200 else _reason(node.url, answer.status, answer.body)


def check_local_readiness(environment: Mapping[str, str]) -> str | None:
    """Returns why the node of this machine is not ready; None if it is.

    Its address is PENSTOCK_HOST, 127.0.0.1 if that is every address, and its port PENSTOCK_PORT.
    """
    given = environment.get("PENSTOCK_HOST", "").strip("[]")
    host = _LOOPBACK if given in _ALL_ADDRESSES else given
    word = environment.get("PENSTOCK_PORT", "")
    port = int(word) if word.isdecimal() else _PORT_DEFAULT  # Kubernetes may set it to tcp://…
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    plain = http.client.HTTPConnection(host, port, timeout=TIMEOUT_MS / 1000)
    secure = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_MS / 1000, context=unchecked)
    both = (secure, plain) if environment.get("PENSTOCK_TLS_CERT") else (plain, secure)
    reasons = []
    for connection in both:
        reason = _ask(connection)
        if reason is None:
            return None
        reasons.append(reason)
    return next((reason for reason in reasons if _ANSWERS in reason), reasons[0])


def _ask(connection: http.client.HTTPConnection) -> str | None:
    address = f"{connection.host}:{connection.port}"
    try:
        connection.request("GET", "/readyz", headers={"Host": _LOOPBACK})  # which every node answers to
        response = connection.getresponse()
        return None if response.status == 200 else _reason(address, response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        return f"not ready: cannot reach {address}: {reason_of(error)}"
    finally:
        connection.close()


def _reason(address: str, status: int, body: bytes) -> str:
    try:
        detail = orjson.loads(body)["detail"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        detail = ""
    return f"not ready: {address}{_ANSWERS}{status}" + (f": {detail}" if detail else "")
