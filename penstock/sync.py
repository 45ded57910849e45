"""The same client for code without an event loop: a thread of its own runs the async one.

Not a second implementation: every method hands over to penstock/aio.py and waits. Records handed to a Producer wait in
a short list that the loop's thread empties in one go, because a wake-up per record would cost more than the record.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock import aio
from penstock.admin.admin import Admin
from penstock.consumer.consumer import Consumer as AsyncConsumer
from penstock.consumer.start import Start
from penstock.errors import ClientClosed
from penstock.options import ClientOptions
from penstock.producer.sync_producer import Producer
from penstock.records import Record
from penstock.transport.exchange import Json, Request
from penstock.transport.nodes import DEFAULT_URL

ResultT = TypeVar("ResultT")


class LoopThread:
    """An event loop in a daemon thread, and the one way to run something on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Wait for the result; an interrupt of the caller cancels the work."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError as error:
            work.close()
            raise ClientClosed("the client is closed") from error
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class Client(Admin[Json]):
    """`with Client(url) as client`. As the async client, with results in place of things to await."""

    def __init__(
        self,
        urls: str | Iterable[str] = DEFAULT_URL,
        *,
        token: str | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        self._client = aio.Client(urls, token=token, options=options)
        self._thread = LoopThread()

    def __repr__(self) -> str:
        return f"<sync {self._client!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def statistics(self) -> aio.ClientStatistics:
        return self._client.statistics()

    def close(self) -> None:
        if not self._thread.loop.is_closed():
            self._thread.run(self._client.close())
            self._thread.stop()

    def producer(self, **how: Any) -> Producer:
        """As the async client's; `send` gives a Delivery whose result() waits, and prepares in the caller's thread."""
        return Producer(self._client.producer(**how), self._thread.run, self._thread.loop)

    def consume(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: Start = "earliest",
        follow: bool = True,
        **changed: Any,
    ) -> Consumer:
        """As the async client's: `for record in client.consume("flights")`."""
        consumer = self._client.consume(topic, partitions=partitions, start=start, follow=follow, **changed)
        return Consumer(consumer, self._thread.run)

    def post_records(self, topic: str, body: bytes, **how: Any) -> Json:
        return self._thread.run(self._client.post_records(topic, body, **how))

    def _call(self, request: Request) -> Json:
        return self._thread.run(self._client.call(request))


class Consumer:
    """One wake-up of the loop's thread per list of records; iterating within a list needs none."""

    def __init__(self, consumer: AsyncConsumer, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._consumer = consumer
        self._run = run

    def __repr__(self) -> str:
        return f"<sync {self._consumer!r}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        record = self._consumer.next_nowait() or self._run(self._consumer.next())
        if record is None:
            raise StopIteration
        return record

    def start(self) -> None:
        self._run(self._consumer.start())

    def poll(self, timeout_ms: int | None = None) -> list[Record]:
        return self._run(self._consumer.poll(timeout_ms))  # type: ignore[no-any-return]

    def positions(self) -> dict[int, int]:
        return self._consumer.positions()

    @property
    def is_at_end(self) -> bool:
        return self._consumer.is_at_end

    def close(self) -> None:
        self._run(self._consumer.close())
