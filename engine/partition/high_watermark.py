"""The high watermark of one partition: the committed end, its byte position, and the waits for it.

Does not know replicas: replication computes the position. Long polls and acknowledgements wait for the same position in
separate lists: a long poll may end early, to read what there is, an acknowledgement never.

`PositionWaiters` is a list of waits for one position; it belongs to one event loop. A wait is a future, or a `Waiter`
that acts in the same call (replication/replica/appends.py). A wait that ends before its
position is reached must be given up (`give_up`), or it stays until then. `BatchBoundaries` has the ends of batches that
are written and not committed yet, so that the watermark always has an exact byte position. On a standalone node the
watermark moves to the end of the log only, and none are kept. Followers' ends are between any two batches: where a
partition `is_replicated`, the writes of each group are kept until they are committed, and searched when a watermark
falls inside. For older positions the index and the headers behind its entry are read (engine/log/batch_boundaries.py).
Invariants: `byte_position` is the start of the batch at `position`, or the end of the log; no wait is for a reached
end; each end with waits is in the heap once, and so are ends whose waits were all given up, fewer than half of the heap
or 64; the kept boundaries are bounded, even if nothing is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from engine.errors import Corrupt
from engine.log.batch_boundaries import boundary_below
from engine.log.log import BytePosition, Log, Roll, Write
from engine.log.segment import Segment
from engine.runtime.disk import WouldBlock
from engine.runtime.loop_waits import Wakeups, expire, loop_waits

BATCHES_MAX = 10_000  # about 4 MB of headers; far more than the lag of an in-sync follower
EMPTY_MAX = 64  # ends without waits, before they are compared with the others


class Waiter(Protocol):
    """A wait without a future: it has the methods of one that end a wait, and they raise nothing."""

    def done(self) -> bool: ...
    def set_result(self, position: int, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...
    def get_loop(self) -> asyncio.AbstractEventLoop: ...


Wait = asyncio.Future[int] | Waiter
Waiting = dict[Wait, None]  # in order
WakeupsOf = Callable[[asyncio.AbstractEventLoop], Wakeups]


def polls_of(loop: asyncio.AbstractEventLoop) -> Wakeups:
    """Returns the queue of wake-ups for long polls."""
    return loop_waits(loop).polls


def acks_of(loop: asyncio.AbstractEventLoop) -> Wakeups:
    """Returns the queue of wake-ups for acknowledgements."""
    return loop_waits(loop).acks


class PositionWaiters:
    """Futures by the end they wait for; `advance` wakes all that are reached."""

    def __init__(
        self, position: int, wakeups: WakeupsOf = polls_of, waited_for: Callable[[], None] | None = None
    ) -> None:
        """`waited_for` is called when a wait begins."""
        self.position = position
        self._by_end: dict[int, Waiting] = {}
        self._ends: list[int] = []  # a heap of the same ends
        self.count = 0
        self._empty = 0  # ends whose waits were given up
        self._wakeups = wakeups
        self._waited_for = waited_for
        self.failure: Exception | None = None  # of every wait, also of later ones

    def __repr__(self) -> str:
        return f"PositionWaiters(position={self.position}, waiting={self.count})"

    def __len__(self) -> int:
        return self.count

    def wait_for(self, end: int) -> asyncio.Future[int]:
        """Returns a future that is done, with the position, once everything below `end` has been passed, or fails."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if end <= self.position:
            future.set_result(self.position)
            return future
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        self.add(end, future)
        return future

    def add(self, end: int, wait: Wait) -> None:
        """Adds a wait for an end that is not reached; a future or another Waiter. The list has not failed."""
        waiting = self._by_end.get(end)
        if waiting is None:
            waiting = self._by_end[end] = {}
            heappush(self._ends, end)
        elif not waiting:
            self._empty -= 1
        waiting[wait] = None
        self.count += 1
        if self._waited_for is not None:
            self._waited_for()

    def give_up(self, end: int, wait: Wait) -> None:
        """Drops a wait. No-op after its wake-up."""
        waiting = self._by_end.get(end)
        if waiting is None or wait not in waiting:
            return
        del waiting[wait]
        self.count -= 1
        if not waiting:
            self._empty += 1
            if self._empty > max(EMPTY_MAX, len(self._ends) // 2):
                self._drop_empty()

    async def wait_until(self, deadline: float, end: int) -> int:
        """Waits as `wait_for` does, until a time of the loop's clock. Raises TimeoutError."""
        future = self.wait_for(end)
        if future.done():
            return future.result()
        bucket = loop_waits(future.get_loop()).deadlines.put(deadline, future, expire)
        try:
            return await future
        finally:
            bucket.pop(future, None)
            self.give_up(end, future)

    def advance(self, position: int) -> None:
        """Advance and wake all reached waits, in the order of their ends."""
        assert position >= self.position, f"a position went back from {self.position} to {position}"
        self.position = position
        ends = self._ends
        reached: list[Wait] = []
        while ends and ends[0] <= position:
            waiting = self._by_end.pop(heappop(ends))
            reached += waiting
            self._empty -= not waiting
        if reached:
            self._wake(reached, _reaching(position))

    def fail(self, error: Exception) -> None:
        """Fails every wait, later ones too: the position will not be reached."""
        self.failure = error
        self.fail_present(error)

    def fail_present(self, error: Exception) -> None:
        """Fails every present wait."""
        self._wake(self._take_all(), _failing(error))

    def retreat(self, position: int) -> None:
        """Go back to a position: the records at and above it are gone. Waits continue."""
        self.position = position

    def wake_all(self) -> None:
        """Ends every wait at the present position: the waiter reads what there is."""
        self._wake(self._take_all(), _reaching(self.position))

    def _take_all(self) -> list[Wait]:
        taken = [wait for end in sorted(self._ends) for wait in self._by_end[end]]
        self._by_end, self._ends, self._empty = {}, [], 0
        return taken

    def _wake(self, waits: list[Wait], action: Callable[[Wait], None]) -> None:
        if waits:
            self.count -= len(waits)
            self._wakeups(waits[0].get_loop()).wake_all(action, waits)

    def _drop_empty(self) -> None:
        self._by_end = {end: waiting for end, waiting in self._by_end.items() if waiting}
        self._ends = sorted(self._by_end)
        self._empty = 0


def _reaching(position: int) -> Callable[[Wait], None]:
    def reach(wait: Wait) -> None:
        if not wait.done():
            wait.set_result(position)

    return reach


def _failing(error: Exception) -> Callable[[Wait], None]:
    def fail(wait: Wait) -> None:
        if not wait.done():
            wait.set_exception(error)

    return fail


class _Group(NamedTuple):
    end: int
    byte_position: BytePosition
    steps: Sequence[Write | Roll]
    batches: int


class BatchBoundaries:
    """Where written, uncommitted batches end."""

    def __init__(self) -> None:
        self._groups: deque[_Group] = deque()
        self._batches = 0  # a group counts as one at least

    def __repr__(self) -> str:
        return f"BatchBoundaries({len(self._groups)} groups)"

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, end: int, byte_position: BytePosition, steps: Sequence[Write | Roll]) -> None:
        """Adds the end of a written group."""
        batches = max(1, sum(len(step.headers) for step in steps if isinstance(step, Write)))
        self._groups.append(_Group(end, byte_position, steps, batches))
        self._batches += batches
        while self._batches > BATCHES_MAX and len(self._groups) > 1:
            self._first()

    def take(self, position: int) -> BytePosition | None:
        """Return the byte position of a position, and drop those before it; None if it is unknown."""
        groups = self._groups
        while groups and groups[0].end <= position:
            group = self._first()
            if group.end == position:
                return group.byte_position
        return _position_within(groups[0].steps, position) if groups else None

    def cut(self, log_end: int) -> None:
        """Drops boundaries behind the new end of the log."""
        while self._groups and self._groups[-1].end > log_end:
            self._batches -= self._groups.pop().batches

    def _first(self) -> _Group:
        group = self._groups.popleft()
        self._batches -= group.batches
        return group


