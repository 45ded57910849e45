"""Fetch: stored batches of many partitions, with one wait for them all. Sessions are refused: each request is whole.

Partitions of this node are read by the process that owns them; for those of other nodes the client has to look for
their leader again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from engine.errors import EngineError
from gateway.fetch.multi_fetch import BUSY, CALL_S, MultiFetch
from gateway.fetch.reader import PartitionRead
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.cluster import find_topic, is_of_this_node
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of_read
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.sasl import check_still_known
from gateway.kafka.stored_reads import (
    FENCED,
    READ_STORED,
    UNKNOWN_EPOCH,
    StoredArguments,
    StoredEntry,
    StoredPart,
    read_stored,
    read_stored_now,
    unpacked,
)
from gateway.links.link import Busy, LinkLost
from gateway.routing.peers import Owner
from replication.errors import NoLeader

READ_COMMITTED = 1
NO_POSITION = -1
WAIT_MS_MAX = 60_000
BUSY_MS = 100  # a client whose wait found no room is not read for this long
PAUSE_S = 0.05  # before another look at a position that the high watermark has not reached
_EPOCH_ERRORS = {FENCED: Error.FENCED_LEADER_EPOCH, UNKNOWN_EPOCH: Error.UNKNOWN_LEADER_EPOCH}

Response, TopicRow, PartitionRow, Diverging = (
    types_of("Fetch")[path]
    for path in ("", "responses", "responses.partitions", "responses.partitions.diverging_epoch")
)


class Wanted(NamedTuple):
    """One partition of a request. `entry` is what to read, or None with the error of the partition."""

    topic: str
    number: int
    entry: StoredEntry | None
    error: Error


def fetch(request: KafkaRequest, context: KafkaContext) -> Message | Coroutine[Any, Any, Message]:
    """Reads batches, and waits for them as the request says."""
    message = request.message
    if message.replica_id >= 0:  # followers of our own have their own connections
        return Response(error_code=request.note(Error.INVALID_REQUEST))
    wanted = [
        _wanted(request, context, of_topic.topic, one) for of_topic in message.topics for one in of_topic.partitions
    ]
    fetching = _Fetch(request, context, wanted)
    return fetching.answer_now() or fetching.run()


def _wanted(request: KafkaRequest, context: KafkaContext, name: str, one: Message) -> Wanted:
    if not request.caller.allows(Operation.READ, name):
        return Wanted(name, one.partition, None, Error.TOPIC_AUTHORIZATION_FAILED)
    topic = find_topic(context, name)
    if topic is None or not 0 <= one.partition < topic.record.partitions:
        return Wanted(name, one.partition, None, Error.UNKNOWN_TOPIC_OR_PARTITION)
    if one.fetch_offset < 0:
        return Wanted(name, one.partition, None, Error.OFFSET_OUT_OF_RANGE)
    topic_id = topic.record.topic_id
    if not is_of_this_node(context, topic_id, one.partition):
        return Wanted(name, one.partition, None, Error.NOT_LEADER_OR_FOLLOWER)
    read = PartitionRead(name, topic_id, one.partition, one.fetch_offset)
    entry = StoredEntry(read, one.partition_max_bytes, one.current_leader_epoch, one.last_fetched_epoch)
    return Wanted(name, one.partition, entry, Error.NONE)


class _Fetch:
    """One fetch on its way."""

    def __init__(self, request: KafkaRequest, context: KafkaContext, wanted: Sequence[Wanted]) -> None:
        self._request = request
        self._context = context
        self._wanted = wanted
        self._entries = [one.entry for one in wanted if one.entry is not None]

    def answer_now(self) -> Message | None:
        """Returns the answer if it is there in memory, with enough bytes; None: it takes a task."""
        message = self._request.message
        if len(self._entries) < len(self._wanted) or not self._entries:
            return None
        parts = read_stored_now(self._context.fetch.reads, self._entries, self._max_bytes())
        least_bytes = min(message.min_bytes, self._max_bytes()) if message.max_wait_ms > 0 else 0
        if parts is None or sum(len(part.data) for part in parts) < least_bytes:
            return None
        return self._response(parts)

    async def run(self) -> Message:
        request = self._request
        loop = asyncio.get_running_loop()
        wait_s = min(max(request.message.max_wait_ms, 0), WAIT_MS_MAX) / 1000
        deadline = loop.time() + wait_s
        has_errors = len(self._entries) < len(self._wanted)
        if not self._entries:
            return self._response([])
        if request.message.min_bytes > 0 and wait_s > 0 and not has_errors:
            await self._wait(deadline)
        parts = await self._read()
        while _is_empty(parts) and self._is_ahead(parts) and (left_s := deadline - loop.time()) > 0 and not has_errors:
            await asyncio.sleep(min(left_s, PAUSE_S))
            parts = await self._read()
        self._forget_lost_rights()
        return self._response(parts)

    async def _wait(self, deadline: float) -> None:
        """Waits until there are enough bytes, a partition has a problem, another request has come, or it is late."""
        loop, client, polls = asyncio.get_running_loop(), self._request.client, self._context.fetch.long_polls
        reading = MultiFetch(self._context.fetch, [entry.read for entry in self._entries])
        looked = await reading.check_available()
        least_bytes = min(self._request.message.min_bytes, self._max_bytes())
        is_over = looked.has_problem or looked.has_moved or looked.size_bytes >= least_bytes
        left_s = deadline - loop.time()
        if is_over or left_s <= 0 or client.is_waiting or self._context.lifecycle.is_draining:
            return
        client.behind = behind = loop.create_future()
        try:
            with polls.waiting():
                await reading.wait(least_bytes, left_s, behind)
        except Problem:  # too many long polls are open: this one comes again later
            self._request.throttle_ms = max(self._request.throttle_ms, BUSY_MS)
        finally:
            client.behind = None

    async def _read(self) -> list[StoredPart]:
        """Reads what is there, each partition at its owner."""
        by_owner: dict[Owner | None, list[int]] = {}
        peers = self._context.peers
        for index, entry in enumerate(self._entries):
            try:
                owner: Owner | None = peers.owner(entry.read.topic_id, entry.read.partition)
            except NoLeader:
                owner = None
            by_owner.setdefault(owner, []).append(index)
        share = max(1, self._max_bytes() // len(by_owner))
        found: dict[int, StoredPart] = {}
        reads = [
            self._read_at(owner, [self._entries[index] for index in indexes], share)
            for owner, indexes in by_owner.items()
        ]
        results = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
        for indexes, parts in zip(by_owner.values(), results, strict=True):
            found |= zip(indexes, parts, strict=True)
        return [found[index] for index in range(len(self._entries))]

    async def _read_at(self, owner: Owner | None, entries: list[StoredEntry], max_bytes: int) -> list[StoredPart]:
        peers, reads = self._context.peers, self._context.fetch.reads
        if owner is None or owner.node_id is not None:
            return [StoredPart(b"", NO_POSITION, NO_POSITION, NoLeader.code)] * len(entries)
        if peers.is_local(owner):
            return await read_stored(reads, entries, max_bytes)
        try:
            link = peers.link(owner)
            heads, body = await link.call(READ_STORED, StoredArguments(entries, max_bytes), timeout_s=CALL_S)
        except (Busy, LinkLost, EngineError):
            return [StoredPart(b"", NO_POSITION, NO_POSITION, BUSY.code)] * len(entries)
        return unpacked(heads, body)

    def _max_bytes(self) -> int:
        """Returns about how many bytes are read: fewer while clients do not read what they have asked for."""
        most = 1 if self._context.responses.is_full else self._context.settings.fetch_bytes_max
        asked: int = self._request.message.max_bytes
        return min(max(asked, 1), most)

    def _is_ahead(self, parts: Sequence[StoredPart]) -> bool:
        """Returns whether a position lies ahead of the high watermark: a wait there ends at once."""
        return any(
            part.problem is None and entry.read.offset > part.high_watermark
            for entry, part in zip(self._entries, parts, strict=True)
        )

    def _forget_lost_rights(self) -> None:
        """Refuses the topics that the client may not read any more: rules may have changed during the wait.

        Raises Malformed for a client that is not known any more.
        """
        if self._context.access.tokens is None:
            return
        check_still_known(self._request.client, self._context.access, self._context.clock.now_ms())
        caller = self._request.caller
        self._wanted = [
            one
            if one.entry is None or caller.allows(Operation.READ, one.topic)
            else one._replace(error=Error.TOPIC_AUTHORIZATION_FAILED)
            for one in self._wanted
        ]

    def _response(self, parts: Sequence[StoredPart]) -> Message:
        found = iter(parts)
        topics: list[Message] = []
        for one in self._wanted:
            if not topics or topics[-1].topic != one.topic:
                topics.append(TopicRow(one.topic, partitions=[]))
            topics[-1].partitions.append(self._row(one, None if one.entry is None else next(found)))
        return Response(throttle_time_ms=self._request.throttle_ms, responses=topics)

    def _row(self, one: Wanted, part: StoredPart | None) -> Message:
        request = self._request
        if part is None or one.error is not Error.NONE:
            return PartitionRow(
                partition_index=one.number, error_code=request.note(one.error), high_watermark=NO_POSITION, records=b""
            )
        error, data = Error.NONE, part.data
        if part.problem is not None:
            error, data = _EPOCH_ERRORS.get(part.problem) or error_of_read(part.problem, request.version), b""
        aborted: list[Message] | None = [] if request.message.isolation_level == READ_COMMITTED else None
        row = PartitionRow(
            partition_index=one.number,
            error_code=request.note(error),
            high_watermark=part.high_watermark,
            last_stable_offset=part.high_watermark,
            log_start_offset=part.log_start,
            aborted_transactions=aborted,
            records=data,
        )
        if part.diverging is not None:
            row.diverging_epoch = Diverging(*part.diverging)
        return row


def _is_empty(parts: Sequence[StoredPart]) -> bool:
    return not any(len(part.data) or part.problem is not None or part.diverging is not None for part in parts)
