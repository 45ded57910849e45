"""A TCP proxy that injects network faults into HTTP, between real clients and a real node; one port for each link.

It reads complete requests and replies (tests/faults/http1.py) and applies to each exchange the fault that the link's
dice choose (tests/faults/rules.py). A connection that is not HTTP/1.1, such as HTTP/2, is forwarded as bytes, and can
be cut. The node may restart: `upstream` is then set to its new address, and delayed requests wait for it. Invariant: no
byte is changed. A request arrives complete, in part, several times or not at all, never mixed with another.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.faults.http1 import Broken, Message, header, read_body, read_head, read_reply
from tests.faults.rules import Dice, Fate, Fault, Rules

REMEMBERED = 64  # complete requests of a link that can be replayed
PIECE = 65_536
NODE_BACK_S = 60  # how long a delayed request waits for a node that is down
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
GONE = (OSError, Broken, asyncio.IncompleteReadError)


class Upstream:
    """A connection to the node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def exchange(self, request: bytes) -> Message:
        self.writer.write(request)
        await self.writer.drain()
        return await read_reply(self.reader, is_head_only=request.startswith(b"HEAD "))

    def close(self) -> None:
        self.writer.close()


class FaultProxy:
    """Links to one node. Leaving the context ends everything in progress."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self._links: list[Link] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in list(self._links):
            await link.close()

    async def open_link(self, rules: Rules, seed: str | int) -> Link:
        link = Link(self, Dice(rules, seed))
        await link.open()
        self._links.append(link)
        return link


class Link:
    """A port for clients. `happened` counts the faults of its exchanges, `late_statuses` the statuses of replays."""

    def __init__(self, proxy: FaultProxy, dice: Dice) -> None:
        self.happened: Counter[Fault] = Counter()
        self.late_statuses: Counter[int] = Counter()
        self._proxy = proxy
        self._dice = dice
        self._seen: deque[bytes] = deque(maxlen=REMEMBERED)
        self._connections: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._overtaken = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [*self._connections, *self._late]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_settled(self) -> None:
        """Wait until all delayed requests have arrived."""
        while self._late:
            await asyncio.gather(*self._late)

    async def replay(self, count: int) -> None:
        """Send some of the last requests again in random order, as after a restart or a long delay."""
        for request in self._dice.some_of(list(self._seen), count):
            self._later(request, 0)
        await self.wait_settled()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = _Connection(self._proxy, reader, writer)
        try:
            await self._exchanges(connection)
        except GONE:
            pass  # either side has disconnected; the other one is closed below
        finally:
            connection.close()
            self._connections.discard(task)

    async def _exchanges(self, connection: _Connection) -> None:
        while (head := await read_head(connection.reader)) is not None:
            if head.startswith(b"PRI * HTTP/2"):
                await connection.pump(head, self._dice.stream_cut())
                return
            if (header(head, "expect") or "").lower() == "100-continue":
                connection.writer.write(CONTINUE)
            request = Message(head, await read_body(connection.reader, head))
            self._seen.append(request.raw)
            fate = self._dice.fate()
            self.happened[fate.fault] += 1
            if not await self._befall(fate, request, connection):
                return

    async def _befall(self, fate: Fate, request: Message, connection: _Connection) -> bool:
        """Apply a fate. Return whether the client's connection stays open."""
        raw = request.raw
        match fate.fault:
            case Fault.DROP:
                return connection.hang_up(fate)
            case Fault.DELIVER_LATE:
                self._later(raw, fate.late_s)
                return connection.hang_up(fate)
            case Fault.CUT_REQUEST:
                await connection.pass_part(raw[: int(len(raw) * fate.cut_share)])
                return connection.hang_up(fate)
            case Fault.DELAY:
                await asyncio.sleep(fate.delay_s)
            case Fault.REORDER:
                await self._hold_back()
            case Fault.DUPLICATE:
                self._later(raw, 0)
            case Fault.REPLAY:
                self._later(raw, fate.late_s)
        reply = await connection.pass_on(raw)
        self._overtaken.set()
        match fate.fault:
            case Fault.LOSE_REPLY:
                return connection.hang_up(fate)
            case Fault.CUT_REPLY:
                connection.writer.write(reply.raw[: int(len(reply.raw) * fate.cut_share)])
                await connection.writer.drain()
                return connection.hang_up(fate)
            case Fault.DELAY_REPLY:
                await asyncio.sleep(fate.delay_s)
        connection.writer.write(reply.raw)
        await connection.writer.drain()
        return not (reply.is_last or request.is_last)

    async def _hold_back(self) -> None:
        self._overtaken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._dice.rules.overtake_ms_max / 1000):
                await self._overtaken.wait()

    def _later(self, request: bytes, after_s: float) -> None:
        task = asyncio.create_task(self._arrive(request, after_s))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _arrive(self, request: bytes, after_s: float) -> None:
        """Deliver exactly once, on a new connection, as soon as there is a node."""
        await asyncio.sleep(after_s)
        async with asyncio.timeout(NODE_BACK_S):
            while True:
                try:
                    upstream = await Upstream.open(self._proxy.upstream_port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        try:
            self.late_statuses[(await upstream.exchange(request)).status] += 1
        except GONE:
            self.late_statuses[0] += 1  # the node was killed while it had the request
        finally:
            upstream.close()


class _Connection:
    """A client's connection and its connection to the node, which is opened when needed."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._proxy = proxy
        self._upstream: Upstream | None = None

    async def pass_on(self, request: bytes) -> Message:
        upstream = await self._connect()
        try:
            reply = await upstream.exchange(request)
        except GONE:
            self._disconnect()
            raise
        if reply.is_last:
            self._disconnect()
        return reply

    async def pass_part(self, part: bytes) -> None:
        upstream = await self._connect()
        upstream.writer.write(part)
        await upstream.writer.drain()
        self._disconnect()

    async def pump(self, first: bytes, cut_after: int | None) -> None:
        """Forward bytes in both directions until one side ends, or this many have passed."""
        upstream = await self._connect()
        upstream.writer.write(first)
        budget = _Budget(cut_after)
        await _first_of(
            _copy(self.reader, upstream.writer, budget),
            _copy(upstream.reader, self.writer, budget),
        )

    def hang_up(self, fate: Fate) -> bool:
        """Close the client's connection; a reset may also lose data in flight to it."""
        if fate.is_reset:
            it: socket.socket = self.writer.get_extra_info("socket")
            it.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        return False

    def close(self) -> None:
        self._disconnect()
        self.writer.close()

    async def _connect(self) -> Upstream:
        """Return a connection; replaces one that the node has closed, since that is not a fault of the client's
        link.
        """
        if self._upstream is not None and self._upstream.reader.at_eof():
            self._disconnect()
        if self._upstream is None:
            self._upstream = await Upstream.open(self._proxy.upstream_port)
        return self._upstream

    def _disconnect(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None


class _Budget:
    """The bytes that may still pass; None for no limit."""

    def __init__(self, left: int | None) -> None:
        self.left = left

    def take(self, data: bytes) -> bytes:
        if self.left is None:
            return data
        data, self.left = data[: self.left], max(0, self.left - len(data))
        return data


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: _Budget) -> None:
    with suppress(*GONE):
        while budget.left != 0 and (data := await reader.read(PIECE)):
            writer.write(budget.take(data))
            await writer.drain()


async def _first_of(*ways: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
