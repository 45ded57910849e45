"""ShareFetch and ShareAcknowledge (KIP-932): records of share groups, locked for a member, and their outcomes.

The coordinator locks records of partitions that this node leads, and their owners read the stored batches around them;
the client takes the offsets that are its own. Records that were locked and do not fit are given back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.runtime.tasks import start_task
from gateway.fetch.multi_fetch import BUSY, CALL_S
from gateway.fetch.reader import PartitionRead
from gateway.groups.acquiring import Acquiring
from gateway.groups.hosting.coordinators import has_moved
from gateway.groups.model.errors import WrongGroupKind
from gateway.groups.share.values import Acquired, Granted, Outcome, Settlement
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.acknowledgements import release_all, settle
from gateway.kafka.cluster import find_topic_by_id, is_of_this_node, leadership, may_know
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.consumer_groups import is_member_id
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of_read
from gateway.kafka.groups import coordinator_error, refusal_of_group
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.sasl import check_still_known
from gateway.kafka.share_sessions import CLOSE, OPEN, Place, ShareSession
from gateway.kafka.stored_reads import READ_STORED, StoredArguments, StoredEntry, StoredPart, read_stored, unpacked
from gateway.links.link import Busy, LinkLost
from gateway.routing.leader_failover import is_transient
from replication.errors import NoLeader

WAIT_MS_MAX = 60_000
PAUSE_S = 0.05  # before another look after one whose records could not be read
RECORDS_MAX = 10_000  # of one lock, as over HTTP
READ_VERSION = 12  # of Fetch: its codes of reads are those of ShareFetch
NO_LEADER = (-1, -1)

Fetched, FetchedTopic, FetchedRow, FetchedLeader, AcquiredRow = (
    types_of("ShareFetch")[path]
    for path in ("", "responses", "responses.partitions", "responses.partitions.current_leader",
                 "responses.partitions.acquired_records")
)  # fmt: skip
Settled, SettledTopic, SettledRow, SettledLeader = (
    types_of("ShareAcknowledge")[path]
    for path in ("", "responses", "responses.partitions", "responses.partitions.current_leader")
)


class Read(NamedTuple):
    """The batches of a partition, and the ranges in them that are the member's, each with its count of deliveries."""

    data: bytes | bytearray | memoryview
    acquired: list[tuple[int, int, int]]
    error: Error = Error.NONE


async def share_acknowledge(request: KafkaRequest, context: KafkaContext) -> Message:
    """Gives records their outcomes."""
    message = request.message
    group, member_id, epoch = message.group_id or "", message.member_id or "", message.share_session_epoch
    error = _refusal(request, context)
    if error is Error.NONE and epoch == OPEN:
        error = Error.INVALID_SHARE_SESSION_EPOCH
    if error is Error.NONE:
        session = context.share_sessions.use(group, member_id, epoch, request.owner, context.clock.steady_ms() / 1000)
        error = session if isinstance(session, Error) else Error.NONE
    if error is not Error.NONE:
        return Settled(error_code=request.note(error))
    results = await settle(request, context, group, member_id, message.topics)
    if epoch == CLOSE:
        error = await release_all(context, group, member_id)
    rows: defaultdict[bytes, list[Message]] = defaultdict(list)
    for (topic_id, number), result in results.items():
        rows[topic_id].append(
            SettledRow(number, request.note(result), None, SettledLeader(*_leader(request, context, topic_id, number)))
        )
    responses = [SettledTopic(*row) for row in rows.items()]
    return Settled(error_code=request.note(error), responses=responses)


async def share_fetch(request: KafkaRequest, context: KafkaContext) -> Message:
    """Gives records their outcomes, then locks others and answers them."""
    message = request.message
    group, member_id, epoch = message.group_id or "", message.member_id or "", message.share_session_epoch
    error = _refusal(request, context)
    session: ShareSession | Error = error
    if error is Error.NONE:
        session = context.share_sessions.use(group, member_id, epoch, request.owner, context.clock.steady_ms() / 1000)
    if isinstance(session, Error):
        return Fetched(error_code=request.note(session))
    error = context.share_sessions.update(session, message.topics, message.forgotten_topics_data)
    if error is not Error.NONE:
        return Fetched(error_code=request.note(error))
    results = await settle(request, context, group, member_id, message.topics)
    if epoch == CLOSE:
        error = await release_all(context, group, member_id)
        fetching = _ShareFetch(request, context, session)
        fetching.look()
        return fetching.response({}, results, error)
    fetching = _ShareFetch(request, context, session)
    fetching.look()
    is_only_settling = message.max_records <= 0 or (request.version > 1 and message.is_renew_ack)
    try:
        reads = {} if is_only_settling else await fetching.read(group, member_id)
        error = fetching.refusal
    except (EngineError, Problem) as failed:
        reads, error = {}, coordinator_error(failed)
        if failed.code == WrongGroupKind.code:
            error = Error.GROUP_ID_NOT_FOUND
    return fetching.response(reads, results, error)


