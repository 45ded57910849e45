"""Links to processes of other nodes: a TCP connection to an internal listener, authenticated by the cluster's secret.

The opening request is an HTTP upgrade, so that one port serves links and replica fetches; after the answer, the
connection belongs to gateway/links/link.py. Here is what both sides share: headers, path, version.
gateway/links/internal_listener.py checks them. node_tls.py decides whether a connection uses TLS; without TLS the
network between the nodes is trusted with the data that they store.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from gateway.links.link import Link
from gateway.links.link_client import Dial, LinkRejected
from gateway.links.node_tls import NO_TLS, NodeRefused, NodeTls

SCHEME = "Penstock-Cluster"
CLUSTER_ID = "Penstock-Cluster-Id"
PROTOCOL = "penstock-link/1"  # changes when frames or the meaning of calls change
LINK_PATH = "/internal/v1/link"
FETCH_PATH = "/internal/v1/replica-fetch"

CONNECT_S = 5.0
HEAD_BYTES_MAX = 16 * 1024
SILENCE_MS_MAX = 10_000  # of bytes that are not acknowledged: a machine that vanished closes no connection
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))  # of an idle connection


@dataclass(slots=True)
class Credentials:
    """The secret that only the nodes of a cluster know, and their TLS. While it rotates, `others` are accepted too."""

    cluster_id: str
    secret: str = field(repr=False)
    tls: NodeTls = NO_TLS
    others: tuple[str, ...] = field(default=(), repr=False)

    def use(self, secrets: Sequence[str]) -> None:
        """Send the first one from now on, and accept all."""
        self.secret, self.others = secrets[0], tuple(secrets[1:])

    def accepts(self, secret: str) -> bool:
        given = secret.encode(errors="surrogateescape")
        return any(hmac.compare_digest(given, one.encode()) for one in (self.secret, *self.others))

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"{SCHEME} {self.secret}", CLUSTER_ID: self.cluster_id}


def dial_internal(url: str, credentials: Credentials) -> Dial:
    """Returns a dialler of the internal listener at http://host:port. It raises OSError, LinkRejected."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    assert host is not None, url
    assert port is not None, url

    async def dial(make_link: Callable[[], Link]) -> Link:
        request = _request(parts.netloc, credentials)
        async with asyncio.timeout(CONNECT_S):
            try:
                _, opening = await asyncio.get_running_loop().create_connection(
                    lambda: _Opening(url, request, make_link, credentials.tls),
                    host,
                    port,
                    ssl=credentials.tls.context_to(url),
                )
            except (NodeRefused, ssl.SSLError) as error:
                raise LinkRejected(f"{url}: {error}") from None
            try:
                return await opening.link
            finally:
                opening.give_up()

    return dial


def watch_silence(transport: asyncio.BaseTransport) -> None:
    """Sets TCP timeouts, so that a connection whose other end has vanished is lost in seconds instead of 15 minutes."""
    end: socket.socket = transport.get_extra_info("socket")
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS_MAX)
    for option, number in _KEEPALIVE:
        end.setsockopt(socket.IPPROTO_TCP, option, number)


def _request(host: str, credentials: Credentials) -> bytes:
    headers = {"Host": host, "Connection": "Upgrade", "Upgrade": PROTOCOL, **credentials.headers()}
    lines = [f"GET {LINK_PATH} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


class _Opening(asyncio.Protocol):
    """Requests the upgrade, reads the head of the answer, and hands the connection over to a link."""

    def __init__(self, url: str, request: bytes, make_link: Callable[[], Link], tls: NodeTls) -> None:
        self.link: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._url = url
        self._request = request
        self._make_link = make_link
        self._tls = tls
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        watch_silence(transport)
        try:
            self._tls.check(transport, self._url)
        except NodeRefused as error:
            self.link.set_exception(LinkRejected(str(error)))
            return
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._head += data
        head, end, rest = bytes(self._head).partition(b"\r\n\r\n")
        if self.link.done() or (not end and len(self._head) <= HEAD_BYTES_MAX):
            return
        _, _, status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if not end or not status.startswith("101"):
            self.link.set_exception(LinkRejected(f"{self._url} answered {status or 'nothing that is HTTP'}"))
            return
        assert self._transport is not None
        link = self._make_link()
        self._transport.set_protocol(link)
        link.connection_made(self._transport)
        self.link.set_result(link)
        if rest:
            link.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.link.done():
            return
        if isinstance(exc, ssl.SSLError):  # it rejects this node's certificate after our side of the handshake
            self.link.set_exception(LinkRejected(f"{self._url}: {exc}"))
        else:
            self.link.set_exception(ConnectionResetError(f"{self._url} closed the connection"))

    def give_up(self) -> None:
        """Closes a connection that did not become a link."""
        became_link = self.link.done() and not self.link.cancelled() and self.link.exception() is None
        if not became_link and self._transport is not None:
            self._transport.close()
