"""The producer: collects records into batches per partition and sends each batch in one request.

Driver of penstock/producer/batch.py. penstock/producer/lines.py encodes records as lines. The lane of a partition
decides when its batches are sent and retried: penstock/producer/sequenced_lane.py, or penstock/producer/plain_lane.py
without sequence numbers.

Guarantees, with the default options: the records that one task sends to one partition are stored in that order, each
once; every record gets a result; a record that got a position is stored as `acks` says. A record that failed with
`no_side_effects` false may be stored nevertheless, but never twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from penstock.admin.topics import TopicPartitions
from penstock.errors import ClientClosed
from penstock.options import ClientOptions
from penstock.producer.batch import Batch, Delivery, PartitionQueue
from penstock.producer.buffer import SendBuffer
from penstock.producer.dispatch import Dispatch
from penstock.producer.lines import Headers, Line
from penstock.producer.partitioners import Choose, StickyPartition
from penstock.producer.plain_lane import PlainLane
from penstock.producer.preparation import OutgoingRecord, Preparation, with_keys
from penstock.producer.producer_ids import ProducerIds
from penstock.producer.sequenced_lane import SequencedLane
from penstock.producer.statistics import AcceptedCount, ProducerStatistics
from penstock.records import Timestamp
from penstock.transport.attempts import Attempts

Lane = SequencedLane | PlainLane


class Producer:
    """Sends records; made by Client.producer(). Use it from one event loop; any number of tasks may send."""

    def __init__(
        self,
        attempts: Attempts,
        topics: TopicPartitions,
        options: ClientOptions,
        choose: Choose,
        preparation: Preparation,
    ) -> None:
        self._attempts = attempts
        self._topics = topics
        self._options = options
        self._choose = choose
        self.preparation = preparation
        self._buffer = SendBuffer(options.buffer_bytes, options.buffer_full)
        self._dispatch = Dispatch(attempts, options, self._buffer, preparation)
        self._ids = ProducerIds(attempts, options.delivery_timeout_ms)
        self._is_sequenced = options.idempotence != "off" and options.acks != "0"  # acks=0: no answer reports a gap
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Producer{' closed' if self._is_closed else ''} {self.statistics()}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if error is None else self.abort())

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Queues a record. Waits only for room in the buffer; await the Delivery to get its position.

        Bytes are stored unchanged; other values are stored as JSON; None is a tombstone. Text keys are stored as UTF-8.
        Without a partition the key decides, as in Kafka; without a key the least busy partition gets a batch of
        records.
        """
        return await self.send_line(*self.preparation.prepare(topic, value, key, headers, timestamp, partition))

    async def send_line(
        self, topic: str, line: Line, key: Any, partition: int | None, record: OutgoingRecord | None = None
    ) -> Delivery:
        """Sends a record whose line is already made; the key only chooses the partition. Raises ClientClosed."""
        if partition is None:
            count = self._topics.cached_count(topic) or await self._topics.load(topic)
            partition = self._choose(topic, key, count)
        size_bytes = len(line[0]) + 1
        if not self._buffer.take_nowait(size_bytes):
            await self._buffer.take(size_bytes)
        if self._is_closed:
            self._buffer.release(size_bytes)
            raise ClientClosed("the producer is closed")
        if partition is None:
            delivery = self._append_sticky(topic, count, line, size_bytes)
        else:
            delivery = self._append(self._lane(topic, partition).queue, line, size_bytes)
        if record is not None:
            delivery.batch.keep(record)
        return delivery

    def reject(self, topic: str, error: Exception) -> Delivery:
        """Returns a Delivery that raises what send_line() raised, for a caller that cannot wait for send_line()."""
        return self._dispatch.reject(topic, error)

    async def send_many(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None, partition: int | None = None
    ) -> list[Delivery]:
        """Queues many records, keys pairwise with values, each as send() does."""
        send = self.send
        return [await send(topic, value, key=key, partition=partition) for value, key in with_keys(values, keys)]

    async def flush(self) -> None:
        """Waits until every record sent before the call has its result.

        Raises the first failure that no Delivery has shown, so a caller that awaits no Delivery cannot lose records
        unnoticed.
        """
        for lane in self._lanes.values():
            lane.queue.close_batch()
            lane.wake()
        await self._dispatch.wait_complete()

    async def close(self) -> None:
        """Rejects further records, and flushes. Raises like flush()."""
        self._is_closed = True
        await self.flush()

    async def abort(self) -> None:
        """Stops at once. Records without a result fail with ClientClosed; those in flight may still be stored."""
        self._is_closed = True
        for lane in self._lanes.values():
            lane.queue.close_batch()
            lane.stop()
        await self._dispatch.stop()
        for batch in self._dispatch.incomplete():
            error = ClientClosed("the producer was stopped before this record was sent")
            self._dispatch.complete(self._lane(batch.topic, batch.partition).queue, batch, error)

    def take_accepted_counts(self) -> list[AcceptedCount]:
        """Returns the records acknowledged since the last call, for `penstock ingest audit`."""
        return self._dispatch.tally.take_accepted()

    def statistics(self) -> ProducerStatistics:
        return self._dispatch.tally.snapshot(self._attempts.requests, self._attempts.retries, self._buffer.used_bytes)

    def _append_sticky(self, topic: str, count: int, line: Line, size_bytes: int) -> Delivery:
        sticky = self._sticky.get(topic)
        if sticky is None or sticky.count != count:
            queues = [self._lane(topic, number).queue for number in range(count)]
            sticky = self._sticky[topic] = StickyPartition(queues)
        queue = sticky.queue_for(size_bytes)
        delivery = self._append(queue, line, size_bytes)
        sticky.batch = delivery.batch
        return delivery

    def _append(self, queue: PartitionQueue, line: Line, size_bytes: int) -> Delivery:
        """Adds a record to its batch. The buffer has already given room for it."""
        batch = queue.open_batch
        if batch is None or batch.size_bytes + size_bytes > queue.batch_bytes:
            batch = self._new_batch(self._lane(queue.topic, queue.partition))
        grown_bytes = batch.add(line)
        if grown_bytes != size_bytes:  # the batch changed its form, or this line did
            self._buffer.grow(grown_bytes - size_bytes)
        return Delivery(batch, len(batch.lines) - 1)

    def _new_batch(self, lane: Lane) -> Batch:
        loop = asyncio.get_running_loop()
        self._topics.refresh_if_stale(lane.queue.topic, loop.time())
        batch = lane.queue.new_batch(loop.time())
        self._dispatch.on_opened(batch)
        loop.call_later(self._options.linger_ms / 1000, self._on_linger_over, lane, batch)
        lane.wake()
        return batch

    def _on_linger_over(self, lane: Lane, batch: Batch) -> None:
        lane.queue.mark_due(batch)
        lane.wake()

    def _lane(self, topic: str, partition: int) -> Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            queue = PartitionQueue(topic, partition, self._options.batch_bytes)
            lane = (
                SequencedLane(queue, self._dispatch, self._ids)
                if self._is_sequenced
                else PlainLane(queue, self._dispatch)
            )
            self._lanes[topic, partition] = lane
        return lane
