"""The client for code without an event loop: a thread of its own runs the async client.

Not a second implementation: every method calls penstock/aio.py and waits. Records given to a Producer go to a short
list, which the loop's thread empties as a whole: a wake-up per record would cost more than the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from penstock import aio
from penstock.admin.admin import Admin
from penstock.admin.table import SyncTable
from penstock.closing import Closing
from penstock.consumer.deserializers import Deserializer
from penstock.consumer.sync_consumer import Consumer, EventStream
from penstock.consumer.sync_group_consumer import Callback, CallQueue, GroupConsumer
from penstock.consumer.sync_work_queue import WorkQueue
from penstock.errors import ClientClosed
from penstock.options import ChangedOptions, ClientOptions
from penstock.processing import Outputs
from penstock.processing import Processor as AsyncProcessor
from penstock.producer.sync_producer import Producer
from penstock.records import Record
from penstock.transport.exchange import Json, Request
from penstock.transport.nodes import DEFAULT_URL
from penstock.transport.transport import Token

if TYPE_CHECKING:
    from penstock.encryption.encryption import Encryption

MadeT = TypeVar("MadeT")
ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")


class LoopThread:
    """Runs an event loop in a daemon thread, and coroutines of other threads on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()  # a fork has no such thread: its calls would wait without end
        self._lock = threading.Lock()
        self._is_stopped = False  # a loop that ends takes no work: its caller would wait without end
        self._thread = threading.Thread(target=self.loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, ResultT], timeout_s: float | None = None) -> ResultT:
        """Runs a coroutine; an interrupt of its caller cancels it. Raises ClientClosed, TimeoutError."""
        if os.getpid() != self._pid:
            work.close()
            raise ClientClosed("the client was made before this process was forked: make one in each process")
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
        if os.getpid() != self._pid:
            return
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


def _as_async(
    method: Callable[Concatenate[aio.Client, ParamsT], MadeT],
    result_of: Callable[[Client, MadeT], ResultT],
    difference: str = "",
) -> Callable[Concatenate[Client, ParamsT], ResultT]:
    """Returns the method with the arguments of the async client's; `result_of` makes its result of the async one's."""

    @functools.wraps(method)
    def call(self: Client, /, *args: ParamsT.args, **named: ParamsT.kwargs) -> ResultT:
        return result_of(self, method(self._client, *args, **named))

    call.__doc__ = f"Without an event loop: calls return results. {difference}\n\n{inspect.getdoc(method)}"
    return call


class Client(Closing, Admin[Json]):
    """Sends requests to a cluster: `with Client(url) as client`. As the async client, but calls return results."""

    def __init__(
        self,
        urls: str | Iterable[str] = DEFAULT_URL,
        *,
        token: Token | None = None,
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

    producer = _as_async(
        aio.Client.producer,
        lambda client, producer: Producer(producer, client._thread.run, client._thread.loop),
        "The result() of each Delivery waits. Serializers and interceptors run in the thread that calls `send`.",
    )
    consume = _as_async(
        aio.Client.consume,
        lambda client, consumer: Consumer(consumer, client._thread.run),
        'Iterate over it: `for record in client.consume("flights")`.',
    )
    events = _as_async(
        aio.Client.events,
        lambda client, stream: EventStream(stream, client._thread.run),
        'Iterate over it: `for record in client.events("flights")`.',
    )
    queue = _as_async(
        aio.Client.queue,
        lambda client, queue: WorkQueue(queue, client._thread.run),
        "Use it from one thread, with `with` and `for`.",
    )
    partition_count = _as_async(aio.Client.partition_count, lambda client, work: client._thread.run(work))
    post_records = _as_async(aio.Client.post_records, lambda client, work: client._thread.run(work))

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
