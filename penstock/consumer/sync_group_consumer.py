"""The consumer of a group for code without an event loop.

Runs the async consumer in the client's thread, and has no rule of its own. Callbacks are queued there and called in the
caller's thread, before the records that follow are returned.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from penstock.closing import Closing
from penstock.consumer.delivery import TopicPartition
from penstock.consumer.group_consumer import GroupConsumer as AsyncGroupConsumer
from penstock.consumer.group_consumer import by_partition
from penstock.errors import ClientClosed
from penstock.records import Record

Callback = Callable[[list[TopicPartition]], None]


class CallQueue:
    """Holds the calls of callbacks until the caller's thread makes them."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Callback, list[TopicPartition]]] = deque()

    def queue(self, callback: Callback | None) -> Callback | None:
        """Returns a callback that queues the call of this one."""
        if callback is None:
            return None
        return lambda partitions: self._calls.append((callback, partitions))

    def make_calls(self) -> None:
        while self._calls:
            callback, partitions = self._calls.popleft()
            callback(partitions)


class GroupConsumer(Closing):
    """Returns records; made by penstock.sync.Client.consumer(). Use it from one thread."""

    def __init__(
        self, consumer: AsyncGroupConsumer, run: Callable[[Coroutine[Any, Any, Any]], Any], calls: CallQueue
    ) -> None:
        self._consumer = consumer
        self._run = run
        self._calls = calls

    def __repr__(self) -> str:
        return f"<sync {self._consumer!r}>"

    def __enter__(self) -> Self:
        self._run(self._consumer.start())
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        while (record := self._consumer.next_nowait()) is None:
            self._run(self._consumer.wait())
            self._calls.make_calls()
        return record

    @property
    def member_id(self) -> str:
        return self._consumer.member_id

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._consumer.paused

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        self._consumer.resume(partitions)

    def poll(self, timeout_ms: int | None = None, *, max_records: int | None = None) -> list[Record]:
        records: list[Record] = self._run(self._consumer.poll(timeout_ms, max_records=max_records))
        self._calls.make_calls()
        return records

    def fail(self, record: Record, error: str = "") -> None:
        self._consumer.fail(record, error)

    def run(
        self,
        work: Callable[[Record], object],
        *,
        idle_ms: int | None = None,
        threads_max: int = 16,
        is_reporting_failures: bool = False,
    ) -> None:
        """Calls `work` for every record, as the async consumer does: one thread for each partition of a delivery."""
        fail = self.fail if is_reporting_failures else None
        with ThreadPoolExecutor(threads_max, "penstock-work") as pool:
            while (records := self.poll(idle_ms)) or idle_ms is None:
                for done in [pool.submit(_process_in_order, work, part, fail) for part in by_partition(records)]:
                    done.result()
                if records and not self._consumer.is_auto_commit:
                    self.commit()

    def commit(self) -> bool:
        return bool(self._run(self._consumer.commit()))

    def close(self, *, leave: bool = True) -> None:
        with contextlib.suppress(ClientClosed):  # closing the client has closed it
            self._run(self._consumer.stop())
        self._calls.make_calls()
        if leave:
            with contextlib.suppress(ClientClosed):
                self._run(self._consumer.leave())


def _process_in_order(
    work: Callable[[Record], object], records: Iterable[Record], fail: Callable[[Record, str], None] | None
) -> None:
    for record in records:
        try:
            work(record)
        except Exception as error:
            if fail is None:
                raise
            fail(record, f"{type(error).__name__}: {error}")
            return
