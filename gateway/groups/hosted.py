"""One coordinator that runs: the core, its records on their way to the log, and the open polls that wait for changes.

Calls decide at once, in the order in which they come; their records are appended in that order, one batch under way,
with acks=all. An answer waits until everything that it may show is stored.
Invariants: (1) the records of one call are in one batch, so that a crash leaves all of them or none; (2) after a failed
append the core may be ahead of the log: this object is dropped, and the next call replays the log.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from engine.runtime.loop_waits import loop_waits
from engine.runtime.tasks import in_background
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.errors import CoordinatorMoved
from gateway.groups.core.values import Now, Row, TopicSource
from gateway.links.link import Busy
from replication.replica.acks import Acks
from replication.replica.replicas import AnyReplica

PENDING_ROWS_MAX = 200_000  # of calls whose records wait for the disk: some 40 MB

T = TypeVar("T")
Member = tuple[str, str]  # group and member id


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
        self._pending: list[Row] = []
        self._sequence = self._stored = 0
        self._storing: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._watching: defaultdict[Member, set[asyncio.Future[bool]]] = defaultdict(set)

    def __repr__(self) -> str:
        return f"Hosted({self.partition.name}, {self.coordinator}, stored={self._stored} of {self._sequence})"

    def now(self) -> Now:
        return Now(self._clock.steady_ms(), self._clock.now_ms())

    def decide(self, call: Callable[[Coordinator, Now, TopicSource], T]) -> tuple[T, int]:
        """Makes a call on the core. Returns its answer, and what must be stored before it leaves; 0: nothing.

        Raises the errors of the call, and Busy.
        """
        if len(self._pending) > PENDING_ROWS_MAX:
            raise Busy("too many changes of groups wait for the disk")
        try:
            answer = call(self.coordinator, self.now(), self._source)
        finally:
            rows = self.coordinator.take_rows()
            self._wake()
            if rows:
                self._append(rows)
        return answer, 0 if self._stored == self._sequence else self._sequence

    async def stored(self, sequence: int) -> None:
        """Waits until the records up to `sequence` are committed. Raises the error of their append."""
        if self.error is not None:
            raise self.error
        if sequence > self._stored:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._storing.append((sequence, future))
            await future

    async def changed(self, group: str, member_id: str, version: int, wait_ms: int) -> bool:
        """Waits until a member's assignment is of another version; False: it was not in time. Keeps its session."""
        if self.coordinator.wait(group, member_id, self.now(), 1) != version:
            self.coordinator.wait(group, member_id, self.now(), -1)
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._watching[group, member_id].add(future)
        try:
            return await loop_waits().deadlines.done_by(loop.time() + wait_ms / 1000, future)
        except TimeoutError:
            return False
        finally:
            self.coordinator.wait(group, member_id, self.now(), -1)
            if watching := self._watching.get((group, member_id)):
                watching.discard(future)
                if not watching:
                    del self._watching[group, member_id]

    def close(self, error: EngineError) -> None:
        """Ends all waits: this coordinator was replaced, or its records could not be stored."""
        self.error = error
        waits: list[asyncio.Future[None] | asyncio.Future[bool]] = [future for _, future in self._storing]
        waits += [future for watching in self._watching.values() for future in watching]
        for future in waits:
            if not future.done():
                future.set_exception(error)
                future.exception()  # its waiter may have left
        self._storing.clear()
        self._watching.clear()

    def _append(self, rows: Sequence[Row]) -> None:
        self._pending += rows
        self._sequence += 1
        if self._writer is None:
            self._writer = in_background(self._write(), "storing the records of groups", of=self.partition.name)

    async def _write(self) -> None:
        try:
            while self._pending and self.error is None:
                rows, self._pending, sequence = self._pending, [], self._sequence
                now_ms = self._clock.now_ms()
                batch = record_batch.encode([(now_ms, row.key, row.value, []) for row in rows])
                await self._replica.produce(batch, Acks.ALL, self._timeout_ms)
                self._stored = sequence
                while self._storing and self._storing[0][0] <= sequence:
                    _, future = self._storing.popleft()
                    if not future.done():
                        future.set_result(None)
        except EngineError as error:
            self.close(CoordinatorMoved(f"the records of groups were not stored: {error}"))
        except Exception as error:
            self.close(CoordinatorMoved(f"the records of groups were not stored: {error}"))
            raise
        finally:
            self._writer = None

    def _wake(self) -> None:
        for member in self.coordinator.woken:
            for future in self._watching.get(member, ()):
                if not future.done():
                    future.set_result(True)
        self.coordinator.woken.clear()
