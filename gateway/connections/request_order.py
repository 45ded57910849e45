"""The order of produce requests on one connection: they are appended in the order in which their bodies were there.

HTTP/2 has many requests under way on a connection. A large body is decoded in a thread, and a later, small one must not
overtake it meanwhile: so each request has a turn and waits, before it appends, for those before it. Knows no topics:
what goes over one connection at the same time rarely goes to different ones.

The server library gives us the requests of a connection in the order in which they began, but may tell of a body later
than of the next one's, although it was there first: the larger it is, the more often. So a body is expected from the
beginning of its request on, and those behind it wait a little for it. One that does not come, because its client sends
slowly, loses its place; it takes another at the end of the line once it is there.
Invariants: a turn waits only for earlier ones, so that they cannot wait for each other; one that is over keeps none
waiting; a connection without requests under way is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web

GRACE_S = 0.01  # a body that was there first is told within a turn or two of the server's thread
GRACES = 4  # of our own loop too: one that is late itself must not take others for late


class _Place:
    """A place in the line of a connection."""

    __slots__ = ("before", "has_body", "is_over", "waiting")

    def __init__(self, before: _Place | None) -> None:
        self.before = before
        self.has_body = False
        self.is_over = False
        self.waiting: asyncio.Future[None] | None = None

    def end(self) -> None:
        self.is_over = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    def nearest(self) -> _Place | None:
        """The last one before this that is not over."""
        while self.before is not None and self.before.is_over:
            self.before = self.before.before
        return self.before

    def all_before(self) -> Iterator[_Place]:
        place = self.nearest()
        while place is not None:
            yield place
            place = place.nearest()

    def over(self) -> asyncio.Future[None]:
        """Done when it is over, or has lost its place: for each, the time that it has begins with the first asking."""
        if self.waiting is None:
            loop = asyncio.get_running_loop()
            self.waiting = loop.create_future()
            if not self.has_body:
                loop.call_later(GRACE_S, self._lose, GRACES - 1)
        return self.waiting

    def _lose(self, graces: int) -> None:
        if self.has_body or self.is_over:
            return
        if graces:
            asyncio.get_running_loop().call_later(GRACE_S, self._lose, graces - 1)
        else:
            self.end()


class OrderSlot:
    """One request among those of its connection."""

    __slots__ = ("_connection", "_lines", "_place")

    def __init__(self, lines: dict[str | None, _Place], connection: str | None) -> None:
        self._lines = lines
        self._connection = connection
        self._place: _Place | None = self._last_place()

    def body_is_there(self) -> None:
        """To be called before anything is awaited that comes after the body."""
        assert self._place is not None
        if self._place.is_over:
            self._place = self._last_place()
        self._place.has_body = True

    @property
    def is_next(self) -> bool:
        """Nobody is before it. Most requests ask this and need not wait."""
        return self._place is None or self._place.nearest() is None

    async def come(self) -> None:
        """Wait for those before it."""
        assert self._place is not None, "a turn comes after the body"
        for before in self._place.all_before():  # or many slow ones would be waited for one after the other
            before.over()
        while (nearest := self._place.nearest()) is not None:
            await asyncio.shield(nearest.over())

    def end(self) -> None:
        """What the request wanted to append is queued, or nothing will be. May be called again."""
        if self._place is None:
            return
        self._place.end()
        last = self._lines.get(self._connection)
        if last is not None and last.is_over:
            last = last.nearest()
            if last is None:
                del self._lines[self._connection]
            else:
                self._lines[self._connection] = last
        self._place = None

    def _last_place(self) -> _Place:
        place = self._lines[self._connection] = _Place(self._lines.get(self._connection))
        return place


class RequestOrder:
    """The lines of all connections that have produce requests under way."""

    def __init__(self) -> None:
        self._lines: dict[str | None, _Place] = {}

    def __repr__(self) -> str:
        return f"RequestOrder(connections={len(self._lines)})"

    def begin(self, request: web.Request) -> OrderSlot:
        """A request has begun; nothing may have been awaited for it yet."""
        return OrderSlot(self._lines, request.remote)
