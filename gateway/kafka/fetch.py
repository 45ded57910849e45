"""Fetch: stored batches of many partitions, with one wait for them all.

A request names its partitions, or goes on with those of its session (fetch_sessions.py). Partitions of this node are
read by the process that owns them (stored_reads.py); for those of other nodes the client has to look for their leader
again, but for followers in its rack. A fetch that finds enough in memory is answered in its call; one that finds
nothing waits without a task (fetch_waits.py), and whatever takes longer is a task.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from gateway.fetch.reader import PartitionRead
from gateway.http.rights import Operation
from gateway.kafka.cluster import (
    brokers,
    closest_replica,
    find_topic,
    find_topic_by_key,
    is_of_this_node,
    leadership,
    may_know,
    own_follower,
)
from gateway.kafka.codec.fetch import (
    ENDPOINT_VERSION,
    FLEXIBLE_VERSION,
    ID_VERSION,
    NO_OFFSET,
    RACK_VERSION,
    FetchAnswer,
    FetchRequest,
    FetchRow,
    Key,
)
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of_read
from gateway.kafka.fetch_sessions import NO_SESSION, Begun, FetchPosition
from gateway.kafka.fetch_waits import Asked, FetchWork
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.stored_reads import FENCED, UNKNOWN_EPOCH, StoredEntry, StoredPart

_EPOCH_ERRORS = {FENCED: Error.FENCED_LEADER_EPOCH, UNKNOWN_EPOCH: Error.UNKNOWN_LEADER_EPOCH}
_LEADER_ERRORS = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)


def fetch(request: KafkaRequest, context: KafkaContext) -> FetchAnswer | FetchWork | Coroutine[Any, Any, FetchAnswer]:
    """Reads batches, and waits for them as the request says."""
    message: FetchRequest = request.message
    if message.replica_id >= 0:  # followers of our own have their own connections
        return FetchAnswer(error=request.note(Error.INVALID_REQUEST))
    has_ids = request.version >= ID_VERSION
    begun = context.fetch_sessions.begin(request.client, message, request.owner, request.began, has_ids=has_ids)
    if isinstance(begun, Error):
        return FetchAnswer(error=request.note(begun))
    asked = [_ask(request, context, position) for position in begun.positions]
    return _Fetch(request, context, asked, begun).begin()


def _ask(request: KafkaRequest, context: KafkaContext, position: FetchPosition) -> Asked:
    """Returns what is to be read of a position, or its error."""
    key, (number, epoch, offset, last_epoch, max_bytes) = position.key, position.asked
    topic = find_topic_by_key(context, key)
    if topic is None:
        name = key if isinstance(key, str) else ""
        if name and not request.caller.allows(Operation.READ, name):
            return Asked(position, name, None, Error.TOPIC_AUTHORIZATION_FAILED)
        return Asked(position, name, None, _UNKNOWN[isinstance(key, bytes)])
    name, topic_id = topic.record.name, topic.record.topic_id
    if isinstance(key, bytes) and not may_know(request, name):
        return Asked(position, "", None, Error.UNKNOWN_TOPIC_ID)
    if not request.caller.allows(Operation.READ, name):
        return Asked(position, name, None, Error.TOPIC_AUTHORIZATION_FAILED)
    if not 0 <= number < topic.record.partitions:
        return Asked(position, name, None, Error.UNKNOWN_TOPIC_OR_PARTITION)
    if offset < 0:
        return Asked(position, name, None, Error.OFFSET_OUT_OF_RANGE)
    read = PartitionRead(name, topic_id, number, offset)
    rack = request.message.rack
    if is_of_this_node(context, topic_id, number):
        preferred = closest_replica(context, topic_id, number, rack) if rack else None
        return Asked(position, name, StoredEntry(read, max_bytes, epoch, last_epoch), Error.NONE, preferred)
    if rack and rack == context.settings.rack and request.version >= RACK_VERSION:
        follower = own_follower(context, topic_id, number)
        if follower is not None:
            entry = StoredEntry(read, max_bytes, epoch, last_epoch, from_follower=True)
            return Asked(position, name, entry, Error.NONE, None, follower)
    return Asked(position, name, None, Error.NOT_LEADER_OR_FOLLOWER)


_UNKNOWN = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)  # by name, by id


class _Fetch(FetchWork):
    """A fetch whose answer leaves out what its session has sent."""

    __slots__ = ("_begun",)

    def __init__(self, request: KafkaRequest, context: KafkaContext, asked: Sequence[Asked], begun: Begun) -> None:
        super().__init__(request, context, asked)
        self._begun = begun

    def answer(self, parts: Sequence[StoredPart]) -> FetchAnswer:
        request, session, is_whole = self.request, self._begun.session, self._begun.is_whole
        left = iter(parts)
        topics: list[tuple[Key, list[FetchRow]]] = []
        key: Key | None = None
        has_moved = False
        for asked in self.asked:
            row = self._row(asked, None if asked.entry is None else next(left))
            has_moved = has_moved or row.leader is not None
            if session is not None:
                is_sent = session.note_sent(asked.position, row)
                if not (is_sent or is_whole):
                    continue
            if asked.position.key != key:
                key = asked.position.key
                topics.append((key, []))
            topics[-1][1].append(row)
        return FetchAnswer(
            topics,
            is_committed=request.message.is_committed,
            session_id=NO_SESSION if session is None else session.id,
            endpoints=brokers(self.context) if has_moved and request.version >= ENDPOINT_VERSION else (),
        )

    def _row(self, asked: Asked, part: StoredPart | None) -> FetchRow:
        number = asked.position.asked.number
        if part is None or asked.error is not Error.NONE:
            error = self.request.note(asked.error)
            return FetchRow(number, error, NO_OFFSET, NO_OFFSET, b"", None, self._leader(asked, error))
        data, high_watermark, log_start, problem, diverging = part
        if problem is not None:
            error = self.request.note(_EPOCH_ERRORS.get(problem) or error_of_read(problem, self.request.version))
            return FetchRow(number, error, NO_OFFSET, NO_OFFSET, b"", None, self._leader(asked, error))
        if (
            asked.preferred is not None
            and diverging is None
            and log_start <= asked.position.asked.offset <= high_watermark
        ):
            # A follower in sync has as much.
            return FetchRow(number, 0, high_watermark, log_start, b"", None, None, asked.preferred)
        return FetchRow(number, 0, high_watermark, log_start, data, diverging)

    def _leader(self, asked: Asked, error: Error) -> tuple[int, int] | None:
        """Returns the leader that goes with an error about a leader."""
        if error not in _LEADER_ERRORS or self.request.version < FLEXIBLE_VERSION:
            return None
        topic = find_topic(self.context, asked.topic)
        if topic is None:
            return None
        found = leadership(self.context, topic, asked.position.asked.number)
        return found.leader, found.epoch
