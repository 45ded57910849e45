"""The order of produce requests on one connection: they are appended in the order in which their bodies arrived.

HTTP/2 has many requests under way on a connection. A large body is decoded in a thread, and a later, small one must not
overtake it: so each request has a slot, and waits before its append for the slots before it. The order does not depend
on topics: requests that are under way together on one connection rarely go to different topics.

A body counts as arrived once its last byte has, whether its handler has read it or not: a handler may wait for its
topic first. A request whose body arrives later than that of the request behind it loses its slot; it takes a new one at
the end of the queue. Invariants: a slot waits only for earlier ones, so that there is no deadlock; a slot that has
ended blocks no other; a connection without requests under way has no entry here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from gateway.http.request import Request


class _Slot:
    """A slot in the queue of a connection."""

    __slots__ = ("before", "has_arrived", "is_over", "waiting")

    def __init__(self, before: _Slot | None, has_arrived: Callable[[], bool]) -> None:
        self.before = before
        self.has_arrived = has_arrived
        self.is_over = False
        self.waiting: asyncio.Future[None] | None = None

    def end(self) -> None:
        self.is_over = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    def nearest(self) -> _Slot | None:
        """Returns the last slot before this one that has not ended."""
        while self.before is not None and self.before.is_over:
            self.before = self.before.before
        return self.before

    def all_before(self) -> Iterator[_Slot]:
        slot = self.nearest()
        while slot is not None:
            yield slot
            slot = slot.nearest()

    def over(self) -> asyncio.Future[None]:
        """Returns a future: done when the slot has ended."""
        if self.waiting is None:
            self.waiting = asyncio.get_running_loop().create_future()
        return self.waiting


class OrderSlot:
    """The slot of one request in the order of its connection."""

    __slots__ = ("_connection", "_has_arrived", "_queues", "_slot")

    def __init__(self, lines: dict[str | None, _Slot], connection: str | None, has_arrived: Callable[[], bool]) -> None:
        self._queues = lines
        self._connection = connection
        self._has_arrived = has_arrived
        self._slot: _Slot | None = self._last_slot()

    def mark_body_received(self) -> None:
        """Marks the body as arrived. Call it before the first await that follows the body."""
        assert self._slot is not None
        if self._slot.is_over:
            self._slot = self._last_slot()

    @property
    def is_next(self) -> bool:
        """True if no slot is before it. Most requests ask this and need not wait."""
        return self._slot is None or self._slot.nearest() is None

    async def wait(self) -> None:
        """Waits for the slots before it."""
        assert self._slot is not None, "a turn comes after the body"
        for before in self._slot.all_before():
            if not before.has_arrived():
                before.end()
        while (nearest := self._slot.nearest()) is not None:
            await asyncio.shield(nearest.over())

    def end(self) -> None:
        """Ends the slot: the request's append is queued, or there will be none. Idempotent."""
        if self._slot is None:
            return
        self._slot.end()
        last = self._queues.get(self._connection)
        if last is not None and last.is_over:
            last = last.nearest()
            if last is None:
                del self._queues[self._connection]
            else:
                self._queues[self._connection] = last
        self._slot = None

    def _last_slot(self) -> _Slot:
        slot = self._queues[self._connection] = _Slot(self._queues.get(self._connection), self._has_arrived)
        return slot


class RequestOrder:
    """The queues of all connections that have produce requests under way."""

    def __init__(self) -> None:
        self._queues: dict[str | None, _Slot] = {}

    def __repr__(self) -> str:
        return f"RequestOrder(connections={len(self._queues)})"

    def has_slots(self, connection: str) -> bool:
        """Returns whether produce requests of a connection wait for their appends."""
        return connection in self._queues

    def begin(self, request: Request) -> OrderSlot:
        """Begins a request. Call it before the first await of the request."""
        return OrderSlot(self._queues, request.client, request.has_arrived)
