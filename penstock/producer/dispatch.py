"""The part that all lanes of a producer share: requests from batches, results for records, running tasks.

A lane (penstock/producer/plain_lane.py, penstock/producer/sequenced_lane.py) decides when a batch of its partition is
sent and retried; this file does not.
Invariant: every opened batch gets its result here, exactly once, or is split into batches that do.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple

from penstock.errors import ClientClosed, ClientError, DeliveryTimedOut, ProblemError
from penstock.options import ClientOptions
from penstock.producer.batch import Batch, BatchPosition, Delivery, PartitionQueue, position_in
from penstock.producer.buffer import SendBuffer
from penstock.producer.preparation import OutgoingRecord, Preparation
from penstock.producer.statistics import Tally
from penstock.transport import api
from penstock.transport.attempts import Attempts
from penstock.transport.compression import compress, encoding_headers
from penstock.transport.exchange import Answer, Request, not_a_node

_REMEMBERED_FAILURES = 1000  # failed batches that no Delivery has shown; flush() raises the first
# Problems caused by one record, or by the size of the batch. The batch is not stored, and other records can be sent.
_BLAMES_A_RECORD = frozenset(
    {
        "malformed_ndjson",
        "malformed_json",
        "json_too_complex",
        "invalid_body",
        "invalid_utf8",
        "unknown_field",
        "record_too_large",
    }
)
_BLAMES_THE_SIZE = frozenset({"batch_too_large", "body_too_large"})


_log = logging.getLogger(__name__)
_unconfirmed: set[Dispatch] = set()  # with records that wait for their result, or failures that flush() would raise


class Dispatch:
    def __init__(
        self, attempts: Attempts, options: ClientOptions, buffer: SendBuffer, preparation: Preparation
    ) -> None:
        self.attempts = attempts
        self.options = options
        self.tally = Tally()
        self._buffer = buffer
        self._preparation = preparation
        self._incomplete: set[Batch] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: deque[tuple[Batch, int]] = deque(maxlen=_REMEMBERED_FAILURES)  # and their records
        self._headers = encoding_headers(options.compression)
        self._query: dict[str, str | int] = {"acks": options.acks, "timeout_ms": options.ack_timeout_ms}

    def __repr__(self) -> str:
        return f"<Dispatch incomplete={len(self._incomplete)} tasks={len(self._tasks)}>"

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_opened(self, batch: Batch) -> None:
        self._incomplete.add(batch)
        _unconfirmed.add(self)

    def deadline(self, batch: Batch) -> float:
        """Returns the delivery deadline of a batch: loop time, in seconds."""
        return batch.created_at + self.options.delivery_timeout_ms / 1000

    def request(self, batch: Batch, headers: Mapping[str, str] = {}) -> Request:
        """Makes the request of a batch. Call it once per batch, however often the request is sent."""
        query = self._query | {"ndjson": "values" if batch.is_plain else "records"}
        plain = batch.body()
        body = compress(plain, self.options.compression)
        if not batch.is_sent:
            batch.is_sent = True
            self.tally.on_sent(asyncio.get_running_loop().time() - batch.created_at, len(plain), len(body))
        return api.produce(
            batch.topic,
            body,
            api.NDJSON_TYPE,
            partition=batch.partition,
            query=query,
            headers={**self._headers, **headers},
        )

    def split(self, queue: PartitionQueue, batch: Batch, problem: ProblemError) -> list[Batch]:
        """Fails a rejected batch, or only the record to blame. Returns the batches to send in its place."""
        split = split_for(problem, len(batch.lines))
        if split is None:
            self.complete(queue, batch, problem)
            return []
        self._incomplete.discard(batch)
        self._incomplete.update(batch.split(split.starts))
        for rank, part in batch.parts:
            if rank == split.culprit:
                self.complete(queue, part, problem)
        return [part for rank, part in batch.parts if rank != split.culprit]

    def complete(self, queue: PartitionQueue, batch: Batch, outcome: BatchPosition | ClientError) -> None:
        count = len(batch.lines)
        if isinstance(outcome, ClientError):
            self.tally.records_failed += count
            self._failed.append((batch, count))
        else:
            took_s = asyncio.get_running_loop().time() - batch.created_at
            self.tally.on_acknowledged(count, took_s, batch.topic, outcome.timestamp)
        self._incomplete.discard(batch)
        if not self._incomplete and not self._failed:
            _unconfirmed.discard(self)
        queue.release(batch)
        kept_records = batch.complete(outcome)
        self._buffer.release(batch.size_bytes)
        if kept_records:
            self._notify_interceptors(batch, kept_records)

    def reject(self, topic: str, error: Exception) -> Delivery:
        """Returns the Delivery of a record that no batch has taken. flush() raises its error unless it is shown."""
        batch = Batch(topic, -1, asyncio.get_running_loop().time())
        batch.complete(error)
        self._failed.append((batch, 1))
        _unconfirmed.add(self)
        return Delivery(batch, 0)

    async def wait_complete(self) -> None:
        """Waits for all batches opened before the call. Raises the first failure that no Delivery has shown."""
        for batch in list(self._incomplete):
            await batch.wait_complete()
        failed, self._failed = self._failed, deque(maxlen=_REMEMBERED_FAILURES)
        if not self._incomplete:
            _unconfirmed.discard(self)
        for batch, _ in failed:
            if not batch.is_failure_seen:
                batch.outcome()

    async def stop(self) -> None:
        """Cancels the requests in flight; each task gives its batch a result."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def unconfirmed_records(self) -> int:
        """Counts the records without an acknowledgement whose failure no Delivery has shown."""
        failed = sum(count for batch, count in self._failed if not batch.is_failure_seen)
        return failed + sum(len(batch.lines) for batch in self._incomplete)

    def incomplete(self) -> list[Batch]:
        return list(self._incomplete)

    def _notify_interceptors(self, batch: Batch, records: list[OutgoingRecord]) -> None:
        """Notifies the interceptors. Their errors go to the loop's exception handler, because no caller waits here."""
        for rank, record in enumerate(records):
            for error in self._preparation.notify(record, batch.failure or position_in(batch, rank)):
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "an interceptor failed in on_delivery", "exception": error}
                )


