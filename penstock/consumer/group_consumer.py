"""The consumer of a group: returns the records of the partitions that its member has.

Driver of penstock/consumer/group_member.py. Asking for the next record finishes the last one; asking for the next
delivery commits the last one. While the caller works, heartbeats keep the membership.
Invariants: (1) no record is committed before it is finished, except by commit(); (2) the next delivery is asked for
only when all records of the last one are finished; (3) records that were not committed are delivered again; (4) a
record that failed is not committed, nor what is behind it in its partition.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, Self

from penstock.closing import AsyncClosing
from penstock.consumer.delivery import Delivery, Positions, TopicPartition
from penstock.consumer.group_member import FailedRecord, GroupMember
from penstock.errors import ClientClosed, ClientError, ProblemError
from penstock.records import Record, with_deserializers

_ERROR_CHARACTERS = 1000  # that a node takes
_CLOSE_S = 5  # then the session ends by itself

Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]


class GroupEvents(NamedTuple):
    """Holds what is called when the assignment changes, before the next records are returned."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None


_NO_EVENTS = GroupEvents()


class GroupConsumer(AsyncClosing):
    """Returns records; made by Client.consumer(). `async for record` iterates; poll() returns lists: the fast way."""

    def __init__(
        self,
        member: GroupMember,
        poll_interval_ms_max: int = 300_000,
        events: GroupEvents = _NO_EVENTS,
        auto_commit_ms: int | None = None,
    ) -> None:
        self._member = member
        self._auto_commit_s = None if auto_commit_ms is None else auto_commit_ms / 1000
        self._commits: asyncio.Task[None] | None = None
        self._poll_interval_s_max = poll_interval_ms_max / 1000
        self._events = events
        self._delivery: Delivery | None = None
        self._records: list[Record] = []  # of the delivery
        self._taken = 0  # how many of them were handed out
        self._finished = 0
        self._failed: dict[TopicPartition, FailedRecord] = {}  # of the delivery
        self._read: Positions = {}  # of earlier deliveries that no token commits
        self._problem: ProblemError | None = None
        self._assigned: set[TopicPartition] = set()
        self._seen = (0, 0, 0)  # joins, epoch and number of partitions when `_assigned` was asked for
        self._joins = 0
        self._polling: asyncio.Task[Delivery] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._is_started = self._is_closed = False

    def __repr__(self) -> str:
        return f"<GroupConsumer {self._member!r} taken={self._taken}/{len(self._records)}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        return self.next_nowait() or await self.next()

    @property
    def member_id(self) -> str:
        return self._member.terms.member_id

    @property
    def is_auto_commit(self) -> bool:
        return self._member.terms.auto_commit

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics of the last delivery. A topic that is deleted and created again has another one."""
        return {} if self._delivery is None else self._delivery.topic_ids

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._member.paused)

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads no more of these partitions, from the next delivery on. The member keeps them."""
        self._member.paused |= {TopicPartition(*partition) for partition in partitions}

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads these partitions again, from the next delivery on."""
        self._member.paused -= {TopicPartition(*partition) for partition in partitions}

    def next_nowait(self) -> Record | None:
        """Returns the next record that is already here, or None."""
        records, index = self._records, self._taken
        if self._failed:
            index = self._taken = self._index_past_failed(index)
        if index >= len(records):
            return None
        self._finished, self._taken = index, index + 1
        return records[index]

    async def next(self) -> Record:
        """Returns the next record. Waits for one."""
        while (record := self.next_nowait()) is None:
            await self.wait()
        return record

    async def wait(self, timeout_ms: int | None = None) -> None:
        """Waits for a delivery, which next_nowait() hands out. Call it only when all records are finished."""
        self._taken = self._index_past_failed(self._taken) if self._failed else self._taken
        if self._taken >= len(self._records):
            await self._next_delivery(timeout_ms)

    async def poll(self, timeout_ms: int | None = None, *, max_records: int | None = None) -> list[Record]:
        """Returns records of the member's partitions; [] if none arrived in time. The next call finishes them."""
        await self.wait(timeout_ms)
        begin = self._finished = self._taken
        self._taken = len(self._records) if max_records is None else min(begin + max_records, len(self._records))
        records = self._records[begin : self._taken]
        return [record for record in records if _slot(record) not in self._failed] if self._failed else records

    def fail(self, record: Record, error: str = "") -> None:
        """Reports that a record could not be processed, with the next delivery.

        It comes again then, with the later records of its partition: leave those alone that you have already. After
        the group's `deliveries_max` failures it goes to its `dead_letter_topic`. Raises ValueError without auto-commit.
        """
        if not self.is_auto_commit:
            raise ValueError("with auto_commit=False commit up to the record, and start again from there")
        slot, before = _slot(record), self._failed.get(_slot(record))
        if before is None or record.offset < before.offset:
            self._failed[slot] = FailedRecord(*slot, record.offset, error[:_ERROR_CHARACTERS])

    async def run(
        self,
        work: Callable[[Record], Awaitable[None]],
        *,
        idle_ms: int | None = None,
        is_reporting_failures: bool = False,
    ) -> None:
        """Calls `work` for every record: one task for each partition, which takes its records in order.

        A delivery is committed when all of its records are finished. An error of `work` cancels the other tasks and is
        raised, and the delivery comes again; with `is_reporting_failures` it is reported by fail(), and the run goes
        on. Returns after `idle_ms`, or `fetch_wait_ms` if that is shorter, without records; with None it runs until it
        is cancelled.
        """
        fail = self.fail if is_reporting_failures else None
        while (records := await self.poll(idle_ms)) or idle_ms is None:
            async with asyncio.TaskGroup() as tasks:
                for part in by_partition(records):
                    tasks.create_task(_process_in_order(work, part, fail))
            if records and not self.is_auto_commit:
                await self.commit()

    async def start(self) -> None:
        """Prepares the group for commits by hand. The first read calls it too, and joins."""
        if not self._is_started and not self._member.terms.auto_commit:
            await self._member.commit_by_hand()
        self._is_started = True

    async def commit(self) -> bool:
        """Commits all records handed out so far; durable afterwards.

        Returns False if some of their partitions are another member's by now, which gets these records.
        """
        self._finished = self._taken
        return await self._commit_finished()

    async def close(self, *, leave: bool = True) -> None:
        """Commits the finished records, unless commits are by hand, and leaves the group. Dropped records come again.

        Without `leave` the member keeps its partitions for its session: for a restart with the same member id.
        """
        await self.stop()
        if leave:
            await self.leave()

    async def stop(self) -> None:
        """Do what close() does, except leaving."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._end_heartbeats()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        if self._member.terms.auto_commit:
            await _wait_bounded(self._commit_finished())
        self._records = self._records[: self._taken]
        await self._reassign(set())

    async def abort(self) -> None:
        """Stops at once without a request, as a crash would: records that are not committed are delivered again."""
        self._is_closed = True
        self._records = self._records[: self._taken]
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await self._end_heartbeats()

    async def leave(self) -> None:
        """Leaves the group. Without an answer in time the session ends by itself."""
        if self._is_started:
            await _wait_bounded(self._member.leave())

    async def _next_delivery(self, timeout_ms: int | None) -> None:
        """Finishes the records of the last delivery and waits for the next; a poll that is not over goes on."""
        self._finished = self._taken
        await self._end_heartbeats()
        await self._raise_problem()
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
        if self._polling is None:
            await self.start()
            failed = tuple(self._failed.values())
            self._polling = asyncio.get_running_loop().create_task(self._member.poll(failed))
        done, _ = await asyncio.wait([self._polling], timeout=None if timeout_ms is None else timeout_ms / 1000)
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
        if done:
            polling, self._polling = self._polling, None
            await self._take(polling.result())

    async def _take(self, delivery: Delivery) -> None:
        if self._delivery is not None and not self._member.terms.auto_commit:
            self._read |= self._delivery.positions(self._finished)
            for topic in _recreated_topics(
                self._delivery.topic_ids, delivery.topic_ids
            ):  # it was deleted and created again
                self._read = {slot: at for slot, at in self._read.items() if slot.topic != topic}
        if self._joins != self._member.joins:  # the membership had ended, and positions are the committed ones
            self._joins = self._member.joins
            self._read, self._delivery = {}, None
            await self._reassign(set())
        self._delivery, self._records, self._failed = delivery, delivery.records(), {}
        if self._member.terms.deserializers is not None:
            with_deserializers(self._records, self._member.terms.deserializers)
        self._taken = self._finished = 0
        self._member.note_read({part.topic for part in delivery.partitions if not part.problem})
        for topic in delivery.deleted_topics():
            self._member.note_deleted(topic)
        problem = delivery.problem()
        self._problem = problem if problem is not None and not problem.retryable else None
        if not delivery.assigned and not self._records:
            await self._member.check_topics()
        await self._note_assignment(delivery)
        if self._records:
            self._heartbeats = asyncio.get_running_loop().create_task(self._keep_alive())
            if self._auto_commit_s is not None:
                self._commits = asyncio.get_running_loop().create_task(self._commit_often(self._auto_commit_s))
        else:
            await self._raise_problem()

    def _index_past_failed(self, index: int) -> int:
        """Returns the index of the next record whose partition has not failed."""
        while index < len(self._records) and _slot(self._records[index]) in self._failed:
            index += 1
        return index

    async def _commit_finished(self) -> bool:
        positions = dict(self._read)
        if self._delivery is not None:
            positions |= self._delivery.positions(self._finished)
        for slot in self._failed.keys() & positions.keys():
            positions[slot] = min(positions[slot], self._failed[slot].offset)
        if not positions:
            return True
        is_complete = await self._member.commit(positions)
        self._read = {slot: at for slot, at in self._read.items() if positions.get(slot, -1) < at}
        return is_complete

    async def _raise_problem(self) -> None:
        """Raises the problem of a partition after the records of the others, and go on with the next call."""
        problem, self._problem = self._problem, None
        if problem is not None:
            if self._member.terms.auto_commit:
                await self._commit_finished()
            raise problem

    async def _note_assignment(self, delivery: Delivery) -> None:
        """Asks for the assignment if it has changed. A partition that the delivery has is not revoked yet."""
        seen = (self._joins, delivery.member_epoch, delivery.assigned)
        if seen == self._seen or self._events == _NO_EVENTS:
            return
        assigned = await self._member.heartbeat()
        if assigned is not None:  # otherwise the next poll joins
            self._seen = seen
            await self._reassign(set(assigned) | delivery.slots())

    async def _reassign(self, assigned: set[TopicPartition]) -> None:
        before, self._assigned = self._assigned, assigned
        for callback, changed in (
            (self._events.on_revoked, before - assigned),
            (self._events.on_assigned, assigned - before),
        ):
            if callback is not None and changed and (result := callback(sorted(changed))) is not None:
                await result

    async def _keep_alive(self) -> None:
        """Sends heartbeats while the caller works. Drops what is left of the delivery if the membership has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_interval_s_max):
                is_member = True
                while is_member:
                    await asyncio.sleep(self._member.heartbeat_ms / 1000)
                    with contextlib.suppress(ClientError):  # the next heartbeat, or the poll, reports what persists
                        is_member = await self._member.heartbeat() is not None
                self._member.forget()
                self._delivery, self._records, self._taken, self._finished = None, [], 0, 0

    async def _commit_often(self, interval_s: float) -> None:
        """Commits the finished records of a long delivery while the caller works on the others."""
        committed = 0
        while True:
            await asyncio.sleep(interval_s)
            finished = self._finished
            if finished > committed:
                with contextlib.suppress(ClientError):  # the next commit has them too
                    await self._commit_finished()
                    committed = finished

    async def _end_heartbeats(self) -> None:
        running = [task for task in (self._heartbeats, self._commits) if task is not None]
        self._heartbeats = self._commits = None
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _recreated_topics(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [topic for topic, topic_id in after.items() if before.get(topic, topic_id) != topic_id]


def by_partition(records: Iterable[Record]) -> list[list[Record]]:
    """Returns the records of each partition, in order."""
    parts: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        parts.setdefault((record.topic, record.partition), []).append(record)
    return list(parts.values())


async def _process_in_order(
    work: Callable[[Record], Awaitable[None]], records: Iterable[Record], fail: Callable[[Record, str], None] | None
) -> None:
    for record in records:
        try:
            await work(record)
        except Exception as error:
            if fail is None:
                raise
            fail(record, f"{type(error).__name__}: {error}")
            return


def _slot(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


async def _wait_bounded(work: Awaitable[object]) -> None:
    """Awaits for a bounded time, whatever becomes of it: records that are not committed are delivered again."""
    with contextlib.suppress(ClientError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await work
