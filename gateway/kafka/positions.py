"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: positions of partitions, asked at their leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from engine.errors import EngineError
from engine.log.epochs import end_offset_for, epoch_before
from engine.partition.partition import Partition
from gateway.admin.partition_calls import DELETE_BEFORE
from gateway.fetch.context import ReadContext
from gateway.fetch.reader import find_time
from gateway.http.problems import Problem
from gateway.http.rights import Operation
from gateway.kafka.audit import audited
from gateway.kafka.cluster import UNKNOWN_EPOCH, find_topic, is_of_this_node
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of, error_of_read
from gateway.kafka.requests import KafkaRequest
from gateway.kafka.stored_reads import epochs_of
from gateway.routing.router import Answering, PartitionCall

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
FIRST_VERSIONS = {
    LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11
}  # fmt: skip
UNKNOWN = -1  # an offset or a time
AT_ONCE = 100  # partitions of one request that are asked side by side

Offsets, OffsetsTopic, OffsetsRow = (types_of("ListOffsets")[path] for path in ("", "topics", "topics.partitions"))
Epochs, EpochsTopic, EpochsRow = (
    types_of("OffsetForLeaderEpoch")[path] for path in ("", "topics", "topics.partitions")
)
Deleted, DeletedTopic, DeletedRow = (types_of("DeleteRecords")[path] for path in ("", "topics", "topics.partitions"))


class Bound(NamedTuple):
    """An offset of a partition, its time, and the leader epoch of the record there; `own_epoch` is the partition's."""

    offset: int
    timestamp: int
    epoch: int
    own_epoch: int


class EpochBound(NamedTuple):
    """The end of an epoch, as the leader of `own_epoch` has it."""

    epoch: int
    end_offset: int
    own_epoch: int


FIND_BOUND: PartitionCall[int, Bound] = PartitionCall("find_bound", int)
FIND_EPOCH_END: PartitionCall[int, EpochBound] = PartitionCall("find_epoch_end", int)


async def find_bound(context: ReadContext, partition: Partition, timestamp: int) -> tuple[Bound, bytes]:
    """Finds an offset: of a place in the log, the latest time, or the first record at or after a time."""
    context.partitions.replica(partition).check_latest()
    place = _place(context, partition, timestamp)
    if place is not None:
        return _bound(partition, place, UNKNOWN), b""
    if timestamp == MAX_TIMESTAMP:
        found = await _find_latest_time(context, partition)
    else:
        found = await find_time(context, partition, timestamp)
    return _bound(partition, *(found or (UNKNOWN, UNKNOWN))), b""


def _place(context: ReadContext, partition: Partition, timestamp: int) -> int | None:
    """Returns the offset of a place in the log; -1 for a place that it does not have, None for a time."""
    log, has_store = partition.log, bool(context.tier.store_url) and not partition.settings.is_compacted
    if timestamp == LATEST:
        return partition.high_watermark
    if timestamp == EARLIEST:
        return log.log_start
    if timestamp == EARLIEST_LOCAL:
        return max(log.log_start, log.local_log_start)
    if timestamp == LATEST_TIERED:
        return context.tier.tiered_end(partition) - 1 if has_store else UNKNOWN
    if timestamp == EARLIEST_PENDING:
        return max(log.log_start, context.tier.tiered_end(partition)) if has_store else UNKNOWN
    return None


async def _find_latest_time(context: ReadContext, partition: Partition) -> tuple[int, int] | None:
    """Finds the first committed record with the latest time of all, as (offset, its time).

    Segments know their latest time. It may be that of a record that is not committed yet, or the store may have a later
    one: then the search goes on by halves.
    """
    latest: tuple[int, int] | None = None
    low, high, step = UNKNOWN, None, 1
    probe = max([0, *(segment.max_timestamp for segment in partition.log.segments)])
    while high is None or high - low > 1:
        found = await find_time(context, partition, probe)
        if found is None:
            high = probe
        else:
            latest, low = found, found[1]
        if high is not None:
            probe = (low + high) // 2
        else:
            probe, step = low + step, 2 * step
    return latest


def _bound(partition: Partition, offset: int, timestamp: int) -> Bound:
    epoch = UNKNOWN_EPOCH if offset < 0 else epoch_before(epochs_of(partition), offset + 1)
    return Bound(offset, timestamp, epoch, partition.log.leader_epoch)


async def find_epoch_end(context: ReadContext, partition: Partition, epoch: int) -> tuple[EpochBound, bytes]:
    """Finds where an epoch ends, as far as clients may read."""
    context.partitions.replica(partition).check_latest()
    found, own = end_offset_for(epochs_of(partition), epoch, partition.high_watermark), partition.log.leader_epoch
    if found is None:
        return EpochBound(UNKNOWN_EPOCH, UNKNOWN, own), b""
    return EpochBound(found.epoch, min(found.end_offset, partition.high_watermark), own), b""


def position_calls(context: ReadContext) -> list[Answering]:
    """Returns the calls to partitions of this process."""
    return [
        FIND_BOUND.by(partial(find_bound, context)),
        FIND_EPOCH_END.by(partial(find_epoch_end, context)),
    ]


async def list_offsets(request: KafkaRequest, context: KafkaContext) -> Message:
    """Answers the offsets of times."""
    topics = await _rows(request, context, Operation.READ, _find_offset)
    return Offsets(topics=[OffsetsTopic(name, rows) for name, rows in topics])


