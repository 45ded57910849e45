"""The producer for code without an event loop.

Runs the async producer, and has no rule of its own. Records are encoded in the caller's thread and appended to a list.
The loop's thread moves the whole list to the async producer: a wake-up per record would cost more than the record.
Invariant: `_is_draining` is true exactly while a drain is scheduled or runs; both change only under the lock.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.errors import ClientClosed, ClientError
from penstock.producer import batch as async_batch
from penstock.producer import producer as async_producer
from penstock.producer.batch import RecordPosition
from penstock.producer.dispatch import warn_of_lost_records
from penstock.producer.lines import Headers
from penstock.producer.preparation import Prepared, with_keys
from penstock.producer.statistics import AcceptedCount, ProducerStatistics
from penstock.records import Timestamp


class Runner(Protocol):
    """Runs a coroutine in the client's thread, for at most this time."""

    def __call__(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any: ...


_EXIT_FLUSH_S = 5.0  # a program that ends without close() waits at most twice this time
_unflushed: set[Producer] = set()  # have sent records since their last flush()
_SUBMITTED_MAX = 10_000  # records on the list before the caller waits; buffer_bytes bounds the records after it


class Delivery:
    """Holds the outcome of one record; `result()` waits for it."""

    __slots__ = ("_delivery", "_producer")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._delivery: async_batch.Delivery | None = None

    def __repr__(self) -> str:
        return f"<sync {self._delivery!r}>"

    def done(self) -> bool:
        return self._delivery is not None and self._delivery.done()

    def result(self, timeout: float | None = None) -> RecordPosition:
        """Waits for the answer and returns the position of the record. Raises its ClientError.

        Raises TimeoutError after `timeout` seconds, as a concurrent.futures.Future does. The record is still sent.
        """
        begun_at = self._producer.time()
        if self._delivery is None:
            self._producer.submit(timeout)
        assert self._delivery is not None
        if self._delivery.done():
            return self._delivery.result()
        left_s = None if timeout is None else max(timeout - (self._producer.time() - begun_at), 0.0)
        return self._producer.wait_for(self._delivery, left_s)


Submitted = tuple[Delivery, Prepared]


class Producer:
    """Sends records; made by penstock.sync.Client.producer(). Any number of threads may send."""

    def __init__(self, producer: async_producer.Producer, run: Runner, loop: asyncio.AbstractEventLoop) -> None:
        self._producer = producer
        self._prepare = producer.preparation.prepare
        self._run = run
        self._loop = loop
        self._pid = os.getpid()  # a fork has no thread that sends
        self._lock = threading.Lock()
        self._submitted: list[Submitted] = []
        self._taken: list[Submitted] = []  # by the drain that runs
        self._is_draining = False
        self._drain: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<sync {self._producer!r} submitted={len(self._submitted)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Queues a record, waiting only for room. With `buffer_full="raise"`, the Delivery raises BufferFull.

        Raises ClientClosed.
        """
        if self._producer.is_closed:
            raise ClientClosed("the producer is closed")
        if os.getpid() != self._pid:
            raise ClientClosed("the producer was made before this process was forked: make one in each process")
        delivery = Delivery(self)
        submitted = delivery, self._prepare(topic, value, key, headers, timestamp, partition)
        with self._lock:
            self._submitted.append(submitted)
            must_start = not self._is_draining
            self._is_draining = True
            if must_start:
                _unflushed.add(self)
            is_full = len(self._submitted) > _SUBMITTED_MAX
        if must_start:
            self._loop.call_soon_threadsafe(self._start_drain)
        if is_full:
            self.submit()
        return delivery

    def send_many(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None, partition: int | None = None
    ) -> list[Delivery]:
        """Queues many records, keys pairwise with values, each as send() does."""
        return [self.send(topic, value, key=key, partition=partition) for value, key in with_keys(values, keys)]

    def flush(self) -> None:
        """Waits until every record has its result. Raises the first failure that no Delivery has shown."""
        _unflushed.discard(self)
        self.submit()
        self._run(self._producer.flush())

    def close(self) -> None:
        """Flushes, and reject further records. Raises like flush(). Does nothing if it was closed before."""
        if self._producer.is_closed and self._loop.is_closed():
            return
        _unflushed.discard(self)
        self.submit()
        self._run(self._producer.close())

    def abort(self) -> None:
        """Stops at once; records without a result fail."""
        _unflushed.discard(self)
        with contextlib.suppress(ClientClosed):  # closing the client has aborted it
            self._run(self._producer.abort())

    def flush_at_exit(self) -> None:
        """Flushes, for a short time. Failures are left for the warning that follows (dispatch.py)."""
        with contextlib.suppress(ClientError, TimeoutError):
            self.submit(_EXIT_FLUSH_S)
            self._run(self._producer.flush(), _EXIT_FLUSH_S)
        if count := len(self._submitted) + sum(delivery._delivery is None for delivery, _ in self._taken):
            warn_of_lost_records(count)

    def take_accepted_counts(self) -> list[AcceptedCount]:
        """Returns the records acknowledged since the last call, for `penstock ingest audit`."""
        return self._producer.take_accepted_counts()

    def statistics(self) -> ProducerStatistics:
        return self._producer.statistics()

    def submit(self, timeout_s: float | None = None) -> None:
        """Waits until the async producer has taken all records queued so far. Raises TimeoutError."""
        self._run(self._wait_drained(), timeout_s)

    def time(self) -> float:
        """Returns the seconds of the loop's clock."""
        return self._loop.time()

    def wait_for(self, delivery: async_batch.Delivery, timeout_s: float | None) -> RecordPosition:
        """Raises TimeoutError, and the ClientError of the record."""
        return self._run(_wait_delivered(delivery), timeout_s)  # type: ignore[no-any-return]

    def _start_drain(self) -> None:
        self._drain = self._loop.create_task(self._drain_all())

    async def _wait_drained(self) -> None:
        await asyncio.sleep(0)  # lets a drain that was just scheduled start first
        if self._drain is not None:
            await asyncio.shield(self._drain)

    async def _drain_all(self) -> None:
        while taken := self._take_submitted():
            self._taken = taken
            for delivery, prepared in taken:
                try:
                    delivery._delivery = await self._producer.send_line(*prepared)
                except Exception as error:
                    delivery._delivery = self._producer.reject(prepared[0], error)

    def _take_submitted(self) -> list[Submitted]:
        """Takes all queued records. If there are none, the drain ends."""
        with self._lock:
            taken, self._submitted, self._taken = self._submitted, [], []
            self._is_draining = bool(taken)
            return taken


async def _wait_delivered(delivery: async_batch.Delivery) -> RecordPosition:
    return await delivery


def _flush_unflushed() -> None:
    for producer in list(_unflushed):
        producer.flush_at_exit()


os.register_at_fork(after_in_child=_unflushed.clear)  # the parent sends what it has queued
# Before the pools of threads end, which resolve the names of nodes; atexit runs after them.
getattr(threading, "_register_atexit", atexit.register)(_flush_unflushed)
