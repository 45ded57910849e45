"""Delivers one subscription, at the leader of its group's partition.

One reader for each partition of its topics fills a window (core/window.py); one sender for each partition empties it,
as far as the concurrency and the rate of the subscription allow. Positions are committed to the group: at the latest
COMMIT_S after the answer that moved them.
Invariants: (1) nothing is committed before it was delivered or stored in the dead-letter topic; (2) after a reset or a
change of the definition the host stops this runner before anything else runs, so it commits nothing for the old one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from engine.errors import EngineError, OffsetAboveHighWatermark, OffsetBelowLogStart
from engine.format import batch as record_batch
from engine.runtime.tasks import BackgroundTasks
from gateway.fetch.partition_reads import FETCH_CALL, FILTERED_FETCH_CALL
from gateway.fetch.positions import FIND_OFFSETS
from gateway.fetch.record_json import Bounds, Undecodable, decode_stored
from gateway.fetch.request import FetchRequest
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.values import CommitCall, Now, Position, PushCall, ResetCall, Slot, TopicSource
from gateway.http.offload import Offload
from gateway.http.problems import Problem
from gateway.links.link import Busy
from gateway.routing.router import Router
from gateway.subscriptions.core.definition import Definition, decode, encode
from gateway.subscriptions.core.outcome import Outcome, is_last, pause_ms
from gateway.subscriptions.core.signature import signed_headers
from gateway.subscriptions.core.window import Batch, Item, Window
from gateway.subscriptions.dead_letters import DeadLetters, Reason
from gateway.subscriptions.delivery_span import DeliverySpan
from gateway.subscriptions.rendering import Pushed, message_id, render_delivery

if TYPE_CHECKING:  # it imports aiohttp, which few nodes need
    from gateway.subscriptions.sender import Sender

log = logging.getLogger("penstock.gateway")

GONE = 410  # the receiver wants no more deliveries (Standard Webhooks)
COMMIT_S = 0.1
READ_BYTES = 256 * 1024
WINDOW_BYTES = 1024 * 1024  # of a partition, before more is read
DECODED_BYTES_MAX = 64 * 1024 * 1024  # of one read: a batch that is larger is delivered as undecodable
WAIT_MS = 20_000
WINDOW_RECORDS = 2_000  # of a partition; a failing key that has as many later records stops its partition
ERROR_S = 1.0
DELIVERIES_KEPT = 20


class Attempt(NamedTuple):
    """One attempt, for people."""

    at_ms: int
    message_id: str
    topic: str
    partition: int
    offset: int
    record_count: int
    attempt: int
    status: int | None
    error: str
    latency_ms: int


@dataclass(slots=True)
class Counts:
    """Counts since this process began to run the subscription."""

    delivered: int = 0
    failed: int = 0
    dead_lettered: int = 0
    in_flight: int = 0

    def add(self, other: Counts) -> None:
        """Adds what has ended."""
        self.delivered += other.delivered
        self.failed += other.failed
        self.dead_lettered += other.dead_lettered


class Means(NamedTuple):
    """The parts of a process that runners use."""

    router: Router
    offload: Offload
    sender: Sender
    dead_letters: DeadLetters
    random: Random
    shown_to: Callable[[str, str], str]  # the name of a topic, as the owner of a subscription with this name says it


class Runner:
    """One subscription while this process leads the partition of its group."""

    def __init__(self, hosted: Hosted, group: str, definition: Definition, resets: int, means: Means) -> None:
        self.definition = definition
        self.resets = resets
        self.hosted = hosted
        self.counts = Counts()
        self.attempts: deque[Attempt] = deque(maxlen=DELIVERIES_KEPT)
        self.last_error = ""
        self.missing: tuple[str, ...] = ()  # topics that were deleted
        self.group = group
        self.means = means
        self.tasks = BackgroundTasks()
        self._lanes: dict[Slot, _Lane] = {}
        self.slots = asyncio.Semaphore(definition.delivery.concurrency_max)
        self.moved = asyncio.Event()  # a window may have moved since the last commit
        self._next_send_s = 0.0
        self.tasks.start(self._commit_often(), "committing deliveries", of=group)

    def __repr__(self) -> str:
        return f"Runner({self.group}, {self.counts})"

    def follow(self, places: dict[Slot, str]) -> None:
        """Begins to deliver partitions that are new among the given ones; their values are the topics' ids."""
        group = self.hosted.coordinator.groups[self.group]
        for slot, topic_id in places.items():
            if slot in self._lanes:
                continue
            row, committed = group.topics.get(slot.topic), group.offsets.get(slot)
            is_same = row is not None and row.topic_id == topic_id  # else the position is of a deleted topic
            lane = _Lane(self, slot, topic_id, committed.offset if committed is not None and is_same else None)
            self._lanes[slot] = lane
            self.tasks.start(lane.read(), "reading for push", of=self.group)
            self.tasks.start(lane.deliver(), "delivering by push", of=self.group)

    def stop(self) -> None:
        """Stops at once. The next runner repeats requests whose answers were not read."""
        self.tasks.cancel()

    @property
    def places(self) -> list[tuple[Slot, str]]:
        """The partitions that it delivers, with the ids of their topics."""
        return [(slot, lane.topic_id) for slot, lane in self._lanes.items()]

    @property
    def waiting(self) -> int:
        """How many batches have failed and are not finished."""
        return sum(lane.window.failed for lane in self._lanes.values())

    async def _commit_often(self) -> None:
        while True:
            await self.moved.wait()
            await asyncio.sleep(COMMIT_S)
            self.moved.clear()
            moved = [lane for lane in self._lanes.values() if lane.window.committed > lane.committed]
            if not moved:
                continue
            positions = tuple(
                Position(lane.slot.topic, lane.topic_id, lane.slot.partition, lane.window.committed) for lane in moved
            )
            try:
                self.hosted.decide(partial(_commit, CommitCall(self.group, None, 0, positions)))
            except (EngineError, Busy) as error:
                self.last_error = str(error)
                self.moved.set()
                continue
            for lane, position in zip(moved, positions, strict=True):
                lane.committed = position.offset

    def pause(self, reason: str) -> None:
        """Stores that the subscription is paused; the host then ends this runner. No-op if it has been changed."""
        group = self.hosted.coordinator.groups.get(self.group)
        if group is None or group.definition is None or decode(group.definition) != self.definition:
            return
        paused = replace(self.definition, is_paused=True, pause_reason=reason)
        call = PushCall(self.group, encode(paused).decode(), (), group.definition)
        log.warning("a subscription is paused", extra={"subscription": self.group, "reason": reason})
        try:
            self.hosted.decide(lambda core, now, source: core.push(call, now, source))
        except (EngineError, Busy) as error:  # the next attempt is answered in the same way
            self.last_error = str(error)

    def note(self, attempt: Attempt) -> None:
        """Keeps an attempt for people."""
        self.attempts.append(attempt)

    async def wait_rate(self) -> None:
        """Waits until the rate allows one more request."""
        rate = self.definition.delivery.rate_per_second_max
        if rate is None:
            return
        now = asyncio.get_running_loop().time()
        at, self._next_send_s = max(now, self._next_send_s), max(now, self._next_send_s) + 1 / rate
        if at > now:
            await asyncio.sleep(at - now)