async def _find_offset(request: KafkaRequest, context: KafkaContext, topic: str, one: Message) -> Message:
    timestamp = one.timestamp
    if timestamp < 0 and request.version < FIRST_VERSIONS.get(timestamp, request.version + 1):
        return OffsetsRow(one.partition_index, request.note(Error.UNSUPPORTED_VERSION))
    found = await _call(context, FIND_BOUND, topic, one.partition_index, timestamp)
    if isinstance(found, EngineError | Problem):
        error = error_of_read(found.code, 11)
        if error is Error.OFFSET_NOT_AVAILABLE and request.version < 5:
            error = Error.LEADER_NOT_AVAILABLE
        return OffsetsRow(one.partition_index, request.note(error))
    bound = Bound(*found)
    error = _epoch_error(one.current_leader_epoch, bound.own_epoch)
    if error is not Error.NONE:
        return OffsetsRow(one.partition_index, request.note(error))
    return OffsetsRow(one.partition_index, 0, bound.timestamp, bound.offset, bound.epoch)


async def offset_for_leader_epoch(request: KafkaRequest, context: KafkaContext) -> Message:
    """Answers where leader epochs end, so that clients notice records that were cut off."""
    topics = await _rows(request, context, Operation.READ, _find_end)
    return Epochs(topics=[EpochsTopic(name, rows) for name, rows in topics])


async def _find_end(request: KafkaRequest, context: KafkaContext, topic: str, one: Message) -> Message:
    found = await _call(context, FIND_EPOCH_END, topic, one.partition, one.leader_epoch)
    if isinstance(found, EngineError | Problem):
        return EpochsRow(request.note(error_of_read(found.code, 11)), one.partition)
    bound = EpochBound(*found)
    error = _epoch_error(one.current_leader_epoch, bound.own_epoch)
    if error is not Error.NONE:
        return EpochsRow(request.note(error), one.partition)
    return EpochsRow(0, one.partition, bound.epoch, bound.end_offset)


async def delete_records(request: KafkaRequest, context: KafkaContext) -> Message:
    """Deletes the records before an offset."""
    topics = await _rows(request, context, Operation.ALTER, _delete_before)
    return Deleted(topics=[DeletedTopic(name, rows) for name, rows in topics])


async def _delete_before(request: KafkaRequest, context: KafkaContext, topic: str, one: Message) -> Message:
    number, before = one.partition_index, one.offset
    found = context.topics.topic(topic)
    if found.settings.cleanup_policy == "compact":
        return DeletedRow(number, UNKNOWN, request.note(Error.POLICY_VIOLATION))
    if before == UNKNOWN:  # all of them
        bound = await _call(context, FIND_BOUND, topic, number, LATEST)
        if isinstance(bound, EngineError | Problem):
            return DeletedRow(number, UNKNOWN, request.note(error_of(bound)))
        before = Bound(*bound).offset
    if before < 0:
        return DeletedRow(number, UNKNOWN, request.note(Error.OFFSET_OUT_OF_RANGE))
    try:
        async with audited(request, context, Operation.ALTER, topic, after={"partition": number, "before": before}):
            await context.router.call(DELETE_BEFORE, topic, number, before)
    except (EngineError, Problem) as failed:
        return DeletedRow(number, UNKNOWN, request.note(error_of(failed)))
    start = await _call(context, FIND_BOUND, topic, number, EARLIEST)
    if isinstance(start, EngineError | Problem):
        return DeletedRow(number, UNKNOWN, request.note(error_of(start)))
    return DeletedRow(number, Bound(*start).offset)


def _epoch_error(given: int, own: int) -> Error:
    """Returns the error of a client that knows another leader epoch; -1: it does not say."""
    if given in (UNKNOWN_EPOCH, own):
        return Error.NONE
    return Error.FENCED_LEADER_EPOCH if given < own else Error.UNKNOWN_LEADER_EPOCH


async def _call(context: KafkaContext, call: Any, topic: str, number: int, argument: int) -> Any:
    """Returns what a call returns, or its error."""
    try:
        found, _ = await context.router.call(call, topic, number, argument)
    except (EngineError, Problem) as error:
        return error
    return found


Ask = Callable[[KafkaRequest, KafkaContext, str, Message], Coroutine[Any, Any, Message]]


async def _rows(
    request: KafkaRequest, context: KafkaContext, operation: Operation, ask: Ask
) -> list[tuple[str, list[Message]]]:
    """Returns the rows of each topic: what `ask` returns for each partition that the caller may ask about."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def row(name: str, one: Message) -> Message:
        error = _refusal(request, context, operation, name, _number_of(one))
        if error is not Error.NONE:
            made = _ROWS[ask]
            return made(request.note(error), _number_of(one))
        async with gate:
            return await ask(request, context, name, one)

    topics = [(one.name if hasattr(one, "name") else one.topic, one.partitions) for one in request.message.topics]
    rows = await asyncio.gather(*(row(name, one) for name, partitions in topics for one in partitions))
    found = iter(rows)
    return [(name, [next(found) for _ in partitions]) for name, partitions in topics]


def _number_of(one: Message) -> int:
    number: int = one.partition if hasattr(one, "partition") else one.partition_index
    return number


def _refusal(request: KafkaRequest, context: KafkaContext, operation: Operation, name: str, number: int) -> Error:
    if not request.caller.allows(operation, name):
        return Error.TOPIC_AUTHORIZATION_FAILED
    topic = find_topic(context, name)
    if topic is None or not 0 <= number < topic.record.partitions:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if not is_of_this_node(context, topic.record.topic_id, number):
        return Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE


_ROWS: dict[Ask, Callable[[Error, int], Message]] = {
    _find_offset: lambda error, number: OffsetsRow(number, error, UNKNOWN, UNKNOWN),
    _find_end: EpochsRow,
    _delete_before: lambda error, number: DeletedRow(number, UNKNOWN, error),
}
