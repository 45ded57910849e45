"""The server side of replica_connection.py: accepts connections of other nodes, and answers their replica fetches.

A leader answers each of its followers once for every group that it writes; an HTTP framework took a fifth of the cost
of a replicated produce. HTTP/1.1 as our nodes speak it: a body with its length, no chunks, one request at a time. A
connection that begins otherwise is handed over (`others`) with all that was received.
Invariants: a connection that does not send the secret in time is closed, whatever it requests, and not handed over;
permission to fetch is checked before a body is received; a connection that closes cancels the read for its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from engine.errors import EngineError
from engine.format.batch import Buffer
from engine.runtime.tasks import in_background
from gateway.http.problems import Problem, from_engine
from gateway.links.internal_link import CLUSTER_ID, FETCH_PATH, watch_silence
from gateway.links.node_tls import NodeRefused

HEAD_S = 5.0  # the time that a node takes to connect at most; a silent connection holds a descriptor
HEAD_BYTES_MAX = 16 * 1024
REQUEST_BYTES_MAX = 16 * 1024 * 1024  # the first one of a session names all its partitions, 100 bytes each
_FIRST = f"POST {FETCH_PATH} HTTP/1.1\r\n".encode()
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
_JOINED_BYTES_MAX = 64 * 1024  # a small answer is copied into one piece, a large one is sent in its pieces

log = logging.getLogger("penstock.replication")

Fetching = Callable[[bytes], Awaitable[Sequence[Buffer]]]  # the body of a replica fetch, and its answer in pieces


@dataclass(frozen=True, slots=True)
class FetchListening:
    """The shared parts of all connections of a listener. `check` raises Problem, given two headers; `check_peer`
    raises NodeRefused.
    """

    fetching: Fetching
    check: Callable[[str, str | None], None]
    others: Callable[[], asyncio.Protocol]
    check_peer: Callable[[asyncio.BaseTransport], None]
    connections: set[FetchConnection] = field(default_factory=set)

    async def close(self) -> None:
        tasks = [task for connection in list(self.connections) if (task := connection.close()) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)


class FetchConnection(asyncio.Protocol):
    """One connection, from its first byte on."""

    def __init__(self, listening: FetchListening) -> None:
        self._listening = listening
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._body: tuple[int, int] | None = None  # where the body begins and ends, once its head is received
        self._answering: asyncio.Task[None] | None = None
        self._head_deadline: asyncio.TimerHandle | None = None  # until a first head has been accepted

    def close(self) -> asyncio.Task[None] | None:
        if self._transport is not None:
            self._transport.close()
        if self._answering is not None:
            self._answering.cancel()
        return self._answering

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's transports do not inherit from it
        try:
            self._listening.check_peer(transport)
        except NodeRefused as error:
            transport.abort()  # type: ignore[attr-defined]
            log.warning("a connection to the port for other nodes was refused", extra={"reason": str(error)})
            return
        self._listening.connections.add(self)
        watch_silence(transport)
        self._head_deadline = asyncio.get_running_loop().call_later(HEAD_S, transport.abort)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self._listening.connections.discard(self)
        self._end_deadline()
        self.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._answering is None:
            self._parse()

    def _parse(self) -> None:
        """Starts the answer, or the hand-over, once a whole request is received."""
        is_fetch = self._body is not None or self._received.startswith(_FIRST[: len(self._received)])
        try:
            if not is_fetch:
                if self._find_head() is not None:
                    self._hand_over()
                return
            self._body = self._body or self._find_body()
        except Problem as problem:
            self._reject(problem)
            return
        if self._body is not None and len(self._received) >= self._body[1]:
            begin, end = self._body
            body, self._body = bytes(self._received[begin:end]), None
            del self._received[:end]
            self._answering = in_background(self._answer(body), "answering a fetch of another node", self.close)

    def _find_body(self) -> tuple[int, int] | None:
        """Returns where the body begins and ends. Raises Problem without permission or for an unknown form."""
        head = self._find_head()
        if head is None:
            return None
        end, headers = head
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdecimal()) or int(length) > REQUEST_BYTES_MAX:
            raise Problem("invalid_header", f"the body of a fetch has a length of at most {REQUEST_BYTES_MAX} bytes")
        return end + 4, end + 4 + int(length)

    def _find_head(self) -> tuple[int, dict[str, str]] | None:
        """Returns the end of the head, and its headers, once it is whole. Raises Problem without permission."""
        end = self._received.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(self._received) > HEAD_BYTES_MAX:
                raise Problem("invalid_header", f"the head of a request has more than {HEAD_BYTES_MAX} bytes")
            return None
        lines = self._received[:end].decode(errors="surrogateescape").split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._listening.check(headers.get("authorization", ""), headers.get(CLUSTER_ID.lower()))
        self._end_deadline()
        return end, headers

    def _end_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    async def _answer(self, body: bytes) -> None:
        try:
            pieces = await self._listening.fetching(body)
        except EngineError as error:
            self._reject(from_engine(error))
        except Exception:
            log.exception("a fetch was not answered")
            self._reject(Problem("internal", "the fetch was not answered"))
        else:
            self._send(pieces)
        self._answering = None
        if self._received:
            self._parse()

    def _send(self, pieces: Sequence[Buffer]) -> None:
        assert self._transport is not None
        size_bytes = sum(map(len, pieces))
        head = _HEAD % size_bytes
        if size_bytes <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join([head, *pieces]))
        else:
            self._transport.writelines([head, *pieces])

    def _reject(self, problem: Problem) -> None:
        """Sends the problem and closes: the bytes that follow cannot be interpreted."""
        assert self._transport is not None
        response = problem.response("internal")
        body = response.body
        assert isinstance(body, bytes)
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items() if name != "Content-Length"]
        lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
        self._transport.write("\r\n".join(lines).encode() + body)
        self._transport.close()
        self._received.clear()

    def _hand_over(self) -> None:
        """Gives the connection to another protocol, with all bytes received."""
        transport, self._transport = self._transport, None
        assert transport is not None
        self._listening.connections.discard(self)
        other = self._listening.others()
        transport.set_protocol(other)
        other.connection_made(transport)
        other.data_received(bytes(self._received))
