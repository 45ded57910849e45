"""Carries the fetches of this shard's followers to the internal listeners of other nodes: HTTP/1.1, kept alive.

Contents and timing of fetches belong to replication/replica/fetcher.py. The connections are replica_connection.py's:
they carry most of the traffic between nodes. After `close`, no exchange fetches.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from engine.format.batch import Buffer
from engine.runtime.read_buffers import ReceiveBuffers
from gateway.links.internal_link import FETCH_PATH, Credentials
from gateway.links.node_tls import NodeRefused
from gateway.links.replica_connection import FetchAnswerBody, ReplicaConnection
from replication.replica.fetcher import Exchange, PeerUnreachable

CONNECT_S = 3.0
KEPT_BYTES_MAX = 32 * 1024 * 1024  # of answers: three of a leader, while the one before is written
ANSWER_S = 5.0  # beyond the requested wait: a stopped node or a cut network sends no answer


class ReplicaExchanges:
    """Makes the `connect` of a ReplicaHost."""

    def __init__(self, credentials: Credentials, wait_ms: int) -> None:
        self._silence_s = ANSWER_S + wait_ms / 1000
        self._credentials = credentials
        self._open: set[ReplicaConnection] = set()
        self._buffers = ReceiveBuffers(KEPT_BYTES_MAX)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"ReplicaExchanges(connections={len(self._open)})"

    def to(self, url: str) -> Exchange:
        """Returns an exchange with the shard that listens at the URL."""
        netloc = urlsplit(url).netloc
        idle: list[ReplicaConnection] = []

        async def exchange(body: bytes) -> Buffer:
            headers = "".join(f"{name}: {value}\r\n" for name, value in self._credentials.headers().items())
            head = f"POST {FETCH_PATH} HTTP/1.1\r\nHost: {netloc}\r\n{headers}".encode()
            request = head + b"Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            try:
                connection = await self._connect(url, idle)
                answer = await self._wait_response(connection, request)
            except (TimeoutError, OSError) as error:
                raise PeerUnreachable(f"{url}: {error!r}") from error
            idle.append(connection)
            if answer.status != 200:
                raise PeerUnreachable(f"{url} answers {answer.status}: {bytes(answer.body[:200])!r}")
            return answer.body

        return exchange

    async def close(self) -> None:
        self._is_closed = True
        for connection in self._open:
            connection.close()

    async def _connect(self, url: str, idle: list[ReplicaConnection]) -> ReplicaConnection:
        """Returns an idle connection or a new one. Raises OSError, TimeoutError."""
        while idle:
            connection = idle.pop()
            if connection.is_idle:
                return connection
            self._open.discard(connection)
        if self._is_closed:
            raise ConnectionResetError("this node is stopping")
        async with asyncio.timeout(CONNECT_S):
            loop = asyncio.get_running_loop()
            parts = urlsplit(url)
            assert parts.hostname is not None
            assert parts.port is not None
            tls = self._credentials.tls
            transport, connection = await loop.create_connection(
                lambda: ReplicaConnection(self._buffers), parts.hostname, parts.port, ssl=tls.context_to(url)
            )
            try:
                tls.check(transport, url)
            except NodeRefused:
                connection.close()
                raise
        self._open.add(connection)
        return connection

    async def _wait_response(self, connection: ReplicaConnection, request: bytes) -> FetchAnswerBody:
        """Waits while bytes arrive. Closes a connection whose answer was not read. Raises OSError, TimeoutError."""
        answer = connection.send(request)
        try:
            while not answer.done():
                received_bytes = connection.received_bytes
                await asyncio.wait([answer], timeout=self._silence_s)
                if not answer.done() and connection.received_bytes == received_bytes:
                    raise TimeoutError(f"no byte arrived for {self._silence_s:.1f} s")
            return answer.result()
        except BaseException:
            answer.cancel()
            self._open.discard(connection)
            connection.close()
            raise
