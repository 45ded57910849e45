"""The producer: collects records into batches per partition and sends each batch in one request.

Driver of client/batch.py; how a record becomes a line is client/lines.py, when to repeat is client/attempts.py.

Guarantees, with the default options: the records that one task sends to one partition are stored in that order;
every record gets a result; a record that got a position is stored as `acks` says. Not guaranteed: a record may be
stored twice, because a request that failed ambiguously (reset connection, 504) is repeated and this release has no
producer ids. Set `retry_ambiguous=False` to have those reported instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from client import api
from client.attempts import Attempts
from client.batch import Batch, PartitionQueue, Placed
from client.blame import cut_for
from client.buffer import SendBuffer
from client.delivery import Delivery, position_in
from client.errors import ClientClosed, ClientError, ProblemError
from client.exchange import Answer, Request, not_a_node
from client.lines import Headers, Line, Timestamp, line_of
from client.options import ClientOptions
from client.outgoing import OutgoingRecord, Preparation
from client.packing import encoding_headers, packed
from client.partitioners import Choose
from client.sticky import StickyPartition
from client.tally import ProducerStatistics, Tally
from client.topics import TopicPartitions

_REMEMBERED_FAILURES = 1000  # batches that failed and that no Delivery has shown; the first is what flush() raises


class Producer:
    """Made by Client.producer(). Use it from one event loop; any number of tasks may send."""

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
        self._is_prepared = preparation.is_needed
        self._buffer = SendBuffer(options.buffer_bytes, options.buffer_full)
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._unsettled: set[Batch] = set()
        self._senders: set[asyncio.Task[None]] = set()
        self._failed: deque[Batch] = deque(maxlen=_REMEMBERED_FAILURES)
        self._headers = encoding_headers(options.compression)
        self._query: dict[str, str | int] = {"acks": options.acks, "timeout_ms": options.ack_timeout_ms}
        self._tally = Tally()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Producer{' closed' if self._is_closed else ''} {self.statistics()}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if error is None else self.abort())

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
        """Hand over a record; waits only for room in the buffer. Await the Delivery to learn its position.

        Bytes are stored as they are; anything else as its JSON; None is a tombstone. Text keys are stored as UTF-8.
        Without a partition the key decides, as in Kafka; without a key the least busy partition gets a batch's worth.
        """
        if self._is_prepared:
            record = OutgoingRecord(topic, value, key, headers, timestamp, partition)
            return await self.send_line(*self.preparation.prepare(record))
        return await self.send_line(topic, line_of(value, key, headers, timestamp), key, partition)

    async def send_line(
        self, topic: str, line: Line, key: Any, partition: int | None, record: OutgoingRecord | None = None
    ) -> Delivery:
        """As send(), for a record whose line is made already; the key only chooses the partition."""
        if partition is None:
            count = self._topics.known(topic) or await self._topics.learn(topic)
            partition = self._choose(topic, key, count)
        size_bytes = len(line[0]) + 1
        if not self._buffer.take_nowait(size_bytes):
            await self._buffer.take(size_bytes)
        if self._is_closed:
            self._buffer.give_back(size_bytes)
            raise ClientClosed("the producer is closed")
        if partition is None:
            delivery = self._append_sticky(topic, count, line, size_bytes)
        else:
            delivery = self._append(self._queue(topic, partition), line, size_bytes)
        if record is not None:
            delivery.batch.keep(record)
        return delivery

    async def send_many(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None, partition: int | None = None
    ) -> list[Delivery]:
        """Hand over many records, keys pairwise with values. As send() for each."""
        send = self.send
        if keys is None:
            return [await send(topic, value, partition=partition) for value in values]
        pairs = zip(values, keys, strict=True)
        return [await send(topic, value, key=key, partition=partition) for value, key in pairs]

    async def flush(self) -> None:
        """Wait until every record handed over before the call has its result.

        Raises the first failure that no Delivery has shown yet, so that a caller who awaits none of them cannot lose
        records without noticing.
        """
        for queue in self._queues.values():
            queue.close_batch()
            self._start_senders(queue)
        for batch in list(self._unsettled):
            await batch.wait_settled()
        self._raise_unseen_failure()

    async def close(self) -> None:
        """Refuse further records, and flush. Raises like flush()."""
        self._is_closed = True
        await self.flush()

    async def abort(self) -> None:
        """Stop at once. Records without a result fail with ClientClosed; those under way may still be stored."""
        self._is_closed = True
        for queue in self._queues.values():
            queue.close_batch()
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        for batch in list(self._unsettled):
            self._settle(batch, ClientClosed("the producer was stopped before this record was sent"))

    def statistics(self) -> ProducerStatistics:
        return self._tally.shown(self._attempts.requests, self._attempts.retries, self._buffer.used_bytes)

    def _append_sticky(self, topic: str, count: int, line: Line, size_bytes: int) -> Delivery:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyPartition([self._queue(topic, number) for number in range(count)])
        queue = sticky.queue_for(size_bytes)
        delivery = self._append(queue, line, size_bytes)
        sticky.batch = delivery.batch
        return delivery

    def _append(self, queue: PartitionQueue, line: Line, size_bytes: int) -> Delivery:
        """Put a record, for which the buffer has given room, into its batch."""
        batch = queue.open_batch
        if batch is None or batch.size_bytes + size_bytes > queue.batch_bytes:
            batch = self._new_batch(queue)
        grown_bytes = batch.add(line)
        if grown_bytes != size_bytes:  # the batch changed its form, or this line did
            self._buffer.grow(grown_bytes - size_bytes)
        return Delivery(batch, len(batch.lines) - 1)

    def _new_batch(self, queue: PartitionQueue) -> Batch:
        loop = asyncio.get_running_loop()
        batch = queue.new_batch(loop.time())
        self._unsettled.add(batch)
        loop.call_later(self._options.linger_ms / 1000, self._on_linger_over, queue, batch)
        self._start_senders(queue)
        return batch

    def _on_linger_over(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.mark_due(batch)
        self._start_senders(queue)

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(topic, partition, self._options.batch_bytes)
        return queue

    def _start_senders(self, queue: PartitionQueue) -> None:
        if queue.senders < self._options.in_flight_max and queue.has_ready():
            queue.senders += 1
            task = asyncio.get_running_loop().create_task(self._send_from(queue))
            self._senders.add(task)
            task.add_done_callback(self._senders.discard)

    async def _send_from(self, queue: PartitionQueue) -> None:
        """Send batches of one partition, one after the other, until none is ready."""
        try:
            while (batch := queue.take()) is not None:
                await self._deliver(queue, batch)
        finally:
            queue.senders -= 1

    async def _deliver(self, queue: PartitionQueue, batch: Batch) -> None:
        request = self._request(batch)
        try:
            answer = await self._attempts.send(request, batch.created_at + self._options.delivery_timeout_ms / 1000)
            self._settle(batch, _placed(answer, len(batch.lines)))
        except ProblemError as problem:
            self._on_refused(queue, batch, problem)
        except ClientError as error:
            self._settle(batch, error)
        except BaseException:  # cancelled, or a mistake of ours: no record may be left without a result
            self._settle(batch, ClientClosed("stopped while the record was being sent", no_side_effects=False))
            raise

    def _request(self, batch: Batch) -> Request:
        query = self._query | {"ndjson": "values" if batch.is_plain else "records"}
        plain = batch.body()
        body = packed(plain, self._options.compression)
        waited_s = asyncio.get_running_loop().time() - batch.created_at
        self._tally.on_sent(waited_s, len(plain), len(body))
        return api.produce(
            batch.topic, body, api.NDJSON_TYPE, partition=batch.partition, query=query, headers=self._headers
        )

    def _on_refused(self, queue: PartitionQueue, batch: Batch, problem: ProblemError) -> None:
        """Fail the batch, or only the record that is to blame for the refusal."""
        cut = cut_for(problem, len(batch.lines))
        if cut is None:
            self._settle(batch, problem)
            return
        self._unsettled.discard(batch)
        self._unsettled.update(batch.split(cut.starts))
        queue.put_back([part for rank, part in batch.parts if rank != cut.culprit])
        for rank, part in batch.parts:
            if rank == cut.culprit:
                self._settle(part, problem)

    def _settle(self, batch: Batch, outcome: Placed | ClientError) -> None:
        count = len(batch.lines)
        if isinstance(outcome, ClientError):
            self._tally.records_failed += count
            self._failed.append(batch)
        else:
            self._tally.on_acknowledged(count, asyncio.get_running_loop().time() - batch.created_at)
        self._unsettled.discard(batch)
        self._queue(batch.topic, batch.partition).forget(batch)
        kept = batch.settle(outcome)
        self._buffer.give_back(batch.size_bytes)
        if kept:
            self._tell_interceptors(batch, kept)

    def _tell_interceptors(self, batch: Batch, records: list[OutgoingRecord]) -> None:
        """A mistake of an interceptor goes to the loop's handler of exceptions: no caller waits here to be told."""
        for rank, record in enumerate(records):
            for error in self.preparation.tell(record, batch.failure or position_in(batch, rank)):
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "an interceptor failed in on_delivery", "exception": error}
                )

    def _raise_unseen_failure(self) -> None:
        failed, self._failed = self._failed, deque(maxlen=_REMEMBERED_FAILURES)
        for batch in failed:
            if not batch.is_failure_seen:
                batch.outcome()


def _placed(answer: Answer, count: int) -> Placed:
    """Where the one partition of the request put its records."""
    try:
        (result,) = answer.json()["results"]
        base_offset, timestamp, stored = result["base_offset"], result["timestamp"], result["count"]
    except (KeyError, TypeError, ValueError) as error:
        raise not_a_node(answer) from error
    assert stored == count, f"{stored} records acknowledged, {count} sent"
    return Placed(base_offset, timestamp)