def _commit(call: CommitCall, core: Coordinator, now: Now, source: TopicSource) -> None:
    core.commit(call, now, source)


def _reset(call: ResetCall, core: Coordinator, now: Now, source: TopicSource) -> None:
    core.reset(call, now, source)


class _Lane:
    """One partition of a subscription."""

    def __init__(self, runner: Runner, slot: Slot, topic_id: str, offset: int | None) -> None:
        self.slot = slot
        self.topic_id = topic_id
        self.committed = 0 if offset is None else offset
        order = runner.definition.delivery.order
        self.window: Window[Pushed] = Window(order, self.committed, WINDOW_RECORDS, WINDOW_BYTES)
        self._runner = runner
        self._changed = asyncio.Event()

    @property
    def _subscription(self) -> str:
        return self._runner.group.partition(":")[2]

    def _shown(self, name: str) -> str:
        return self._runner.means.shown_to(self._subscription, name)

    async def read(self) -> None:
        """Fills the window."""
        while True:
            while not self.window.has_room:
                await self._wait(None)
            try:
                await self._read_once()
            except (EngineError, Problem) as error:
                if error.code == OffsetBelowLogStart.code:
                    await self._skip_deleted()
                    continue
                self._runner.last_error = str(error)
                if error.code == OffsetAboveHighWatermark.code:
                    self._lower(error)
                await asyncio.sleep(ERROR_S)

    async def deliver(self) -> None:
        """Sends the batches that may leave the window."""
        runner, records_max = self._runner, self._runner.definition.delivery.records_max
        while True:
            batch = self.window.take(self._now_ms(), records_max)
            if batch is None:
                await self._wait(self.window.due_ms)
                continue
            await runner.slots.acquire()
            await runner.wait_rate()
            runner.tasks.start(self._send(batch), "sending by push", of=runner.group)

    async def _read_once(self) -> None:
        definition, window = self._runner.definition, self.window
        request = FetchRequest(
            window.next_offset,
            None,
            None,
            READ_BYTES,
            None,
            1,
            WAIT_MS,
            None,
            "records",
            record_batch.MEDIA_TYPE,
            filters=definition.filters or UNSET,
        )
        router, (topic, number) = self._runner.means.router, self.slot
        call = FILTERED_FETCH_CALL if definition.filters else FETCH_CALL
        headers, body = await router.call(call, topic, number, request, wait_ms=WAIT_MS, topic_id=self.topic_id)
        assert isinstance(headers, dict), "a place is not asked for"
        next_offset = int(headers["Penstock-Next-Offset"])
        items = await self._runner.means.offload.in_thread(lambda: _items(body, window.next_offset, next_offset))
        window.add(items, next_offset)
        self._runner.moved.set()  # past records that no filter passed
        self._changed.set()

    def _lower(self, error: EngineError | Problem) -> None:
        """Resets a position above its log, which became shorter. The host then starts a runner that begins there."""
        runner, end = self._runner, msgspec.convert(error.members["high_watermark"], int)
        position = Position(self.slot.topic, self.topic_id, self.slot.partition, end)
        call = ResetCall(runner.group, (position,), force=True, resets=runner.resets)
        runner.hosted.decide(partial(_reset, call))

    async def _skip_deleted(self) -> None:
        offsets, _ = await self._runner.means.router.call(FIND_OFFSETS, *self.slot, None, topic_id=self.topic_id)
        self.window.add([], max(offsets["log_start"], self.window.next_offset))
        self._runner.moved.set()

    async def _send(self, batch: Batch[Pushed]) -> None:
        """Makes one attempt, and notes its outcome."""
        runner, definition = self._runner, self._runner.definition
        runner.counts.in_flight += 1
        try:
            records = [item.record for item in batch.items]
            source = f"/v1/topics/{self._shown(self.slot.topic)}/partitions/{self.slot.partition}"
            headers, body = render_delivery(records, definition.delivery.form, source)
            name = message_id(self.topic_id, self.slot.partition, records)
            now_ms = runner.hosted.now().wall_ms
            signed = signed_headers(definition.secrets, name, now_ms // 1000, body)
            span = DeliverySpan(records, self.slot, runner.group)
            outcome, _ = await runner.means.sender.send(
                "POST", definition.url, headers | signed | span.headers, body, definition.delivery.timeout_ms
            )
            span.end(outcome)
            runner.note(self._attempt(batch, name, now_ms, outcome))
            if outcome.is_delivered:
                runner.counts.delivered += len(records)
                self.window.finish(batch)
            else:
                await self._handle_failure(batch, outcome)
        except Exception as error:
            runner.last_error = f"{type(error).__name__}: {error}"
            self.window.fail(batch, self._now_ms() + definition.delivery.backoff_ms_max)
            raise
        finally:
            runner.counts.in_flight -= 1
            runner.slots.release()
            runner.moved.set()
            self._changed.set()

    async def _handle_failure(self, batch: Batch[Pushed], outcome: Outcome) -> None:
        runner, delivery = self._runner, self._runner.definition.delivery
        runner.counts.failed += 1
        runner.last_error = outcome.error
        if outcome.status == GONE:
            runner.pause(f"{outcome.error} (Gone), which pauses its subscription until it is resumed")
        elif is_last(delivery, batch.attempts + 1) and delivery.dead_letter_topic is not None:
            origin = Slot(self._shown(self.slot.topic), self.slot.partition)
            subscription = self._shown(self._subscription)
            reason = Reason(subscription, batch.attempts + 1, outcome.error, origin, self.topic_id)
            records = [item.record for item in batch.items]
            error = await runner.means.dead_letters.store(delivery.dead_letter_topic, records, reason)
            if not error:
                runner.counts.dead_lettered += len(records)
                self.window.finish(batch)
                return
            runner.last_error = error
        pause = pause_ms(delivery, batch.attempts + 1, outcome, runner.means.random.random())
        self.window.fail(batch, self._now_ms() + pause)

    def _attempt(self, batch: Batch[Pushed], name: str, now_ms: int, outcome: Outcome) -> Attempt:
        return Attempt(
            now_ms,
            name,
            *self.slot,
            batch.items[0].offset,
            len(batch.items),
            batch.attempts + 1,
            outcome.status,
            outcome.error,
            outcome.latency_ms,
        )

    async def _wait(self, due_ms: int | None) -> None:
        self._changed.clear()
        left_s = None if due_ms is None else max(0, due_ms - self._now_ms()) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._changed.wait()

    def _now_ms(self) -> int:
        return self._runner.hosted.now().steady_ms


def _items(data: bytes | bytearray, offset: int, next_offset: int) -> list[Item[Pushed]]:
    """Returns the records of stored batches."""
    bounds = Bounds(None, DECODED_BYTES_MAX, DECODED_BYTES_MAX)
    decoded = decode_stored(data, offset, next_offset, bounds, list)
    return [_item(record) for record in decoded.outs]


def _item(record: Pushed) -> Item[Pushed]:
    if isinstance(record, Undecodable):
        return Item(record.offset, None, 0, record)
    key = None if record.key is None else bytes(record.key)
    return Item(record.offset, key, len(key or b"") + len(record.value or b""), record)
