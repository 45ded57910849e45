"""The HTTP server of a process: accepts connections, ends idle ones, and drains them when it stops.

It runs in the loop's thread, as all that it calls. Invariants: at most `connections_max` are open, and further ones
wait in the kernel's queue; accepted requests are answered before the end, within the caller's time limit.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial

from engine.runtime.tasks import in_background, start_task
from gateway.wire.connection import Connection
from gateway.wire.exchange import Application, Moves, Rejection, Take
from gateway.wire.handshakes import Handshakes, NotTls
from gateway.wire.http1 import Http1
from gateway.wire.http2 import Http2
from gateway.wire.idle import Times, Verdict, verdict_on
from gateway.wire.listening import Door, answer_plain, reject_new_connections
from gateway.wire.messages import WireLimits

RECEIVE_BYTES = 256 * 1024  # stays in the processor's cache; the loop's own room is as large
MOVED_SHARE = 2  # of the connections: beyond it none is taken from another process
ACCEPTS_AT_ONCE = 64  # before the loop runs other tasks
ACCEPT_PAUSE_S = 0.5  # when no file can be opened
LOOKS_AT_ONCE = 1000  # at connections: takes less than a millisecond
ROUNDS = 8  # within the shortest time that a connection may be silent
ROUND_S_MAX = 1.0  # the date of answers has seconds
QUIET_S = 0.1  # a request of a client on the same continent arrives within this time
LAST_RESPONSES_S = 0.5
FIRST_REQUEST_S = 1.0  # a client that has just connected brings its request within this time, also on a busy machine
RENEWAL_GRACE_S = 5.0
LOOKS_AT_CHAINS = 100  # connections whose certificates are looked at: each takes some 20 µs


class HttpServer:
    """`now_s` returns seconds since 1970, for dates. `count_ended` receives why a connection is ended.

    `rejection` returns headers and body for the status of a request that is refused before the application sees it.
    `take` takes requests that need no task. `moves_of` makes the moves of a connection to other processes.
    """

    def __init__(
        self,
        application: Application,
        limits: WireLimits,
        times: Times,
        connections_max: int,
        now_s: Callable[[], float],
        count_ended: Callable[[Verdict], object] = lambda _: None,
        rejection: Rejection = lambda _: ([("Content-Length", "0")], b""),
        take: Take | None = None,
        moves_of: Callable[[Connection], Moves] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.application = application
        self.limits = limits
        self.rejection = rejection
        self.take = take
        self._moves_of = moves_of
        self.connections: set[Connection] = set()
        self.watched: set[Connection] = set()  # the others wait for an answer over HTTP/1.1, and have no output
        self.under_way = 0
        self.date = ("Date", "")
        self.receive_room = memoryview(bytearray(RECEIVE_BYTES))  # of all connections: one is read at a time
        self._times = times
        self._connections_max = connections_max
        self._now_s = now_s
        self._count_ended = count_ended
        self._handshakes = Handshakes()
        self._doors: list[Door] = []
        self._accepting = 0  # accepted, and not connections yet
        self._is_accepting = False
        self._is_leaving = False
        self.ended_at = 0.0  # when the last request ended
        self.is_idle = asyncio.Event()
        self._update_date()

    def __repr__(self) -> str:
        return f"HttpServer(connections={len(self.connections)}, under_way={self.under_way})"

    def open(self, doors: list[Door]) -> None:
        """Accept connections from the sockets of these listeners, which the server owns from now on."""
        self._doors = doors
        self._accept_more()

    def renew(self, door: Door, tls: ssl.SSLContext, refuses: Callable[[ssl.SSLObject], bool]) -> None:
        """Uses this TLS for new connections of a listener, and ends open ones after their answers.

        A connection that it refuses ends at once. Other clients first leave by themselves, with an answer behind which
        nothing is under way. Some (h2 for Python) lose the requests that are under way when they are asked to leave,
        so that the rest is asked later.
        """
        door.tls, door.refuses = tls, refuses
        former = [connection for connection in self.connections if connection.door is door]
        in_background(self._end_refused(former), "ending connections of revoked certificates")
        for connection in former:
            connection.announce_leave()
            self.loop.call_later(RENEWAL_GRACE_S, connection.leave)

    async def _end_refused(self, connections: list[Connection]) -> None:
        for number, connection in enumerate(connections, 1):
            if not connection.is_closed and is_refused(connection):
                connection.abort()
            if number % LOOKS_AT_CHAINS == 0:
                await asyncio.sleep(0)

    def import_connection(self, moved: socket.socket, core: Http1 | Http2 | None) -> None:
        """Goes on with a connection of another process, whose `core` spoke with the client; None: HTTP/1.1."""
        moved.setblocking(False)
        self._accepting += 1
        start_task(self._connect(moved, None, core or Http1(self.limits)))

    async def watch(self) -> None:
        """Check connections until cancelled. A connection that waits for an answer is not looked at before it."""
        shortest_s = min(self._times.silent_s, self._times.idle_s, self._times.stall_s)
        round_s = min(shortest_s / ROUNDS, ROUND_S_MAX)
        while True:
            await asyncio.sleep(round_s)
            self._update_date()
            now = self.loop.time()
            for number, connection in enumerate(list(self.watched), 1):
                verdict = Verdict.PASS if connection.is_closed else verdict_on(connection, now, self._times)
                if verdict is Verdict.PASS:
                    self.watched.discard(connection)
                elif verdict is not Verdict.KEEP:
                    self._end_or_ping(connection, verdict, now)
                if number % LOOKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                    now = self.loop.time()

    async def until_idle(self) -> None:
        """Wait until no request is under way."""
        while self.under_way:
            self.is_idle.clear()
            await self.is_idle.wait()

    def announce_leave(self) -> None:
        """Asks clients to leave, with their next answers. Requests that still arrive are answered."""
        self._is_leaving = True
        for connection in list(self.connections):
            connection.announce_leave()

    async def wait_last_responses(self) -> None:
        """Wait briefly until no more requests arrive: those sent before their clients knew of the end are answered."""
        self.announce_leave()
        deadline = self.loop.time() + LAST_RESPONSES_S
        while (now := self.loop.time()) < min(deadline, self.ended_at + QUIET_S):
            await asyncio.sleep(min(deadline, self.ended_at + QUIET_S) - now)
            await self.until_idle()

    def reject_new_connections(self) -> None:
        """Drops new connection attempts; open connections go on."""
        for door in self._doors:
            for listener in door.sockets:
                reject_new_connections(listener)

    def close_ports(self) -> None:
        """Accepts the connections in the queue and closes the ports."""
        for door in self._doors:
            for listener in door.sockets:
                self.loop.remove_reader(listener)
                while self._accept_one(door, listener):
                    pass
                listener.close()
        self._doors = []

    async def leave(self, within_s: float) -> None:
        """End every connection once its answers are sent. Connections that take longer stay open.

        A client that has just connected may be about to send: its first request is waited for, and answered.
        """
        self.announce_leave()
        deadline = self.loop.time() + within_s
        while (self.connections or self._accepting) and (now := self.loop.time()) < deadline:
            for connection in list(self.connections):
                is_new = not connection.has_asked and now < connection.opened_at + FIRST_REQUEST_S
                if not (is_new or connection.has_requests or connection.unsent_bytes):
                    connection.leave()
            await asyncio.sleep(0.01)

    async def drain(self, within_s: float) -> None:
        """Answer the requests that are under way, and those that still arrive, until the deadline at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.until_idle()
                await self.wait_last_responses()

    async def close(self, within_s: float) -> None:
        """End every connection once its answers are sent; those that take longer are reset."""
        self.close_ports()
        await self.leave(within_s)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    # For connections

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.watched.add(connection)
        door = connection.door
        if self._moves_of is not None and (door is None or (door.tls is None and door.listener is None)):
            connection.moves = self._moves_of(connection)
        if self._is_leaving:
            connection.announce_leave()
        if connection.tls is not None and is_refused(connection):  # its handshake began before a renewal
            connection.abort()

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.watched.discard(connection)
        if not self._is_accepting:
            self._accept_more()

    # Within

    @property
    def has_room(self) -> bool:
        """Returns whether one more connection may be open."""
        return len(self.connections) + self._accepting < self._connections_max

    @property
    def has_room_for_moved(self) -> bool:
        """Returns whether a connection of another process may come; the rest is for those that the kernel sends here.

        Clients that connect wait behind a process without room, though another one may have some.
        """
        return len(self.connections) + self._accepting < self._connections_max // MOVED_SHARE

    def _accept_more(self) -> None:
        if self._doors and self.has_room:
            self._is_accepting = True
            for door in self._doors:
                for listener in door.sockets:
                    self.loop.add_reader(listener, partial(self._accept, door, listener))

    def _accept_no_more(self) -> None:
        self._is_accepting = False
        for door in self._doors:
            for listener in door.sockets:
                self.loop.remove_reader(listener)

    def _accept(self, door: Door, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if not self.has_room:
                self._accept_no_more()
                return
            try:
                if not self._accept_one(door, listener):
                    return
            except OSError:  # the process has too many open files: connections wait in the queue until some are closed
                self._accept_no_more()
                self.loop.call_later(ACCEPT_PAUSE_S, self._accept_more)
                return

    def _accept_one(self, door: Door, listener: socket.socket) -> bool:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        accepted.setblocking(False)
        self._accepting += 1
        start_task(self._connect(accepted, door))
        return True

    async def _connect(self, accepted: socket.socket, door: Door | None, core: Http1 | Http2 | None = None) -> None:
        make = partial(Connection, self, door, core)
        try:
            if door is None or door.tls is None:
                await self.loop.connect_accepted_socket(make, accepted)
            else:
                await self._handshakes.connect(make, accepted, lambda: door.tls, self._times.silent_s)
        except (OSError, TimeoutError):  # the client has left, or its certificate does not hold
            accepted.close()
        except NotTls:
            answer_plain(accepted, *self.rejection(400))
        finally:
            self._accepting -= 1
            if not self._is_accepting:
                self._accept_more()

    def _end_or_ping(self, connection: Connection, verdict: Verdict, now: float) -> None:
        if verdict is Verdict.PING:
            connection.ping(now)
            return
        self._count_ended(verdict)
        if verdict is Verdict.IDLE:
            connection.leave()
        else:
            connection.abort()

    def _update_date(self) -> None:
        self.date = ("Date", formatdate(self._now_s(), usegmt=True))


def is_refused(connection: Connection) -> bool:
    """Returns whether a connection began with an earlier TLS of its listener, and the present one refuses it."""
    door, tls = connection.door, connection.tls
    if door is None or tls is None or door.refuses is None or tls.context is door.tls:
        return False
    return door.refuses(tls)
