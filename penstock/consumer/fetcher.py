"""Follows the partitions of a topic with one concurrent long poll each, and returns the answers as they arrive.

Does not parse bodies: penstock/consumer/consumer.py decodes records, `penstock consume` passes lines on unchanged.
Invariants: per partition, answers come in log order and without gaps, unless the log was truncated and the out-of-range
policy allows continuing; at most `prefetch_batches` answers per partition are held; no offset of a deleted topic is
used in the one that was created again under its name, which is read from its start if the policy allows that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from penstock.consumer.start import StartPosition, find_starts
from penstock.errors import ClientClosed, ClientError, ProblemError
from penstock.options import ClientOptions
from penstock.transport import api
from penstock.transport.attempts import Attempts
from penstock.transport.exchange import Answer, Query, not_a_node

_log = logging.getLogger(__name__)

_LAST_WAIT_MS = 100  # of a reader of filtered records that ends where the log ended
TOPIC_ID_MISMATCH = "topic_id_mismatch"
_OUT_OF_RANGE = frozenset({"offset_below_log_start", "offset_above_high_watermark"})


Growth = Callable[[str], Awaitable[int]]
"""From a topic to how many partitions it has by now."""


class Fetched(NamedTuple):
    """Holds one answer, which has at least one record."""

    partition: int
    body: bytes
    offset: int  # the requested offset
    next_offset: int
    topic_id: str | None = None  # of the topic that they are of


class FetchView(NamedTuple):
    """Holds the form of the records, and where to stop."""

    accept: str
    query: Query
    is_following: bool  # False: each partition ends at its high watermark of the start


class Fetcher:
    def __init__(
        self,
        attempts: Attempts,
        topic: str,
        starts: Sequence[StartPosition],
        view: FetchView,
        options: ClientOptions,
        growth: Growth | None = None,
        topic_id: str | None = None,
    ) -> None:
        self._attempts = attempts
        self._topic = topic
        self._view = view
        self._options = options
        self._ready: asyncio.Queue[Fetched | Exception | None] = asyncio.Queue()  # None: a partition is at its end
        self._credits = {start.partition: asyncio.Semaphore(options.prefetch_batches) for start in starts}
        self._epochs: dict[int, int] = {}  # the newest leader epoch received, per partition
        self._sends_topic_id = True
        self.topic_id = topic_id or next((start.topic_id for start in starts), None)
        self._failure: Exception | None = None
        self._unfinished = len(starts)
        if view.is_following and len(starts) > options.connections_max:
            text = "topic %s: %d partitions share %d connections, so they wait; raise connections_max, or use events()"
            _log.warning(text, topic, len(starts), options.connections_max)
        self.repositions = 0
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(start)) for start in starts]
        if growth is not None:
            self._tasks.append(loop.create_task(self._watch(growth)))

    def __repr__(self) -> str:
        return f"<Fetcher {self._topic} following={self._unfinished} ready={self._ready.qsize()}>"

    async def next(self) -> Fetched | None:
        """Returns the next answer of any partition; None when all are at their end. Raises a partition's error."""
        while self._failure is None:
            if self._unfinished == 0:
                return None
            item = await self._ready.get()
            if isinstance(item, Fetched):
                self._credits[item.partition].release()
                if item.topic_id == self.topic_id:  # else it is of a topic that was deleted since
                    return item
                continue
            if item is None:
                self._unfinished -= 1
            else:
                self._failure = item
                await self._stop_tasks()
        raise self._failure.with_traceback(None)

    async def close(self) -> None:
        self._failure = self._failure or ClientClosed("the consumer is closed")
        self._ready.put_nowait(self._failure)  # for a task that waits in next()
        await self._stop_tasks()

    async def _run(self, start: StartPosition) -> None:
        """Follows one partition, then queues its end: None, or the error that ended it."""
        try:
            await self._follow(start.partition, start.offset, None if self._view.is_following else start.end)
        except Exception as error:  # next() raises it to the caller
            self._ready.put_nowait(error)
        else:
            self._ready.put_nowait(None)

    async def _watch(self, growth: Growth) -> None:
        """Follows the partitions that the topic grows by, from their beginning."""
        while True:
            await asyncio.sleep(self._options.partitions_age_ms_max / 1000)
            with contextlib.suppress(ClientError):  # the other partitions report an error that persists
                new = [number for number in range(await growth(self._topic)) if number not in self._credits]
                give_up_ms = self._options.unreachable_timeout_ms
                for start in await find_starts(self._attempts, self._topic, new, "earliest", give_up_ms):
                    self._credits[start.partition] = asyncio.Semaphore(self._options.prefetch_batches)
                    self._unfinished += 1
                    self._tasks.append(asyncio.get_running_loop().create_task(self._run(start)))

    async def _follow(self, partition: int, offset: int, end: int | None) -> None:
        credit = self._credits[partition]
        is_first = True  # the node rejects a start beyond the end
        while end is None or offset < end or (is_first and offset > end):
            is_first = False
            await credit.acquire()
            try:
                fetched = await self._fetch(partition, offset)
            except ProblemError as problem:
                self.repositions += 1
                credit.release()
                if problem.code == "unknown_query" and self._sends_topic_id and self.topic_id is not None:
                    self._sends_topic_id = False  # a node of an earlier release
                    continue
                if problem.code != TOPIC_ID_MISMATCH:
                    offset = reposition(problem, self._options.out_of_range)
                    continue
                start = await self._start_again(partition, problem)
                if start is None:
                    return
                offset, end = start.offset, None if end is None else start.end
                continue
            if fetched.next_offset > offset:
                offset = fetched.next_offset
                self._ready.put_nowait(fetched)
            else:
                credit.release()

    async def _fetch(self, partition: int, offset: int) -> Fetched:
        wait_ms = self._options.fetch_wait_ms
        if "filter" in self._view.query and not self._view.is_following:
            wait_ms = min(wait_ms, _LAST_WAIT_MS)  # the node would wait for a record that passes
        query = {"offset": offset, "max_bytes": self._options.fetch_bytes_max, "wait_ms": wait_ms, **self._view.query}
        topic_id = self.topic_id
        if topic_id is not None and self._sends_topic_id:
            query["topic_id"] = topic_id
        epoch, rack = self._epochs.get(partition), self._options.rack
        request = api.fetch(self._topic, partition, self._view.accept, query, epoch, rack)
        answer = await self._attempts.send_with_retries(request, self._options.unreachable_timeout_ms, wait_ms=wait_ms)
        self._epochs[partition] = max(self._epochs.get(partition, 0), _leader_epoch(answer))
        return Fetched(partition, answer.body, offset, _next_offset(answer), topic_id)

    async def _start_again(self, partition: int, problem: ProblemError) -> StartPosition | None:
        """Returns the first position in a topic that was created again; None: it does not have the partition.

        Raises `problem` by the caller's policy.
        """
        topic_id = problem.members.get("topic_id")
        if self._options.out_of_range == "fail" or not isinstance(topic_id, str):
            raise problem
        if self.topic_id != topic_id:
            _log.warning("topic %s was deleted and created again: reading the new one from its start", self._topic)
            self.topic_id = topic_id
            self._epochs.clear()
        try:
            give_up_ms = self._options.unreachable_timeout_ms
            [start] = await find_starts(self._attempts, self._topic, [partition], "earliest", give_up_ms)
        except ProblemError as missing:
            if missing.code != "unknown_partition":
                raise
            return None
        return start

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def reposition(problem: ProblemError, policy: str) -> int:
    """Returns the next offset after a 410 or 416, by the caller's policy. Raises `problem` if there is none."""
    bound = {"earliest": "log_start", "latest": "high_watermark", "fail": None}[policy]
    if problem.code not in _OUT_OF_RANGE or bound is None or not isinstance(problem.members.get(bound), int):
        raise problem
    return int(problem.members[bound])


def _next_offset(answer: Answer) -> int:
    text = answer.headers.get("Penstock-Next-Offset", "")
    if not text.isdecimal():
        raise not_a_node(answer)
    return int(text)


def _leader_epoch(answer: Answer) -> int:
    """Returns the leader epoch of an answer; 0 if the node is of an older release."""
    text = answer.headers.get("Penstock-Leader-Epoch", "")
    return int(text) if text.isdecimal() else 0