def _refusal(request: KafkaRequest, context: KafkaContext) -> Error:
    refused = refusal_of_group(request, context, request.message.group_id or "")
    if refused is Error.NONE and not is_member_id(request.message.member_id or ""):
        refused = Error.INVALID_REQUEST
    return refused


def _leader(request: KafkaRequest, context: KafkaContext, topic_id: bytes, number: int) -> tuple[int, int]:
    """Returns the leader of a partition that another node leads, and its epoch; for others nothing."""
    topic = find_topic_by_id(context, topic_id)
    if topic is None or not may_know(request, topic.record.name):
        return NO_LEADER
    if is_of_this_node(context, topic.record.topic_id, number):
        return NO_LEADER
    found = leadership(context, topic, number)
    return found.leader, found.epoch


class _ShareFetch:
    """One fetch on its way. `_errors` are those of partitions that it cannot read, `refusal` is that of its group."""

    def __init__(self, request: KafkaRequest, context: KafkaContext, session: ShareSession) -> None:
        self._request = request
        self._context = context
        self._partitions = tuple(session.partitions)
        self._errors: dict[Place, Error] = {}
        self._places: dict[tuple[str, int], Place] = {}
        self._lock_ms = 0
        self.refusal = Error.NONE

    def look(self) -> None:
        """Looks which partitions may be read. Raises Malformed for a client that is not known any more."""
        request, context = self._request, self._context
        check_still_known(request.client, context.access, context.clock.now_ms())
        self.refusal = _refusal(request, context)
        self._errors, self._places = {}, {}
        for place in self._partitions if self.refusal is Error.NONE else ():
            topic_id, number = place
            topic = find_topic_by_id(context, topic_id)
            if topic is None or not may_know(request, topic.record.name):
                self._errors[place] = Error.UNKNOWN_TOPIC_ID
            elif not request.caller.allows(Operation.READ, topic.record.name):
                self._errors[place] = Error.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= number < topic.record.partitions:
                self._errors[place] = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif not is_of_this_node(context, topic.record.topic_id, number):
                self._errors[place] = Error.NOT_LEADER_OR_FOLLOWER
            else:
                self._places[topic.record.name, number] = place

    def _has_lost(self) -> bool:
        """Looks again, since rules and topics may have changed. Returns whether less may be read than before."""
        before = self._errors
        self.look()
        return self.refusal is not Error.NONE or self._errors != before

    async def read(self, group: str, member_id: str) -> dict[Place, Read]:
        """Locks records and reads them; waits for some as the request says. Raises Problem, EngineError."""
        message, groups = self._request.message, self._context.groups
        topics = tuple(sorted({name for name, _ in self._places}))
        wait_ms = 0 if self._errors else min(max(message.max_wait_ms, 0), WAIT_MS_MAX)
        with groups.single_waiters.caller((group, topics)) as waiter:
            acquiring = Acquiring(
                groups,
                group,
                member_id,
                topics,
                waiter,
                max_records=min(message.max_records, RECORDS_MAX),
                wait_ms=wait_ms,
                is_asked=lambda name, number: (name, number) in self._places,
            )
            while self._places:
                lock = groups.new_id()
                try:
                    acquired = await acquiring.acquire(lock, await acquiring.collect_bounds())
                    self._lock_ms = acquired.lock_ms
                    if acquired.granted:
                        waiter.end()
                        if reads := await self._read_granted(acquiring, lock, acquired.granted):
                            return reads
                        if acquiring.budget.wait_left_ms <= 0:  # no record could be read
                            break
                        await asyncio.sleep(PAUSE_S)
                    elif not await self._wait(acquiring, acquired) or self._has_lost():
                        break
                except EngineError as error:
                    waiter.end()
                    if not has_moved(error) and not is_transient(error):
                        raise
                    await acquiring.budget.pause(error)
                    if self._has_lost():
                        break
        return {}

    async def _wait(self, acquiring: Acquiring, acquired: Acquired) -> bool:
        """Waits until something may be available. False: the time is over, or another request has come."""
        client, loop = self._request.client, asyncio.get_running_loop()
        if client.is_waiting:
            return False
        client.behind = behind = loop.create_future()
        waiting = start_task(acquiring.wait(acquired))
        try:
            await asyncio.wait([waiting, behind], return_when=asyncio.FIRST_COMPLETED)
            return waiting.done() and not behind.done() and waiting.result()
        finally:
            client.behind = None
            waiting.cancel()

    async def _read_granted(self, acquiring: Acquiring, lock: str, granted: Sequence[Granted]) -> dict[Place, Read]:
        """Reads what a lock has, and gives back what was not read."""
        by_slot: defaultdict[tuple[str, int], list[Granted]] = defaultdict(list)
        for one in granted:
            by_slot[one.topic, one.partition].append(one)
        max_bytes = 1 if self._context.responses.is_full else self._context.settings.fetch_bytes_max
        share_bytes = max(1, min(max(self._request.message.max_bytes, 1), max_bytes) // len(by_slot))
        parts = await asyncio.gather(*(self._read_at(ranges, share_bytes) for ranges in by_slot.values()))
        reads: dict[Place, Read] = {}
        settlements: list[Settlement] = []
        for (slot, ranges), part in zip(by_slot.items(), parts, strict=True):
            end = _end_of(part)
            taken = [(one.first, min(one.last, end - 1), one.deliveries) for one in ranges if one.first < end]
            settlements += [
                Settlement(*slot, max(one.first, end), one.last, Outcome.RETURN) for one in ranges if one.last >= end
            ]
            if part.problem is not None:
                error = error_of_read(part.problem, READ_VERSION)
                reads[self._places[slot]] = Read(b"", [], error)
            elif taken:
                reads[self._places[slot]] = Read(part.data, taken)
        if settlements:
            await acquiring.settle(lock, settlements)
        return reads

    async def _read_at(self, ranges: Sequence[Granted], max_bytes: int) -> StoredPart:
        """Reads stored batches of a partition at its owner, from the first record on."""
        peers, first = self._context.peers, ranges[0]
        entry = StoredEntry(PartitionRead(first.topic, first.topic_id, first.partition, first.first), max_bytes)
        try:
            owner = peers.owner(first.topic_id, first.partition)
            if peers.is_local(owner):
                [part] = await read_stored(self._context.fetch.reads, [entry], max_bytes)
                return part
            call = StoredArguments([entry], max_bytes)
            heads, body = await peers.link(owner).call(READ_STORED, call, timeout_s=CALL_S)
        except NoLeader as error:
            return StoredPart(b"", -1, -1, error.code)
        except (Busy, LinkLost, EngineError):
            return StoredPart(b"", -1, -1, BUSY.code)
        [part] = unpacked(heads, body)
        return part

    def response(self, reads: dict[Place, Read], results: dict[Place, Error], error: Error) -> Message:
        """Returns the answer: the partitions with records, with results of outcomes, or with errors."""
        request = self._request
        rows: defaultdict[bytes, list[Message]] = defaultdict(list)
        for place in {**reads, **results, **self._errors}:
            topic_id, number = place
            read = reads.get(place, Read(b"", [], self._errors.get(place, Error.NONE)))
            row = FetchedRow(
                partition_index=number,
                error_code=request.note(read.error),
                acknowledge_error_code=request.note(results.get(place, Error.NONE)),
                current_leader=FetchedLeader(*_leader(request, self._context, topic_id, number)),
                records=read.data,
                acquired_records=[AcquiredRow(*one) for one in read.acquired],
            )
            rows[topic_id].append(row)
        return Fetched(
            throttle_time_ms=request.throttle_ms,
            error_code=request.note(error),
            acquisition_lock_timeout_ms=self._lock_ms,
            responses=[FetchedTopic(*row) for row in rows.items()],
        )


def _end_of(part: StoredPart) -> int:
    """Returns the offset behind the batches of a part; 0 without any."""
    if part.problem is not None or not part.data:
        return 0
    *_, (_, header) = record_batch.walk(part.data)
    return header.next_offset