def _position_within(steps: Sequence[Write | Roll], position: int) -> BytePosition | None:
    for step in steps:
        if isinstance(step, Roll) or not step.headers[0].base_offset <= position <= step.headers[-1].next_offset:
            continue
        byte_position, end = step.position, step.headers[0].base_offset
        for header in step.headers:
            if header.next_offset > position:
                break
            byte_position, end = byte_position + header.size_bytes, header.next_offset
        return BytePosition(step.segment.base_offset, byte_position) if end == position else None
    return None


class HighWatermark:
    """Starts at the end of the log: on a standalone node the whole log is committed.

    `polls` are the waits of long polls: `wake_all` ends them early. `acks` are never ended before their position.
    `waited_for` is called when a wait of either kind begins, `byte_position_unknown` when a byte position
    must be read from the disk.
    """

    def __init__(self, log: Log, waited_for: Callable[[], None], byte_position_unknown: Callable[[], None]) -> None:
        self.position = log.log_end
        self.byte_position = log.end_position
        self.polls = PositionWaiters(log.log_end, polls_of, waited_for)
        self.acks = PositionWaiters(log.log_end, acks_of, waited_for)
        self.boundaries = BatchBoundaries()
        self.generation = (
            0  # grows when the log is truncated or less of it is known: earlier searches for byte positions are void
        )
        self.sought: int | None = None  # the position whose byte position is being read from the disk
        self._log = log
        self._byte_position_unknown = byte_position_unknown

    def __repr__(self) -> str:
        return f"HighWatermark({self.position}, polls={len(self.polls)}, acks={len(self.acks)})"

    @property
    def waiting(self) -> int:
        return len(self.polls) + len(self.acks)

    def advance(self, position: int) -> None:
        """Advances to a position between two batches, or the last one before it.

        All byte positions written since the start are known. Older ones may need a disk read; the watermark follows
        afterwards.
        """
        if position <= self.position:
            return
        assert position <= self._log.log_end
        byte_position = self.boundaries.take(position)
        if byte_position is None and position == self._log.log_end:
            byte_position = self._log.end_position
        if byte_position is not None:
            self.advance_to(position, byte_position)
        elif (boundary := self._found_in_memory(position)) is not None:
            self.advance_to(*boundary)
        elif self.sought is None:
            self.sought = position
            self._byte_position_unknown()
        else:
            self.sought = max(self.sought, position)

    def advance_to(self, position: int, byte_position: BytePosition) -> None:
        if position > self.position:
            self.position, self.byte_position = position, byte_position
            self.polls.advance(position)
            self.acks.advance(position)

    def follow_compaction(self, first: int, end: int, end_position: BytePosition) -> None:
        """Follows a compaction of the committed segments from a base offset to an end: bytes moved, offsets did not."""
        if first <= self.byte_position.base_offset < end:
            assert self.position == end
            self.byte_position = end_position

    def set_back(self, position: int, byte_position: BytePosition) -> None:
        """Go back: the log ends here now, or less is known of it. Polls read again; waits for an ack continue."""
        self.position, self.byte_position = position, byte_position
        self.cut()
        self.acks.retreat(position)
        self.polls.retreat(position)
        self.polls.wake_all()

    def cut(self) -> None:
        """Invalidate byte positions above the new end of the log, which is at or above the known committed end."""
        self.generation += 1
        self.sought = None
        self.boundaries.cut(self._log.log_end)

    def fail(self, error: Exception) -> None:
        self.polls.fail(error)
        self.acks.fail(error)

    def _found_in_memory(self, position: int) -> tuple[int, BytePosition] | None:
        if position < self._log.log_end and self._log.segment_of(position).loaded_index is None:
            return None
        try:
            return boundary_below(self._log, position, Segment.pread_nowait)
        except (WouldBlock, OSError, Corrupt):  # a thread retries, and reports the error
            return None
