"""The records of a share group for code without an event loop. Runs the async queue in the client's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self

from penstock.closing import Closing
from penstock.consumer.work_queue import ERROR_CHARACTERS_MAX
from penstock.consumer.work_queue import WorkQueue as AsyncWorkQueue
from penstock.consumer.work_queue import WorkRecord as AsyncWorkRecord
from penstock.errors import ClientClosed


class WorkRecord:
    """A record with its lock, as the async one; other names are those of Record. `with record` releases on an error."""

    def __init__(self, record: AsyncWorkRecord, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.record = record
        self._run = run

    def __repr__(self) -> str:
        return f"<sync {self.record!r}>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record, name)

    def __enter__(self) -> Self:
        self._run(self.record.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self.record.__aexit__(kind, error, trace))

    def accept(self) -> bool:
        return bool(self._run(self.record.accept()))

    def release(self, *, delay_ms: int | None = None, error: str = "") -> bool:
        return bool(self._run(self.record.release(delay_ms=delay_ms, error=error[:ERROR_CHARACTERS_MAX])))

    def reject(self, *, error: str = "") -> bool:
        return bool(self._run(self.record.reject(error=error[:ERROR_CHARACTERS_MAX])))

    def extend(self, *, lock_ms: int | None = None) -> bool:
        return bool(self._run(self.record.extend(lock_ms=lock_ms)))


class WorkQueue(Closing):
    """Returns records; made by penstock.sync.Client.queue(). Use it from one thread."""

    def __init__(self, queue: AsyncWorkQueue, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._queue = queue
        self._run = run

    def __repr__(self) -> str:
        return f"<sync {self._queue!r}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WorkRecord:
        return WorkRecord(self._run(self._queue.__anext__()), self._run)

    def take(self, max_records: int | None = None, *, timeout_ms: int | None = None) -> list[WorkRecord]:
        records = self._run(self._queue.take(max_records, timeout_ms=timeout_ms))
        return [WorkRecord(record, self._run) for record in records]

    def accept(self, records: Iterable[WorkRecord]) -> list[WorkRecord]:
        by_record = {id(record.record): record for record in records}
        refused = self._run(self._queue.accept([record.record for record in by_record.values()]))
        return [by_record[id(record)] for record in refused]

    def close(self) -> None:
        with contextlib.suppress(ClientClosed):  # closing the client has closed it
            self._run(self._queue.close())
