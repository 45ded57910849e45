"""One coordinator that runs: the core, its records on their way to the log, and the open polls that wait for changes.

Calls decide at once, in the order in which they come; their records are appended in that order, one batch under way,
with acks=all. An answer waits until everything that it may show is stored. A batch that is not acknowledged in time is
in the log: its callers get an error, and it is waited for.
Invariants: (1) the records of one call are in one batch, so that a crash leaves all of them or none; (2) after a failed
append the core may be ahead of the log: this object is dropped, and the next call replays the log; in the same period
of leadership the locks of share groups go on (gateway/groups/core/carried_locks.py); (3) nothing is
appended after this period of leadership, and the next coordinator replays the log after the batch under way; (4) a disk
that refuses a batch has stored no part of it, nor of later calls: these get the disk's error, and no retry here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from msgspec import structs

from engine.errors import AckTimeout, EngineError, StorageFull, TooManyOpenFiles
from engine.format import batch as record_batch
from engine.partition.partition import Partition
from engine.producers.appends import Appended
from engine.runtime.clock import Clock
from engine.runtime.loop_waits import loop_waits
from engine.runtime.pending import Pending
from engine.runtime.tasks import in_background
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.values import Grant, Now, PollCall, Row, TopicSource
from gateway.links.link import Busy
from replication.replica.acks import Acks, retrieve_exception
from replication.replica.replicas import AnyReplica

PENDING_ROWS_MAX = 200_000  # of calls whose records wait for the disk: some 40 MB
REFUSED_MS = 1000  # after which a disk that was full is tried again, by the next call that stores something
PATIENT_MS = 30_000  # the same, for what no caller waits for: each try replays the log if it fails
BATCH_BYTES = 4 * 1024 * 1024  # a batch is closed above it; one call adds 30 MB at most, the engine's limit is 256 MB

T = TypeVar("T")
Member = tuple[str, str]  # group and member id


class Watch(Protocol):
    """An open poll of a member. It acts in the same call, and raises nothing."""

    def note_changed(self) -> None:
        """Ends the wait: the assignment of the member is another one."""

    def complete(self, outcome: EngineError, /) -> None:
        """Ends the wait: the coordinator has ended."""


class Change(Pending[bool]):
    """The wait of a call for a change of its member; False: it was not in time."""

    __slots__ = ()

    def note_changed(self) -> None:
        self.complete(True)

    def expire(self) -> None:
        self.complete(False)


class _Decision(NamedTuple):
    """The records of one call."""

    sequence: int
    rows: list[Row]
    size_bytes: int
    cause: object  # the call, if a refusal of its records is to undo it


class Hosted:
    """The coordinator of one partition in one period of leadership. `hosting` is different for each such period."""

    def __init__(
        self,
        hosting: int,
        partition: Partition,
        replica: AnyReplica,
        coordinator: Coordinator,
        source: TopicSource,
        clock: Clock,
        timeout_ms: int,
        refusal: EngineError | None = None,
    ) -> None:
        self.hosting = hosting
        self.leader_epoch = partition.log.leader_epoch
        self.partition = partition
        self.coordinator = coordinator
        self.error: EngineError | None = None
        self._replica = replica
        self._source = source
        self._clock = clock
        self._timeout_ms = timeout_ms
        self.refusal = refusal  # of the disk, and not taken back by an append since
        self._refused_ms = clock.steady_ms()
        self._pending: deque[_Decision] = deque()
        self._writing: list[_Decision] = []
        self._pending_rows = 0
        self._appending: asyncio.Future[Appended] | None = None
        self._sequence = self._stored = 0
        self._storing: deque[tuple[int, Pending[None]]] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._watching: defaultdict[Member, set[Watch]] = defaultdict(set)

    def __repr__(self) -> str:
        return f"Hosted({self.partition.name}, {self.coordinator}, stored={self._stored} of {self._sequence})"

    def now(self) -> Now:
        return Now(self._clock.steady_ms(), self._clock.now_ms())

    @property
    def refused_calls(self) -> list[object]:
        """The calls whose records are not stored."""
        return [decision.cause for decision in (*self._writing, *self._pending) if decision.cause is not None]

    @property
    def refusal_of_disk(self) -> EngineError | None:
        """The error of a full disk that has ended this coordinator, or the one before without an append since."""
        return self.error if isinstance(self.error, StorageFull | TooManyOpenFiles) else self.refusal

    def check_room(self) -> None:
        """Raises the error of a disk that has refused records a moment ago, before a call changes anything."""
        if self.refusal is not None and self._is_refused(REFUSED_MS):
            raise self.refusal

    def _is_refused(self, for_ms: int) -> bool:
        return self.refusal is not None and self._clock.steady_ms() < self._refused_ms + for_ms

    def decide(
        self, call: Callable[[Coordinator, Now, TopicSource], T], cause: object = None, *, is_patient: bool = False
    ) -> tuple[T, int]:
        """Makes a call on the core. Returns its answer, and what must be stored before it leaves; 0: nothing.

        `is_patient`: its records may be stored later, and are not tried while the disk refuses them. Raises the errors
        of the call, and Busy.
        """
        if self._pending_rows > PENDING_ROWS_MAX:
            raise Busy("too many changes of groups wait for the disk")
        try:
            answer = call(self.coordinator, self.now(), self._source)
        finally:
            if not (is_patient and self._is_refused(PATIENT_MS)):
                self._append(self.coordinator.take_rows(), cause)
            self._wake()
        return answer, 0 if self._stored == self._sequence else self._sequence

    def prove_lead(self, sequence: int, *, is_strict: bool = False) -> int:
        """Returns what must be stored before an answer leaves that stores nothing itself, or `sequence` without need.

        A process that was paused or cut off may not know that another one coordinates. It cannot store: what the
        replicas in sync take after the call proves that it leads. Strictly, or if the session is in doubt.
        """
        if not self.partition.is_replicated or not (is_strict or self._is_in_doubt()):
            return sequence
        group = next(iter(self.coordinator.groups.values()), None)
        if group is not None and not self._pending:  # else the next batch, which is not appended yet, proves it
            self.coordinator.store_again(group)
            self._append(self.coordinator.take_rows(), None)
        return self._sequence if self._stored != self._sequence else sequence

    def _is_in_doubt(self) -> bool:
        try:
            self._replica.check_append(Acks.LEADER)
        except EngineError:
            return True
        return False

    def grant(self, call: PollCall) -> Grant:
        """Makes the call of a poll. Raises as `decide` does."""
        grant, sequence = self.decide(lambda core, now, source: core.poll(call, now, source), call)
        return structs.replace(grant, hosting=self.hosting, sequence=sequence or self.prove_lead(0))

    def wait_stored(self, sequence: int) -> Pending[None]:
        """Returns a pending that ends once the records up to `sequence` are committed, or with their append's error."""
        pending: Pending[None] = Pending()
        if sequence <= self._stored:
            pending.complete(None)
        elif self.error is not None:
            pending.complete(self.error)
        else:
            self._storing.append((sequence, pending))
        return pending

    async def wait_changed(self, group: str, member_id: str, version: int, wait_ms: int) -> bool:
        """Waits until a member's assignment is of another version; False: it was not in time. Keeps its session."""
        change = Change()
        if not self.watch(group, member_id, version, change):
            return True
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        bucket = loop_waits().deadlines.put(deadline, change, Change.expire)
        try:
            return await change
        finally:
            bucket.pop(change, None)
            self.unwatch(group, member_id, change)

    def watch(self, group: str, member_id: str, version: int, watch: Watch) -> bool:
        """Ends a watch once a member's assignment is not of this version. Keeps its session, until `unwatch`.

        Returns False if it is of another one already; then nothing is watched.
        """
        if self.coordinator.wait(group, member_id, self.now(), 1) != version:
            self.coordinator.wait(group, member_id, self.now(), -1)
            return False
        self._watching[group, member_id].add(watch)
        return True

    @contextmanager
    def woken(self, group: str, member_id: str) -> Iterator[Change]:
        """Yields a change that ends once a member of Kafka's classic protocol is woken."""
        change, member = Change(), (group, member_id)
        self._watching[member].add(change)
        try:
            yield change
        finally:
            if watching := self._watching.get(member):
                watching.discard(change)
                if not watching:
                    del self._watching[member]

    async def wait_woken(self, change: Change, until_ms: int) -> None:
        """Waits for a change, or until a steady time. Raises CoordinatorMoved."""
        wait_s = max(0, until_ms - self._clock.steady_ms()) / 1000
        bucket = loop_waits().deadlines.put(asyncio.get_running_loop().time() + wait_s, change, Change.expire)
        try:
            await change
        finally:
            bucket.pop(change, None)

    def unwatch(self, group: str, member_id: str, watch: Watch) -> None:
        self.coordinator.wait(group, member_id, self.now(), -1)
        if watching := self._watching.get((group, member_id)):
            watching.discard(watch)
            if not watching:
                del self._watching[group, member_id]

    def close(self, error: EngineError) -> None:
        """Ends all waits: this coordinator was replaced, or its records could not be stored."""
        self.error = error
        storing, self._storing = self._storing, deque()
        for _, pending in storing:
            pending.complete(error)
        moved = CoordinatorMoved("the group's coordinator has ended")  # an open poll has nothing to store: it goes on
        for watch in [watch for watching in self._watching.values() for watch in watching]:  # they act in the same call
            watch.complete(moved)
        self._watching.clear()

    async def wait_written(self) -> None:
        """Waits until the batch under way is in the log, or is not going to be."""
        if self._appending is not None:
            await asyncio.wait([self._appending])

    def _append(self, rows: list[Row], cause: object) -> None:
        if not rows:
            return
        self._sequence += 1
        size_bytes = sum(len(row.key) + len(row.value or b"") for row in rows)
        self._pending.append(_Decision(self._sequence, rows, size_bytes, cause))
        self._pending_rows += len(rows)
        if self._writer is None:
            self._writer = in_background(self._write(), "storing the records of groups", of=self.partition.name)

    async def _write(self) -> None:
        try:
            while self._pending and self.error is None:
                if self.partition.log.leader_epoch != self.leader_epoch:
                    raise CoordinatorMoved("the process has lost the lead of the groups' partition")
                rows, sequence = self._next_batch()
                now_ms = self._clock.now_ms()
                batch = record_batch.encode([(now_ms, row.key, row.value, []) for row in rows])
                self._appending = self._replica.append(batch, Acks.ALL)
                self._appending.add_done_callback(retrieve_exception)
                await self._wait_acknowledged(self._appending)
                self._stored, self._writing, self.refusal = sequence, [], None
                self._end_waits(sequence, None)
        except (StorageFull, TooManyOpenFiles) as error:
            self.close(error)
        except EngineError as error:
            self.close(CoordinatorMoved(f"the records of groups were not stored: {error}"))
        except Exception as error:
            self.close(CoordinatorMoved(f"the records of groups were not stored: {error}"))
            raise
        finally:
            self._writer = None

    def _next_batch(self) -> tuple[list[Row], int]:
        """Returns the records of the next calls, and the sequence of the last of them."""
        rows: list[Row] = []
        size_bytes = sequence = 0
        while self._pending and (not rows or size_bytes + self._pending[0].size_bytes <= BATCH_BYTES):
            self._writing.append(decision := self._pending.popleft())
            sequence = decision.sequence
            rows += decision.rows
            size_bytes += decision.size_bytes
        self._pending_rows -= len(rows)
        return rows, sequence

    async def _wait_acknowledged(self, appending: asyncio.Future[Appended]) -> None:
        """Waits for the batch under way. When it is late, the calls behind it wait no longer than its own."""
        while self.error is None:
            try:
                await self._replica.acknowledge(appending, Acks.ALL, self._timeout_ms)
                return
            except AckTimeout as error:
                late = CoordinatorMoved(f"the records of groups are not stored yet: {error}")
                self._end_waits(self._sequence, late)

    def _end_waits(self, sequence: int, error: EngineError | None) -> None:
        while self._storing and self._storing[0][0] <= sequence:
            _, pending = self._storing.popleft()
            pending.complete(error)

    def _wake(self) -> None:
        for member in self.coordinator.woken:
            for watch in tuple(self._watching.get(member, ())):
                watch.note_changed()
        self.coordinator.woken.clear()
