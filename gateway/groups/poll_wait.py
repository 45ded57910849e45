"""The wait of a poll: for records, another assignment, its time, the drain, or the end of the coordinator.

A wait is one value among the waiters of its partitions, of its member, of the drain and of the deadlines. Only what
another process knows has a task: partitions that are read there, or whose bytes are counted, and the coordinator. It
reads nothing and makes no call of the group.
Invariants: a wait ends once, in the call that ends it, and is then among no waiters; it is counted as a long poll as
long as it lasts.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence

from engine.partition.high_watermark import PositionWaiters
from engine.runtime.loop_waits import Bucket, loop_waits
from engine.runtime.pending import Pending
from engine.runtime.tasks import start_task
from gateway.fetch.multi_fetch import MultiFetch
from gateway.groups.context import GroupContext
from gateway.groups.hosting.calls import ChangedCall
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.values import Grant, PollCall
from gateway.groups.topic_priorities import TopicPriorities
from gateway.http.lifecycle import DRAINING

Waits = Sequence[tuple[PositionWaiters, int]]  # the waiters of partitions, and the end that is waited for


class Outcome(enum.Enum):
    """The outcome of a wait. OVER: the time is over, or the process drains."""

    CHANGED = enum.auto()
    READABLE = enum.auto()
    OVER = enum.auto()


class PollWait(Pending[Outcome]):
    """One wait of a poll with this grant. It begins at once; EngineError: the coordinator or a partition has failed."""

    __slots__ = ("_at_deadline", "_bucket", "_call", "_context", "_grant", "_hosted", "_loop", "_tasks", "_waits",
                 "_weight")  # fmt: skip

    def __init__(self, context: GroupContext, call: PollCall, grant: Grant) -> None:
        super().__init__()
        self._context = context
        self._call = call
        self._grant = grant
        self._weight = max(1, len(grant.assignment))
        self._loop = asyncio.get_running_loop()
        self._hosted: Hosted | None = None
        self._bucket: Bucket | None = None
        self._waits: Waits = ()
        self._tasks: list[asyncio.Task[object]] = []

    def begin(self, ends_at: float, delayed_until: float, hosted: Hosted | None) -> None:
        """Begins the wait for all but records, until a time of the loop's clock. Raises Problem too_many_long_polls.

        `delayed_until`: then the assignment is looked at again, since a partition with a failed record is free.
        `hosted`: the coordinator, if it is here.
        """
        self._context.fetch.long_polls.begin(self._weight)
        self._at_deadline = Outcome.OVER if ends_at <= delayed_until else Outcome.CHANGED
        deadline = min(ends_at, delayed_until)
        self._bucket = loop_waits(self._loop).deadlines.put(deadline, self, PollWait._expire)
        self._context.lifecycle.draining.add(DRAINING, self)
        if hosted is None or hosted.hosting != self._grant.hosting:
            self._wait_changed(deadline)
        elif hosted.watch(self._call.group, self._call.member_id, self._grant.version, self):
            self._hosted = hosted
        else:
            self.note_changed()

    def wait_quiet(self, waits: Waits) -> None:
        """Waits for records too, of partitions of this process that have none."""
        if self.is_over:
            return
        self._waits = waits
        for waiters, end in waits:
            waiters.add(end, self)

    def wait_bytes(self, many: TopicPriorities | MultiFetch, min_bytes: int, wait_s: float) -> None:
        """Waits for `min_bytes` too, or for the first byte of partitions that other processes have."""
        if not self.is_over:
            self._tasks.append(task := start_task(many.wait(min_bytes, wait_s)))
            task.add_done_callback(self._on_bytes)

    def note_changed(self) -> None:
        self.complete(Outcome.CHANGED)

    def complete(self, outcome: Outcome | BaseException) -> None:
        self._end()
        super().complete(outcome)

    def cancel(self) -> None:
        self._end()
        super().cancel()

    # As a wait for high watermarks and for the drain

    def done(self) -> bool:
        return self.is_over

    def set_result(self, result: object, /) -> None:
        self.complete(Outcome.OVER if self._context.lifecycle.is_draining else Outcome.READABLE)

    def set_exception(self, error: Exception, /) -> None:
        """Ends the wait as well: the next look finds the error, which is that of one partition and not of the poll."""
        self.complete(Outcome.READABLE)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    # Within

    def _wait_changed(self, deadline: float) -> None:
        """Asks another process for the end of the assignment."""
        call, grant, coordinators = self._call, self._grant, self._context.coordinators
        wait_ms = max(1, round((deadline - self._loop.time()) * 1000))
        changed = ChangedCall(call.group, call.member_id, grant.version, grant.hosting, wait_ms)
        self._tasks.append(task := start_task(coordinators.wait_changed(call.group, changed)))
        task.add_done_callback(self._on_changed)

    def _expire(self) -> None:
        self.complete(self._at_deadline)

    def _on_changed(self, task: asyncio.Task[bool]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self.complete(error)
        elif task.result():
            self.note_changed()

    def _on_bytes(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.complete(task.exception() or Outcome.READABLE)

    def _end(self) -> None:
        if self._bucket is None:  # it has not begun, or has ended
            return
        self._bucket.pop(self, None)
        self._bucket = None
        for waiters, end in self._waits:
            waiters.give_up(end, self)
        self._context.lifecycle.draining.give_up(DRAINING, self)
        self._context.fetch.long_polls.end(self._weight)
        if self._hosted is not None:
            self._hosted.unwatch(self._call.group, self._call.member_id, self)
        for task in self._tasks:
            task.cancel()
