"""Answers that were given to the HTTP server and are not yet taken by their clients: of each connection, and of all.

Granian takes an answer of any size at once and tells nobody when it has been sent, so clients that ask and never read
would fill the memory. This asks the kernel what a connection's client has acknowledged; only of connections with a
large answer out, once a second, and before anything is refused. gateway/connections/connection_watch.py asks and cuts;
event streams, which can wait, are gateway/connections/send_buffers.py's.
What must hold: (1) what is over a bound is refused and not given; (2) who takes nothing for `stall_s`, or is slower
than `bytes_per_second_min`, is given up.
Admitted: nobody tells when an HTTP/2 client resets a stream, so what was not taken of it counts until its connection
is quiet for `stall_s`, and is then taken for a stall. What the protocol itself sends counts as taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import NamedTuple, Protocol

from aiohttp import web

from gateway.connections.kernel_sockets import KernelSockets
from gateway.http.problems import Problem

COUNTED_BYTES = 64 * 1024  # smaller answers wait in the kernel's own buffers, or are bounded by streams and connections
MOVED_BYTES = 4096  # acknowledged pings and settings are fewer: to answer those is not to read
REFRESH_S = 0.1  # between two looks at others for the sake of one answer
REFRESHED_MAX = 200  # connections that are looked at then: 5 ms


class Ends(Protocol):
    """The addresses of a connection as `host:port`."""

    server: str
    client: str


class ResponseLimits(NamedTuple):
    """`bytes_max` may be exceeded by one answer; on a connection that has nothing out, an answer of any size fits."""

    bytes_max: int
    connection_bytes_max: int
    stall_s: float
    bytes_per_second_min: int


ENDS = web.RequestKey("penstock.ends", Ends)
_COUNTED = web.RequestKey("penstock.counted_bytes", int)


class _Connection:
    """`round_bytes` of what is out have to be taken until `due`; then the next round begins."""

    __slots__ = ("acknowledged_bytes", "due", "ends", "moved_at", "round_bytes", "size_bytes")

    def __init__(self, ends: Ends, acknowledged_bytes: int, now: float) -> None:
        self.ends = ends
        self.acknowledged_bytes = acknowledged_bytes
        self.size_bytes = 0
        self.round_bytes = 0
        self.moved_at = now
        self.due = now


class ResponseBuffers:
    """`size_bytes` is as of the last look, plus what was given since."""

    def __init__(self, kernel: KernelSockets, limits: ResponseLimits, now: Callable[[], float]) -> None:
        self.size_bytes = 0
        self.refused = 0
        self.given_up = 0
        self._kernel = kernel
        self._limits = limits
        self._now = now
        self._connections: dict[str, _Connection] = {}
        self._refreshed_at = now()

    def __repr__(self) -> str:
        return f"ResponseBuffers(connections={len(self._connections)}, size_bytes={self.size_bytes})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Name, text and value of each, for the metrics."""
        yield "penstock_unread_answer_bytes", "Bytes of large answers that clients have yet to take", self.size_bytes
        yield "penstock_refused_answers_total", "Answers refused for want of room for them", self.refused
        yield "penstock_stalled_connections_total", "Connections ended: their answers were not taken", self.given_up

    @property
    def clients(self) -> list[str]:
        """Those with something out."""
        return list(self._connections)

    def is_out(self, client: str) -> bool:
        return client in self._connections

    def count(self, request: web.Request, size_bytes: int, *, may_refuse: bool = True) -> None:
        """An answer of this size is about to be given; asked again when its size changes.

        What a request has done must be told, and how the node fares, so only reads may be refused.
        Raises Problem overloaded, too_many_requests: then it must not be given.
        """
        if size_bytes < COUNTED_BYTES and not self._connections:
            return
        ends = request.get(ENDS)
        if ends is None or request.method == "HEAD" or not self._kernel.is_known:
            return
        one, before = self._connections.get(ends.client), request.get(_COUNTED, 0)
        if before == 0 and size_bytes >= COUNTED_BYTES:
            one = one or self._begin(ends)
            if may_refuse and one is not None:
                one = self._with_room(one, size_bytes)
        if one is not None:
            self._add(one, size_bytes - before)
            request[_COUNTED] = size_bytes

    def take_back(self, request: web.Request) -> None:
        """The request's answer is not given after all."""
        counted, ends = request.get(_COUNTED, 0), request.get(ENDS)
        if counted and ends is not None and (one := self._connections.get(ends.client)) is not None:
            self._add(one, -counted)

    def streamed(self, client: str, size_bytes: int) -> None:
        """A piece of an event stream goes the same way: what is acknowledged of it is not of an answer."""
        if self._connections and (one := self._connections.get(client)) is not None:
            self._add(one, size_bytes)

    def look(self, client: str) -> bool:
        """Ask what has been taken on a connection. True when its client is to be given up."""
        one = self._connections.get(client)
        if one is None:
            return False
        found, now = self._kernel.find(one.ends.server, client), self._now()
        if found is None:  # it has left
            self._forget(client)
            return False
        taken = found.acknowledged_bytes - one.acknowledged_bytes
        if taken >= MOVED_BYTES or taken >= one.size_bytes:
            one.acknowledged_bytes = found.acknowledged_bytes
            one.moved_at = now
            one.round_bytes -= taken
            self._add(one, -taken)
        if one.size_bytes == 0:
            self._forget(client)
            return False
        if one.round_bytes <= 0:
            self._begin_round(one, now)
        return now >= min(one.due, one.moved_at + self._limits.stall_s)

    def give_up(self, client: str) -> Ends | None:
        """Counts it no longer; the connection is the caller's to end."""
        one = self._connections.get(client)
        if one is None:
            return None
        self.given_up += 1
        self._forget(client)
        return one.ends

    def _begin(self, ends: Ends) -> _Connection | None:
        found = self._kernel.find(ends.server, ends.client)
        if found is None:
            return None
        one = self._connections[ends.client] = _Connection(ends, found.acknowledged_bytes, self._now())
        return one

    def _begin_round(self, one: _Connection, now: float) -> None:
        one.round_bytes = one.size_bytes
        one.due = now + self._limits.stall_s + one.size_bytes / self._limits.bytes_per_second_min

    def _with_room(self, one: _Connection, size_bytes: int) -> _Connection | None:
        """The connection, if so much more may be given to it; None if it is not there any more."""
        limits, ends = self._limits, one.ends
        if one.size_bytes + size_bytes > limits.connection_bytes_max:
            self.look(ends.client)
        if self.size_bytes >= limits.bytes_max:
            self._look_at_largest()
        found = self._connections.get(ends.client) or self._begin(ends)
        if found is not None and found.size_bytes and found.size_bytes + size_bytes > limits.connection_bytes_max:
            self.refused += 1
            text = "answers on this connection that its client has not read fill the room for them"
            raise Problem("too_many_requests", text, limit=limits.connection_bytes_max)
        if self.size_bytes >= limits.bytes_max:
            self.refused += 1
            raise Problem("overloaded", "answers that clients have not read fill the room for them")
        return found

    def _look_at_largest(self) -> None:
        """Not too often, and not at all: the loop must not stand still."""
        if self._now() >= self._refreshed_at + REFRESH_S:
            for one in nlargest(REFRESHED_MAX, self._connections.values(), key=lambda one: one.size_bytes):
                self.look(one.ends.client)
            self._refreshed_at = self._now()

    def _add(self, one: _Connection, size_bytes: int) -> None:
        size_bytes = max(size_bytes, -one.size_bytes)
        if one.size_bytes == 0:
            one.moved_at = self._now()
            one.size_bytes = size_bytes
            self._begin_round(one, one.moved_at)
        else:
            one.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def _forget(self, client: str) -> None:
        self.size_bytes -= self._connections.pop(client).size_bytes
