"""The wait of a fetch and its reads: in the call of the request, as a waiter of high watermarks, or as a task.

Partitions of this process that have no record yet are waited for without a task: the fetch is itself a waiter of each.
It ends early if another request of its client arrives, whose answer it would hold back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from engine.errors import EngineError
from engine.runtime.tasks import start_task
from gateway.fetch.multi_fetch import BUSY, CALL_S, MultiFetch
from gateway.fetch.reader import RecordWait
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.codec.fetch import NO_OFFSET, FetchAnswer
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.fetch_sessions import FetchPosition
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.sasl import check_still_known
from gateway.kafka.stored_reads import (
    READ_STORED,
    StoredArguments,
    StoredEntry,
    StoredPart,
    quiet_sources,
    read_stored,
    read_stored_now,
    unpacked,
)
from gateway.links.link import Busy, LinkLost
from gateway.routing.peers import Owner
from replication.errors import NoLeader

WAIT_MS_MAX = 60_000
BUSY_MS = 100  # a client whose wait found no room is not read for this long
PAUSE_S = 0.05  # before another look at a position that the high watermark has not reached


class Asked(NamedTuple):
    """A position and what is read of it: `entry` is None with the error of its partition.

    `preferred`: the node that the client is to read from. `follower`: the process that reads, if it does not lead.
    """

    position: FetchPosition
    topic: str
    entry: StoredEntry | None
    error: Error
    preferred: int | None = None
    follower: Owner | None = None


class FetchWork(RecordWait[Any]):
    """One fetch on its way. A subclass makes the answer of what was read."""

    __slots__ = ("_deadline", "_entries", "_polls", "_task", "asked", "context", "request")

    def __init__(self, request: KafkaRequest, context: KafkaContext, asked: Sequence[Asked]) -> None:
        self.is_over = self.is_late = False  # without the constructors above: each has a frame
        self._receive = self._bucket = None
        self._waits = ()
        self._polls = 0
        self._task: asyncio.Task[None] | None = None
        self.request = request
        self.context = context
        self.asked = asked
        self._entries = [one.entry for one in asked if one.entry is not None]

    def __repr__(self) -> str:
        return f"FetchWork({self.request}, partitions={len(self.asked)}, is_over={self.is_over})"

    def answer(self, parts: Sequence[StoredPart]) -> FetchAnswer:
        raise NotImplementedError

    def begin(self) -> FetchAnswer | FetchWork | Coroutine[Any, Any, FetchAnswer]:
        """Returns the answer, this value, or a coroutine that waits for it."""
        if not self._entries:
            return self.answer([])
        if len(self._entries) < len(self.asked):  # one with an error is answered at once
            return self.run(0.0)
        message, max_bytes = self.request.message, self._max_bytes()
        wait_s = min(max(message.max_wait_ms, 0), WAIT_MS_MAX) / 1000
        parts = read_stored_now(self.context.fetch.reads, self._entries, max_bytes)
        if parts is not None:
            found_bytes = len(parts[0].data) if len(parts) == 1 else sum([len(part.data) for part in parts])
            if not wait_s or found_bytes >= min(message.min_bytes, max_bytes):
                return self.answer(parts)
            if not found_bytes and self._begin_quiet_wait(wait_s):
                return self
        return self.run(wait_s)

    async def run(self, wait_s: float) -> FetchAnswer:
        """Waits and reads, at other processes too."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        if self.request.message.min_bytes > 0 and wait_s > 0:
            await self._wait(deadline)
        parts = await self._read()
        while self._is_to_look_again(parts) and (left_s := deadline - loop.time()) > 0:
            await asyncio.sleep(min(left_s, PAUSE_S))
            parts = await self._read()
        self._forget_lost_rights()
        return self.answer(parts)

    # A wait without a task

    def _begin_quiet_wait(self, wait_s: float) -> bool:
        """Begins to wait. Returns False if that takes a task."""
        reads, client = self.context.fetch.reads, self.request.client
        if reads.lifecycle.is_draining or client.polling is not None:
            return False
        sources = quiet_sources(reads, self._entries)
        if sources is None:
            return False
        try:
            self.context.fetch.long_polls.begin(len(sources))
        except Problem:  # too many are open
            return False
        self._polls = len(sources)
        self._loop = loop = asyncio.get_running_loop()
        self._deadline = loop.time() + wait_s
        client.polling = self
        self.begin_wait(sources, self._deadline)
        return True

    def set_result(self, position: object, /) -> None:
        """Answers, or waits on: the wait may have ended without records."""
        self.end_wait()
        reads = self.context.fetch.reads
        if not self.is_late and not reads.lifecycle.is_draining:
            sources = quiet_sources(reads, self._entries)
            if sources is not None:
                self.begin_wait(sources, self._deadline)
                return
        self._end_polling()
        try:
            self._forget_lost_rights()
            parts = read_stored_now(reads, self._entries, self._max_bytes())
            least_bytes = min(self.request.message.min_bytes, self._max_bytes())
            if parts is None or (not self.is_late and sum([len(part.data) for part in parts]) < least_bytes):
                wait_s = 0.0 if self.is_late else max(0.0, self._deadline - self._loop.time())
                self._task = start_task(self._run_on(wait_s))
                return
            outcome: FetchAnswer | Exception = self.answer(parts)
        except Exception as error:
            outcome = error
        self.complete(outcome)

    async def _run_on(self, wait_s: float) -> None:
        try:
            outcome: FetchAnswer | Exception = await self.run(wait_s)
        except Exception as error:
            outcome = error
        self.complete(outcome)

    def cancel(self) -> None:
        self._end_polling()
        if self._task is not None:
            self._task.cancel()
        super().cancel()

    def _end_polling(self) -> None:
        if self._polls:
            self.context.fetch.long_polls.end(self._polls)
            self._polls, self.request.client.polling = 0, None

    # Within a task

    async def _wait(self, deadline: float) -> None:
        """Waits until there are enough bytes, a partition has a problem, another request has come, or it is late."""
        if any(one.follower is not None or one.preferred is not None for one in self.asked):
            return  # what the leader has is not here yet, or is read elsewhere
        loop, client, polls = asyncio.get_running_loop(), self.request.client, self.context.fetch.long_polls
        reading = MultiFetch(self.context.fetch, [entry.read for entry in self._entries])
        looked = await reading.check_available()
        least_bytes = min(self.request.message.min_bytes, self._max_bytes())
        is_over = looked.has_problem or looked.has_moved or looked.size_bytes >= least_bytes
        left_s = deadline - loop.time()
        if is_over or left_s <= 0 or client.is_waiting or self.context.lifecycle.is_draining:
            return
        client.behind = behind = loop.create_future()
        try:
            with polls.waiting(len(self._entries)):
                await reading.wait(least_bytes, left_s, behind)
        except Problem:  # too many long polls are open: this one comes again later
            self.request.throttle_ms = max(self.request.throttle_ms, BUSY_MS)
        finally:
            client.behind = None

    async def _read(self) -> list[StoredPart]:
        """Reads what is there, each partition at its owner."""
        by_owner: dict[Owner | None, list[int]] = {}
        peers, entries = self.context.peers, self._entries
        for index, one in enumerate(one for one in self.asked if one.entry is not None):
            read = entries[index].read
            try:
                owner: Owner | None = one.follower or peers.owner(read.topic_id, read.partition)
            except NoLeader:
                owner = None
            by_owner.setdefault(owner, []).append(index)
        share = max(1, self._max_bytes() // len(by_owner))
        found: dict[int, StoredPart] = {}
        reads = [
            self._read_at(owner, [entries[index] for index in indexes], share) for owner, indexes in by_owner.items()
        ]
        results = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
        for indexes, parts in zip(by_owner.values(), results, strict=True):
            found |= zip(indexes, parts, strict=True)
        return [found[index] for index in range(len(entries))]

    async def _read_at(self, owner: Owner | None, entries: list[StoredEntry], max_bytes: int) -> list[StoredPart]:
        peers, reads = self.context.peers, self.context.fetch.reads
        if owner is None or owner.node_id is not None:
            return [StoredPart(b"", NO_OFFSET, NO_OFFSET, NoLeader.code)] * len(entries)
        if peers.is_local(owner):
            return await read_stored(reads, entries, max_bytes)
        try:
            link = peers.link(owner)
            heads, body = await link.call(READ_STORED, StoredArguments(entries, max_bytes), timeout_s=CALL_S)
        except (Busy, LinkLost, EngineError):
            return [StoredPart(b"", NO_OFFSET, NO_OFFSET, BUSY.code)] * len(entries)
        return unpacked(heads, body)

    def _max_bytes(self) -> int:
        """Returns about how many bytes are read: fewer while clients do not read what they have asked for."""
        most = 1 if self.context.responses.is_full else self.context.settings.fetch_bytes_max
        asked: int = self.request.message.max_bytes
        return min(max(asked, 1), most)

    def _is_to_look_again(self, parts: Sequence[StoredPart]) -> bool:
        """Returns whether nothing was found by an entry that no wait covers.

        No wait covers an entry ahead of the high watermark, or at a follower.
        """
        if self.request.client.is_waiting or any(
            len(part.data) or part.problem is not None or part.diverging is not None for part in parts
        ):
            return False
        return any(
            entry.from_follower or entry.read.offset > part.high_watermark
            for entry, part in zip(self._entries, parts, strict=True)
        )

    def _forget_lost_rights(self) -> None:
        """Refuses the topics that the client may not read any more: rules may have changed during the wait.

        Raises Malformed for a client that is not known any more.
        """
        if self.context.access.tokens is None:
            return
        check_still_known(self.request.client, self.context.access, self.context.clock.now_ms())
        caller = self.request.caller
        self.asked = [
            one
            if one.entry is None or caller.allows(Operation.READ, one.topic)
            else one._replace(error=Error.TOPIC_AUTHORIZATION_FAILED)
            for one in self.asked
        ]
