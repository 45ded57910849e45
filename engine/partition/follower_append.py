"""Appends batches as follower: checks them, plans them as they are, and replays their producer state.

Pure, except for the notes that it leaves to the writer. Does not know who leads, nor which offset was fetched. Rejects
batches that do not join the end of the log (UnexpectedOffset), and skips those below it.
A group takes a slice of the queue: bounded, so that it does not block the event loop, and of one leader epoch, since an
epoch is noted durably before its first batch is written; so is a fencing token (engine/partition/fence_checkpoint.py).
Invariants: a rejected append also fails all that is queued behind it, which could not join; each future is done once:
with log_end, when its last batch is in the log (and fsynced, if requested), or with an error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from engine.errors import EngineError, InvalidBatch
from engine.format.batch_header import NO_PRODUCER, Header, checked_headers
from engine.log.epochs import EpochStart, assigned
from engine.log.leader_epochs import is_in_batches, save_epochs
from engine.log.log import Log, Roll, Run, Write
from engine.producers.fence_file import save_fence
from engine.producers.fencing import Fencing
from engine.topic_settings import TopicSettings

BATCHES_PER_GROUP = 1000  # a few milliseconds of the loop; the next group takes the rest


@dataclass(slots=True)
class FollowerAppend:
    """Whole batches of one response of a leader. Groups have taken them up to `position`."""

    data: memoryview
    done: asyncio.Future[int]
    wants_sync: bool
    starts_segment: bool  # the leader has a new segment begin with the first batch
    position: int = 0

    @property
    def is_taken(self) -> bool:
        return self.position == len(self.data)


@dataclass(slots=True)
class PlannedAppends:
    """The work of one group: steps, and what must be durable before them."""

    steps: list[Write | Roll] = field(default_factory=list)
    notes: list[Callable[[], None]] = field(default_factory=list)
    epochs: list[EpochStart] | None = None  # the log's epochs once the notes are durable
    # batches with state for the append validator
    notable: list[tuple[Header, memoryview]] = field(default_factory=list)
    notes_token: bool = False
    finished: list[FollowerAppend] = field(default_factory=list)  # those that end within this group

    @property
    def wants_early_ack(self) -> bool:
        """True if an append waits for this group, and not for its sync."""
        return not all(copies.wants_sync for copies in self.finished)


class FollowerAppendQueue:
    """The follower appends of one partition: queued, and of the group in progress."""

    def __init__(self) -> None:
        self.batches = 0  # since the partition was opened
        self.bytes = 0
        self.queue: deque[FollowerAppend] = deque()
        self.under_way: PlannedAppends | None = None
        self.syncing: list[FollowerAppend] = []  # in the page cache, and wait for the sync

    def __repr__(self) -> str:
        return f"CopyQueue(queued={len(self.queue)}, batches={self.batches})"

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def wants_sync(self) -> bool:
        return any(copies.wants_sync for copies in self.queue)

    def add(self, copies: FollowerAppend) -> None:
        self.queue.append(copies)

    def take(self, log: Log, fencing: Fencing, settings: TopicSettings, now_ms: int) -> PlannedAppends:
        """Plan a slice of the queue. On error, fails the queued futures and returns an empty plan."""
        taken = PlannedAppends()
        try:
            self._plan(taken, log, fencing, settings, now_ms)
        except EngineError as error:
            _fail(taken.finished, error)
            self.fail(error)
            taken = PlannedAppends()
        self.under_way = taken
        return taken

    def apply_written(self, log: Log) -> PlannedAppends:
        """Applies a group that is in the page cache and in the log."""
        taken = self._take()
        for step in taken.steps:
            if isinstance(step, Write):
                self.batches += len(step.headers)
                self.bytes += sum(map(len, step.buffers))
        for copies in taken.finished:
            if copies.wants_sync:
                self.syncing.append(copies)
            elif not copies.done.done():
                copies.done.set_result(log.log_end)
        return taken

    def drop_failed(self, error: EngineError) -> PlannedAppends:
        """Drops a group that failed."""
        taken = self._take()
        _fail(taken.finished, error)
        self.fail(error)
        return taken

    def complete_synced(self, log_end: int) -> None:
        """Completes the appends that wait for the sync: all bytes are durable."""
        syncing, self.syncing = self.syncing, []
        for copies in syncing:
            if not copies.done.done():
                copies.done.set_result(log_end)

    def fail(self, error: EngineError) -> None:
        """Fails the queue and the waits for a sync."""
        queue, self.queue = self.queue, deque()
        syncing, self.syncing = self.syncing, []
        _fail([*queue, *syncing], error)

    def end(self, error: EngineError) -> None:
        """Fails everything: the partition is offline."""
        if self.under_way is not None:
            _fail(self.under_way.finished, error)
        self.fail(error)

    def _take(self) -> PlannedAppends:
        taken, self.under_way = self.under_way, None
        assert taken is not None
        return taken

    def _plan(self, taken: PlannedAppends, log: Log, fencing: Fencing, settings: TopicSettings, now_ms: int) -> None:
        runs: list[Run] = []
        left = BATCHES_PER_GROUP
        while self.queue and left:
            copies = self.queue[0]
            left, run = self._slice(taken, copies, log, left, has_more=bool(runs))
            runs += [run] if run.headers else []
            if copies.is_taken:
                taken.finished.append(self.queue.popleft())
            elif left:
                raise InvalidBatch("a copy ends within a batch")
        taken.steps = log.plan_follower_append(runs, settings, now_ms)
        if taken.epochs is not None and not is_in_batches(log.epochs, taken.epochs):
            taken.notes.append(partial(save_epochs, log.disk, log.directory, taken.epochs))
        taken.notes_token = not fencing.is_noted and any(header.is_control for header, _ in taken.notable)
        if taken.notes_token:
            taken.notes.append(partial(save_fence, log.disk, log.directory))

    def _slice(
        self, taken: PlannedAppends, copies: FollowerAppend, log: Log, left: int, *, has_more: bool
    ) -> tuple[int, Run]:
        """Returns as much of an append as fits into the group, and how many more batches fit after it."""
        begin = copies.position
        headers, end = checked_headers(copies.data, begin, left)
        stored_count = next((at for at, header in enumerate(headers) if header.next_offset > log.log_end), len(headers))
        start = begin + sum(header.size_bytes for header in headers[:stored_count])
        run = Run(
            copies.data, copies.starts_segment and not begin, start, headers[stored_count:] if stored_count else headers
        )
        epochs = log.epochs if taken.epochs is None else taken.epochs
        epoch = epochs[-1].epoch if epochs else None
        position, counted = start, 0
        for at, header in enumerate(run.headers):
            is_new_epoch = header.leader_epoch != epoch
            if is_new_epoch or header.producer_id != NO_PRODUCER or header.is_control:
                position, counted = position + sum(header.size_bytes for header in run.headers[counted:at]), at
                if is_new_epoch and (has_more or at):
                    copies.position = position
                    del run.headers[at:]
                    return 0, run
                if is_new_epoch:
                    epoch = header.leader_epoch
                    taken.epochs = assigned(epochs, epoch, header.base_offset)
                if header.producer_id != NO_PRODUCER or header.is_control:
                    taken.notable.append((header, copies.data[position : position + header.size_bytes]))
        copies.position = end
        return left - len(headers), run


def _fail(many: Sequence[FollowerAppend], error: EngineError) -> None:
    for copies in many:
        if not copies.done.done():
            copies.done.set_exception(error)