def position_of(answer: Answer, count: int) -> BatchPosition:
    """Returns the position from the answer for the request's one partition. Raises ProblemError if it is missing."""
    try:
        (result,) = answer.json()["results"]
        base_offset, timestamp, stored = result["base_offset"], result["timestamp"], result["count"]
    except (KeyError, TypeError, ValueError) as error:
        raise not_a_node(answer) from error
    assert stored == count, f"{stored} records acknowledged, {count} sent"
    return BatchPosition(base_offset, timestamp)


def stop_error() -> ClientClosed:
    return ClientClosed("stopped while the record was being sent", no_side_effects=False)


def not_sent_in_time() -> DeliveryTimedOut:
    return DeliveryTimedOut("not sent before the delivery timeout", last=None, no_side_effects=True)


class Split(NamedTuple):
    """Holds where to split a rejected batch: the ranks at which parts begin, and that of the failed part, if known."""

    starts: list[int]
    culprit: int | None


def split_for(problem: ProblemError, count: int) -> Split | None:
    """Returns how to continue with a rejected batch of `count` records; None if all of it fails.

    1. The problem names a line or a record: that record fails, the records before and after it are sent.
    2. It names none: the batch is halved, and halved again, until the culprit is alone.
    3. The size is to blame: the batch is halved as in 2, without a culprit.
    """
    blames_a_record = problem.code in _BLAMES_A_RECORD
    if count == 1 or not problem.no_side_effects or not (blames_a_record or problem.code in _BLAMES_THE_SIZE):
        return None
    record = problem.members.get("record")
    line = record + 1 if isinstance(record, int) else problem.members.get("line")
    if not (blames_a_record and isinstance(line, int) and 1 <= line <= count):
        return Split([0, count // 2], None)
    culprit = line - 1
    return Split(sorted({0, culprit, culprit + 1} - {count}), culprit)


def warn_of_lost_records(count: int) -> None:
    text = "the program ends, and %d records are not acknowledged: close the producer, or use it in a with block"
    _log.warning(text, count)


@atexit.register
def _warn_at_exit() -> None:
    """Warns of records that a program leaves behind that ends without flush() or close()."""
    for dispatch in _unconfirmed:
        if count := dispatch.unconfirmed_records():
            warn_of_lost_records(count)
