"""What the lanes of a producer share: requests from batches, results for records, the tasks that are under way.

A lane (penstock/producer/plain_lane.py, penstock/producer/sequenced_lane.py) decides when a batch of its partition is
sent and sent again; this file does not. Invariant: a batch that was opened gets its result here, exactly once, or is
split into such.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any

from penstock.errors import ClientClosed, ClientError, DeliveryTimedOut, ProblemError
from penstock.options import ClientOptions
from penstock.producer.batch import Batch, PartitionQueue, Placed
from penstock.producer.blame import cut_for
from penstock.producer.buffer import SendBuffer
from penstock.producer.delivery import position_in
from penstock.producer.outgoing import OutgoingRecord, Preparation
from penstock.producer.statistics import Tally
from penstock.transport import api
from penstock.transport.attempts import Attempts
from penstock.transport.compression import encoding_headers, packed
from penstock.transport.exchange import Answer, Request, not_a_node

_REMEMBERED_FAILURES = 1000  # batches that failed and that no Delivery has shown; the first is what flush() raises


class Dispatch:
    def __init__(
        self, attempts: Attempts, options: ClientOptions, buffer: SendBuffer, preparation: Preparation
    ) -> None:
        self.attempts = attempts
        self.options = options
        self.tally = Tally()
        self._buffer = buffer
        self._preparation = preparation
        self._unsettled: set[Batch] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: deque[Batch] = deque(maxlen=_REMEMBERED_FAILURES)
        self._headers = encoding_headers(options.compression)
        self._query: dict[str, str | int] = {"acks": options.acks, "timeout_ms": options.ack_timeout_ms}

    def __repr__(self) -> str:
        return f"<Dispatch unsettled={len(self._unsettled)} tasks={len(self._tasks)}>"

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_opened(self, batch: Batch) -> None:
        self._unsettled.add(batch)

    def deadline(self, batch: Batch) -> float:
        """Loop time, seconds."""
        return batch.created_at + self.options.delivery_timeout_ms / 1000

    def request(self, batch: Batch, headers: Mapping[str, str] = {}) -> Request:
        """To be made once for a batch, however often it is sent."""
        query = self._query | {"ndjson": "values" if batch.is_plain else "records"}
        plain = batch.body()
        body = packed(plain, self.options.compression)
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

    def cut(self, queue: PartitionQueue, batch: Batch, problem: ProblemError) -> list[Batch]:
        """Fail a refused batch, or only the record that is to blame; what is to be sent in its place."""
        cut = cut_for(problem, len(batch.lines))
        if cut is None:
            self.settle(queue, batch, problem)
            return []
        self._unsettled.discard(batch)
        self._unsettled.update(batch.split(cut.starts))
        for rank, part in batch.parts:
            if rank == cut.culprit:
                self.settle(queue, part, problem)
        return [part for rank, part in batch.parts if rank != cut.culprit]

    def settle(self, queue: PartitionQueue, batch: Batch, outcome: Placed | ClientError) -> None:
        count = len(batch.lines)
        if isinstance(outcome, ClientError):
            self.tally.records_failed += count
            self._failed.append(batch)
        else:
            self.tally.on_acknowledged(count, asyncio.get_running_loop().time() - batch.created_at)
        self._unsettled.discard(batch)
        queue.forget(batch)
        kept = batch.settle(outcome)
        self._buffer.give_back(batch.size_bytes)
        if kept:
            self._tell_interceptors(batch, kept)

    async def wait_settled(self) -> None:
        """Everything opened before. Raises the first failure that no Delivery has shown."""
        for batch in list(self._unsettled):
            await batch.wait_settled()
        failed, self._failed = self._failed, deque(maxlen=_REMEMBERED_FAILURES)
        for batch in failed:
            if not batch.is_failure_seen:
                batch.outcome()

    async def stop(self) -> None:
        """Cancel what is under way; each task gives its batch a result."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def unsettled(self) -> list[Batch]:
        return list(self._unsettled)

    def _tell_interceptors(self, batch: Batch, records: list[OutgoingRecord]) -> None:
        """A mistake of an interceptor goes to the loop's handler of exceptions: no caller waits here to be told."""
        for rank, record in enumerate(records):
            for error in self._preparation.tell(record, batch.failure or position_in(batch, rank)):
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "an interceptor failed in on_delivery", "exception": error}
                )


def placed(answer: Answer, count: int) -> Placed:
    """Where the one partition of the request put its records."""
    try:
        (result,) = answer.json()["results"]
        base_offset, timestamp, stored = result["base_offset"], result["timestamp"], result["count"]
    except (KeyError, TypeError, ValueError) as error:
        raise not_a_node(answer) from error
    assert stored == count, f"{stored} records acknowledged, {count} sent"
    return Placed(base_offset, timestamp)


def stopped() -> ClientClosed:
    return ClientClosed("stopped while the record was being sent", no_side_effects=False)


def not_sent_in_time() -> DeliveryTimedOut:
    return DeliveryTimedOut("not sent before the delivery timeout", last=None, no_side_effects=True)
