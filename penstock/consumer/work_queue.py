"""The records of a share group: acquired with a lock, each with an outcome of its own.

Every call may be repeated, so a lost answer is a retry. A record without an outcome is delivered again when its lock
ends. Records that were acquired and not handed out are released by close().
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from penstock.admin import api
from penstock.closing import AsyncClosing
from penstock.consumer.deserializers import Deserializers
from penstock.errors import ClientClosed, ClientError, ProblemError
from penstock.options import ClientOptions
from penstock.records import Record
from penstock.transport.attempts import Attempts

_log = logging.getLogger(__name__)
_CLOSE_S = 5  # then the locks end by themselves
ERROR_CHARACTERS_MAX = 1000


class QueueTerms(NamedTuple):
    """Holds what a worker asks of its group."""

    group: str
    topics: tuple[str, ...]
    member_id: str
    max_records: int = 1
    lock_ms: int | None = None
    is_extending: bool = False
    value: str | None = "json"  # the form of values; None: as their content-type says
    deserializers: Deserializers | None = None


class WorkRecord(Record, gc=True):
    """A record with its lock. Give it an outcome: accept(), release(), reject(), or `async with record`.

    Each returns False if the lock was over: the record is delivered again, or was.
    """

    delivery_count: int = 1  # the fields below are set after decoding: no member of an answer has their names
    _lock: str = msgspec.field(name=" lock", default="")
    _queue: Any = msgspec.field(name=" queue", default=None)
    _extending: Any = msgspec.field(name=" extending", default=None)
    _refused_by: ValueError | None = msgspec.field(name=" refused_by", default=None)  # what its deserializer raised

    async def accept(self) -> bool:
        """Finishes the record."""
        return not await self._queue.settle([self], "accept")

    async def release(self, *, delay_ms: int | None = None, error: str = "") -> bool:
        """Returns the record to the queue, after the delay or the group's."""
        return not await self._queue.settle([self], "release", delay_ms=delay_ms, error=error)

    async def reject(self, *, error: str = "") -> bool:
        """Makes the record a dead letter."""
        return not await self._queue.settle([self], "reject", error=error)

    async def extend(self, *, lock_ms: int | None = None) -> bool:
        """Locks the record for longer, from now on."""
        return not await self._queue.settle([self], "extend", lock_ms=lock_ms)

    async def __aenter__(self) -> Self:
        self._extending = self._queue.extending(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._extending is not None:
            self._extending.cancel()
        try:
            if error is None:
                await self.accept()
            elif self._refused_by is not None:  # no worker with this deserializer can do better
                await self.reject(error=f"not deserialized: {self._refused_by!r}"[:ERROR_CHARACTERS_MAX])
            else:
                await self.release(error=repr(error)[:ERROR_CHARACTERS_MAX])
        except ProblemError as problem:
            if problem.code != "lock_unknown":
                raise
            extra = {"topic": self.topic, "partition": self.partition, "offset": self.offset}
            _log.warning("the coordinator was replaced: the record may be delivered again", extra=extra)

    def _deserialize(self, data: bytes | None, deserializer: Any) -> Any:
        try:
            return Record._deserialize(self, data, deserializer)
        except ValueError as error:
            self._refused_by = error
            raise


class _Answer(msgspec.Struct):
    lock: str | None
    lock_ms: int
    records: list[WorkRecord]
    missing_topics: list[str] = msgspec.field(default_factory=list)


_decode = msgspec.json.Decoder(_Answer).decode


class WorkQueue(AsyncClosing):
    """Returns records; made by Client.queue(). `async for record` iterates, take() returns lists."""

    def __init__(self, attempts: Attempts, terms: QueueTerms, options: ClientOptions) -> None:
        self._attempts = attempts
        self._terms = terms
        self._options = options
        self._waiting: deque[WorkRecord] = deque()  # acquired, and not handed out yet
        self._lock_s = 0.0
        self._locked_until = 0.0
        self._is_closed = False
        self._missing: set[str] = set()  # topics that were deleted, as far as that was logged

    def __repr__(self) -> str:
        return f"<WorkQueue {self._terms.group}/{self._terms.member_id} waiting={len(self._waiting)}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WorkRecord:
        if asyncio.get_running_loop().time() >= self._locked_until:
            self._waiting.clear()  # their lock is over
        while not self._waiting:
            self._waiting.extend(await self.take())
        return self._waiting.popleft()

    async def take(self, max_records: int | None = None, *, timeout_ms: int | None = None) -> list[WorkRecord]:
        """Acquires records; [] if none came in time. Raises ClientError, ClientClosed."""
        if self._is_closed:
            raise ClientClosed("the queue is closed")
        terms, options = self._terms, self._options
        wait_ms = options.fetch_wait_ms if timeout_ms is None else timeout_ms
        body = {
            "topics": list(terms.topics) or None,
            "max_records": max_records or terms.max_records,
            "max_bytes": options.fetch_bytes_max,
            "wait_ms": min(wait_ms, 60_000),
            "lock_ms": terms.lock_ms,
            "member_id": terms.member_id,
            "value": terms.value,
        }
        request = api.acquire_records(terms.group, {name: value for name, value in body.items() if value is not None})
        answer = await self._attempts.send_with_retries(request, options.unreachable_timeout_ms, wait_ms=wait_ms)
        try:
            acquired = _decode(answer.body)
        except ValueError as error:
            raise ClientError(f"the answer to an acquire of group {terms.group} is not a node's: {error}") from error
        self._lock_s = acquired.lock_ms / 1000
        self._locked_until = asyncio.get_running_loop().time() + self._lock_s
        for topic in set(acquired.missing_topics) - self._missing:
            _log.warning("group %s: topic %s was deleted, the others are read", terms.group, topic)
        self._missing = set(acquired.missing_topics)
        for record in acquired.records:
            record._lock, record._queue = acquired.lock or "", self
            record._deserializers = terms.deserializers
        return acquired.records

    async def accept(self, records: Iterable[WorkRecord]) -> list[WorkRecord]:
        """Finishes many records with one request for each of their locks. Returns those whose lock was over."""
        return await self.settle(records, "accept")

    async def settle(
        self,
        records: Iterable[WorkRecord],
        outcome: str,
        *,
        delay_ms: int | None = None,
        lock_ms: int | None = None,
        error: str = "",
    ) -> list[WorkRecord]:
        """Gives records an outcome: accept, release, reject or extend. Returns those whose lock was over.

        Raises ProblemError `lock_unknown` if the coordinator was replaced since: the outcome may be stored, or not.
        """
        by_lock: dict[str, list[WorkRecord]] = {}
        for record in records:
            by_lock.setdefault(record._lock, []).append(record)
        more = {"delay_ms": delay_ms, "lock_ms": lock_ms, "error": error or None}
        body = {"outcome": outcome, **{name: value for name, value in more.items() if value is not None}}
        refused: list[WorkRecord] = []
        for lock, held in by_lock.items():
            entries = [_entry(record) for record in held]
            request = api.acknowledge_records(self._terms.group, {"lock": lock, "records": entries, **body})
            refused += await self._settle(request, held)
        return refused

    async def close(self) -> None:
        """Releases the records that were not handed out. The others can still be given an outcome."""
        self._is_closed = True
        waiting = list(self._waiting)
        self._waiting.clear()
        if waiting:
            await self.give_back(waiting)

    async def abort(self) -> None:
        """Stops at once without a request: locks end by themselves."""
        self._is_closed = True
        self._waiting.clear()

    async def give_back(self, records: Iterable[WorkRecord]) -> None:
        """Releases records for others at once. Without an answer in time their locks end by themselves."""
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self.settle(records, "release", delay_ms=0)

    def extending(self, record: WorkRecord) -> asyncio.Task[None] | None:
        """Returns a task that keeps the record locked, if the queue was asked to."""
        return asyncio.create_task(self._extend(record)) if self._terms.is_extending else None

    async def _extend(self, record: WorkRecord) -> None:
        """Extends until the lock is over, or not known any more; the outcome of the record reports which."""
        is_locked = True
        while is_locked:
            await asyncio.sleep(self._lock_s / 2)
            try:
                is_locked = await record.extend(lock_ms=self._terms.lock_ms)
            except ProblemError as problem:
                if problem.code != "lock_unknown":
                    raise
                return

    async def _settle(self, request: Any, held: list[WorkRecord]) -> list[WorkRecord]:
        try:
            answer = await self._attempts.send_with_retries(
                request, self._options.unreachable_timeout_ms, final="lock_unknown"
            )
            refused = answer.json()["refused"]
        except ProblemError as problem:
            if problem.code != "lock_expired":
                raise
            refused = problem.members["refused"]
        spans = [(row["topic"], row["partition"], row["offset"], row["last_offset"]) for row in refused]
        return [
            record
            for record in held
            if any(
                (record.topic, record.partition) == (topic, partition) and first <= record.offset <= last
                for topic, partition, first, last in spans
            )
        ]


def _entry(record: WorkRecord) -> dict[str, Any]:
    entry = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return entry if record.last_offset is None else {**entry, "last_offset": record.last_offset}
