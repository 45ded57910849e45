"""The history of a group, with causes, and where its members began to read: in the memory of its coordinator.

Bounded, and not stored: a new coordinator begins with the event `coordinator_started`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct, structs

from gateway.groups.model.values import Now, Slot

EVENTS_MAX = 40  # of a group: 10,000 groups with full histories are some 60 MB
TIMES_MAX = 3


class Event(Struct, frozen=True, array_like=True):
    """One event. `count` is of equal ones in a row; `at_ms` is the time of the last."""

    at_ms: int
    cause: str
    member_id: str
    detail: str
    count: int = 1


class Begun(NamedTuple):
    """How often reading of a partition began at one committed position. `times_ms` are the last TIMES_MAX."""

    offset: int
    begins: int
    times_ms: tuple[int, ...]


class History:
    """`begun` has the partitions that were read from a committed position."""

    __slots__ = ("begun", "events")

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.begun: dict[Slot, Begun] = {}

    def __repr__(self) -> str:
        return f"History({len(self.events)} events, begun={len(self.begun)})"

    def note(self, cause: str, now: Now, member_id: str = "", detail: str = "", count: int = 1) -> None:
        """Adds an event, or several equal ones. One that equals the last, but for its time, is counted there."""
        last = self.events[-1] if self.events else None
        if last is not None and (last.cause, last.member_id, last.detail) == (cause, member_id, detail):
            self.events[-1] = structs.replace(last, at_ms=now.wall_ms, count=last.count + count)
        else:
            self.events.append(Event(now.wall_ms, cause, member_id, detail, count))

    def note_begun(self, positions: Iterable[tuple[Slot, int]], now: Now) -> None:
        """Notes where a member begins to read."""
        for slot, offset in positions:
            before = self.begun.get(slot)
            if before is None or before.offset != offset:
                self.begun[slot] = Begun(offset, 1, (now.wall_ms,))
            else:
                times_ms = (*before.times_ms, now.wall_ms)[-TIMES_MAX:]
                self.begun[slot] = Begun(offset, before.begins + 1, times_ms)
