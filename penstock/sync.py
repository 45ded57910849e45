"""The client for code without an event loop: a thread of its own runs the async client.

Not a second implementation: every method calls penstock/aio.py and waits. Records given to a Producer go to a short
list, which the loop's thread empties as a whole: a wake-up per record would cost more than the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from penstock import aio
from penstock.admin.admin import Admin
from penstock.admin.table import SyncTable
from penstock.closing import Closing
from penstock.consumer.deserializers import Deserializer
from penstock.consumer.start import Start
from penstock.consumer.sync_consumer import Consumer
from penstock.consumer.sync_group_consumer import Callback, CallQueue, GroupConsumer
from penstock.consumer.sync_work_queue import WorkQueue
from penstock.errors import ClientClosed
from penstock.options import ChangedOptions, ClientOptions
from penstock.processing import Outputs
from penstock.processing import Processor as AsyncProcessor
from penstock.producer.lines import Headers
from penstock.producer.partitioners import Partitioner, PartitionerName
from penstock.producer.preparation import Interceptor, Serializer
from penstock.producer.sync_producer import Producer
from penstock.records import Record
from penstock.transport import api
from penstock.transport.exchange import Json, Request
from penstock.transport.nodes import DEFAULT_URL

if TYPE_CHECKING:
    from penstock.encryption.encryption import Encryption

ResultT = TypeVar("ResultT")


class LoopThread:
    """Runs an event loop in a daemon thread, and coroutines of other threads on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_stopped = False  # a loop that ends takes no work: its caller would wait without end
        self._thread = threading.Thread(target=self.loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, ResultT], timeout_s: float | None = None) -> ResultT:
        """Runs a coroutine; an interrupt of its caller cancels it. Raises ClientClosed, TimeoutError."""
        with self._lock:
            if self._is_stopped:
                work.close()
                raise ClientClosed("the client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise ClientClosed("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancels what still runs, whose callers get ClientClosed, and ends the thread. Several threads may call it."""
        with self._lock:
            is_first, self._is_stopped = not self._is_stopped, True
        if is_first:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        if is_first:
            self.loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Client(Closing, Admin[Json]):
    """Sends requests to a cluster: `with Client(url) as client`. As the async client, but calls return results."""

    def __init__(
        self,
        urls: str | Iterable[str] = DEFAULT_URL,
        *,
        token: str | None = None,
        options: ClientOptions | None = None,
        cacert: str | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        """Makes a client, as the async one."""
        self._client = aio.Client(urls, token=token, options=options, cacert=cacert, encryption=encryption)
        self._thread = LoopThread()

    def __repr__(self) -> str:
        return f"<sync {self._client!r}>"

    def table(self, topic: str) -> SyncTable:
        return SyncTable(topic, self._call)

    def statistics(self) -> aio.ClientStatistics:
        return self._client.statistics()

    def close(self) -> None:
        """Closes as the async client does, and ends the client's thread."""
        with contextlib.suppress(ClientClosed):  # it was closed before, or is by another thread
            self._thread.run(self._client.close())
        self._thread.stop()

    def producer(
        self,
        *,
        partitioner: PartitionerName | Partitioner = "key_hash",
        key_serializer: str | Serializer | None = None,
        value_serializer: str | Serializer | None = None,
        interceptors: Sequence[Interceptor] = (),
        headers: Headers = (),
        **changed: Unpack[ChangedOptions],
    ) -> Producer:
        """Makes a producer, as the async client does. The result() of each Delivery waits.

        Serializers and interceptors run in the thread that calls `send`.
        """
        producer = self._client.producer(
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            interceptors=interceptors,
            headers=headers,
            **changed,
        )
        return Producer(producer, self._thread.run, self._thread.loop)

    def consume(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: Start = "earliest",
        topic_id: str | None = None,
        follow: bool = True,
        filters: Sequence[str] = (),
        min_bytes: int | None = None,
        max_records: int | None = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        first_topics: str | Iterable[str] | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> Consumer:
        """Reads a topic, as the async client does: `for record in client.consume("flights")`."""
        consumer = self._client.consume(
            topic,
            partitions=partitions,
            start=start,
            topic_id=topic_id,
            follow=follow,
            filters=filters,
            min_bytes=min_bytes,
            max_records=max_records,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            first_topics=first_topics,
            **changed,
        )
        return Consumer(consumer, self._thread.run)

    def consumer(
        self,
        *,
        group: str,
        topics: str | Iterable[str] = (),
        topics_pattern: str | None = None,
        topics_exclude: str | None = None,
        member_id: str | None = None,
        auto_commit: bool = True,
        auto_commit_ms: int | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int | None = None,
        poll_interval_ms_max: int = 300_000,
        max_records: int | None = None,
        filters: Sequence[str] = (),
        min_bytes: int | None = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        first_topics: str | Iterable[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> GroupConsumer:
        """Reads topics as a member of a consumer group, as the async client does.

        `on_assigned` and `on_revoked` run in the thread that asks for records.
        """
        calls = CallQueue()
        consumer = self._client.consumer(
            group=group,
            topics=topics,
            topics_pattern=topics_pattern,
            topics_exclude=topics_exclude,
            member_id=member_id,
            auto_commit=auto_commit,
            auto_commit_ms=auto_commit_ms,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            poll_interval_ms_max=poll_interval_ms_max,
            max_records=max_records,
            filters=filters,
            min_bytes=min_bytes,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            first_topics=first_topics,
            on_assigned=calls.queue(on_assigned),
            on_revoked=calls.queue(on_revoked),
            **changed,
        )
        return GroupConsumer(consumer, self._thread.run, calls)

    def queue(
        self,
        group: str,
        *,
        topics: str | Iterable[str] = (),
        member_id: str | None = None,
        max_records: int = 1,
        lock_ms: int | None = None,
        is_extending: bool = False,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        first_topics: str | Iterable[str] | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> WorkQueue:
        """Takes single records of a share group, as the async client does."""
        queue = self._client.queue(
            group,
            topics=topics,
            member_id=member_id,
            max_records=max_records,
            lock_ms=lock_ms,
            is_extending=is_extending,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            first_topics=first_topics,
            **changed,
        )
        return WorkQueue(queue, self._thread.run)

    def processor(
        self,
        *,
        group: str,
        topics: str | Iterable[str],
        process: Callable[[Record], Outputs],
        outputs: Mapping[str, int],
        member_id: str | None = None,
        max_records: int | None = None,
        filters: Sequence[str] = (),
        first_topics: str | Iterable[str] | None = None,
        **changed: Unpack[ChangedOptions],
    ) -> Processor:
        """Makes a processor, as the async client does. `process` runs in the thread that calls `run`."""
        processor = self._client.processor(
            group=group,
            topics=topics,
            process=process,
            outputs=outputs,
            member_id=member_id,
            max_records=max_records,
            filters=filters,
            first_topics=first_topics,
            **changed,
        )
        return Processor(processor, process, self._thread.run)

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic, as the async client does: with retries."""
        return self._thread.run(self._client.partition_count(topic))

    def post_records(
        self,
        topic: str,
        body: bytes,
        content_type: str = api.NDJSON_TYPE,
        *,
        partition: int | None = None,
        key: str | None = None,
        key_pointer: str | None = None,
        ndjson: str | None = None,
        idempotency_key: str | None = None,
        expected_end: int | None = None,
        fencing_token: str | None = None,
        source: str | None = None,
        source_positions: tuple[int, int] | None = None,
    ) -> Json:
        """Posts a body in a form of the contract, as the async client does. Returns the produce answer."""
        return self._thread.run(
            self._client.post_records(
                topic,
                body,
                content_type,
                partition=partition,
                key=key,
                key_pointer=key_pointer,
                ndjson=ndjson,
                idempotency_key=idempotency_key,
                expected_end=expected_end,
                fencing_token=fencing_token,
                source=source,
                source_positions=source_positions,
            )
        )

    def _call(self, request: Request) -> Json:
        return self._thread.run(self._client.call(request))


class Processor(Closing):
    """Stores the outputs of each record once; made by Client.processor()."""

    def __init__(
        self,
        processor: AsyncProcessor,
        process: Callable[[Record], Outputs],
        run: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        self._processor = processor
        self._process = process
        self._run = run
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"<sync {self._processor!r}>"

    @property
    def processed(self) -> int:
        """Records whose outputs are stored."""
        return self._processor.processed

    @property
    def dropped(self) -> int:
        """Outputs that were stored before."""
        return self._processor.dropped

    def run(self) -> None:
        """Process until stop(), which another thread or `process` calls. Raises as the async one."""
        while not self._is_stopping:
            self.process_next()

    def stop(self) -> None:
        self._is_stopping = True

    def process_next(self, timeout_ms: int = 1000) -> int:
        """Process one delivery. Returns the number of its records. Raises as the async one."""
        records, plan = self._run(self._processor.poll(timeout_ms))
        for record in records:
            plan.add(record, self._process(record))
        self._run(self._processor.store(plan, len(records)))
        return len(records)

    def close(self) -> None:
        """Commits the last delivery if its outputs are stored, and leaves the group."""
        with contextlib.suppress(ClientClosed):  # closing the client has closed it
            self._run(self._processor.close())
