"""Reads stored batches at the owner of their partitions, for fetches of Kafka's protocol from any process of the node.

Batches are given as they lie. Only what nodes alone may read is left out: control batches, whose tokens are secret,
and the entries of keyed batches. Batches that compaction left empty are passed over. At the end of the log a control
batch without a value is in place of both, since a reader that never receives a batch there would never reach it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from engine.errors import EngineError, OffsetAboveHighWatermark
from engine.format import batch as record_batch
from engine.format import keyed_batch
from engine.format.batch import Buffer
from engine.format.batch_header import Header, has_no_records, stamp, without_control
from engine.format.control_batch import empty_control
from engine.log.epochs import EpochStart, end_offset_for
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.runtime.disk import WouldBlock
from gateway.fetch.context import ReadContext
from gateway.fetch.partition_reads import STORED_BYTES_MAX
from gateway.fetch.reader import (
    PartitionRead,
    Source,
    budget_of,
    confirm_sources,
    count_bytes,
    find_source,
    read_batches,
    read_share_now,
    share_of,
)
from gateway.links.link import Answer, Handler, handler
from replication.errors import NotLeader
from replication.replica.replica import Replica

READ_STORED = "read_stored"
SKIPPED_READS = 64  # of batches without records, by one fetch of a partition
NO_EPOCH = -1
FENCED, UNKNOWN_EPOCH = "fenced_leader_epoch", "unknown_leader_epoch"  # codes of this call alone
_new = tuple.__new__


class StoredEntry(Struct, frozen=True, array_like=True):
    """A partition to read. `epoch` is the leader epoch that the client knows, `last_epoch` that of its last record.

    `from_follower`: a follower in sync answers too.
    """

    read: PartitionRead
    max_bytes: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    from_follower: bool = False


class StoredArguments(Struct, frozen=True, array_like=True):
    """Partitions of one owner, and about how many bytes of them all."""

    entries: list[StoredEntry]
    max_bytes: int


class StoredPart(NamedTuple):
    """The batches that were read of one partition. `diverging`: the last common epoch, and its end."""

    data: Buffer
    high_watermark: int
    log_start: int
    problem: str | None = None
    diverging: tuple[int, int] | None = None


async def read_stored(context: ReadContext, entries: Sequence[StoredEntry], max_bytes: int) -> list[StoredPart]:
    """Returns what is readable of each entry now, in their order; at least one batch if there is one."""
    found = [_find_source(context, entry) for entry in entries]
    parts: list[StoredPart | None] = [None] * len(entries)
    for index, (entry, source) in enumerate(zip(entries, found, strict=True)):
        if isinstance(source, Source):
            parts[index] = _by_epoch(context, entry, source.partition)
    asked = [index for index, part in enumerate(parts) if part is None]
    checked = await _check_sources(context, [found[index] for index in asked])
    sources = dict(zip(asked, checked, strict=True))
    readable = {index: source for index, source in sources.items() if isinstance(source, Source)}
    async with budget_of(context, list(readable.values())).hold(max_bytes) as granted_bytes:
        each_max = max((entries[index].max_bytes for index in readable), default=max_bytes)
        chunks = await read_batches(context, readable, granted_bytes, max(each_max, 1)) if readable else {}
        for index, source in sources.items():
            if isinstance(source, EngineError):
                parts[index] = _failed(found[index], source)
                continue
            chunk = chunks.get(index)
            if isinstance(chunk, EngineError):
                parts[index] = _failed(source, chunk)
                continue
            data: Buffer = b""
            if chunk is not None:
                count_bytes(context, source.partition, len(chunk.data))
                data = await _shown(context, source.partition, chunk, max(each_max, 1))
            parts[index] = _part(source.partition, data)
    return [part for part in parts if part is not None]


def read_stored_now(context: ReadContext, entries: Sequence[StoredEntry], max_bytes: int) -> list[StoredPart] | None:
    """Returns what `read_stored` returns; None if that takes a wait, a thread or much time, or has an error.

    It holds none of the budget, since it never waits.
    """
    budget = context.local_budget
    if budget.held_bytes and not budget.has_room(max_bytes):
        return None
    sources: list[Source] = []
    each_max, unread = 1, 0
    parts: list[StoredPart] = []
    try:
        for entry in entries:
            source = _readable_source(context, entry)
            if source is None or source.partition.validator.fencing.has_been_used:
                return None
            sources.append(source)
            unread += source.offset < source.partition.watermark.position
            each_max = max(each_max, entry.max_bytes)
        left, at_most = max_bytes, STORED_BYTES_MAX
        for partition, offset, _ in sources:
            data: Buffer = b""
            position = partition.watermark.position
            if offset < position and left > 0:
                data = read_share_now(context, partition, offset, share_of(left, unread, each_max), at_most).data
                left, at_most, unread = left - len(data), at_most - len(data), unread - 1
                if has_no_records(data):
                    return None
                count_bytes(context, partition, len(data))
                data = _without_entries(data)
            parts.append(_new(StoredPart, (data, position, partition.log.log_start, None, None)))
    except (WouldBlock, OSError, EngineError):
        return None
    return parts


def quiet_sources(context: ReadContext, entries: Sequence[StoredEntry]) -> list[Source] | None:
    """Returns the sources of entries without records, if this process has all of them; None for others."""
    sources: list[Source] = []
    try:
        for entry in entries:
            source = _readable_source(context, entry)
            if source is None or source.offset != source.partition.watermark.position:
                return None
            sources.append(source)
    except EngineError:
        return None
    return sources


def _readable_source(context: ReadContext, entry: StoredEntry) -> Source | None:
    """Returns a source of this process, at an offset that it has or at its end; None for others. Raises EngineError."""
    (topic, topic_id, number, offset, _), from_follower = entry.read, entry.from_follower
    partition = context.partitions.owned_partition(topic, topic_id, number, from_follower=from_follower)
    if partition.offline is not None or not partition.log.log_start <= offset <= partition.watermark.position:
        return None
    if _by_epoch(context, entry, partition) is not None:
        return None
    return _new(Source, (partition, offset, from_follower))


def _find_source(context: ReadContext, entry: StoredEntry) -> Source | EngineError:
    if not entry.from_follower:
        return find_source(context, entry.read)
    topic, topic_id, number, offset, _ = entry.read
    try:
        return Source(context.partitions.owned_partition(topic, topic_id, number, from_follower=True), offset, True)
    except EngineError as error:
        return error


async def _check_sources(context: ReadContext, sources: Sequence[Source | EngineError]) -> list[Source | EngineError]:
    """Returns the sources that are readable; in place of others, their errors.

    A position between the high watermark and the end of the log has no records yet, and is not out of range. A follower
    sends the client back to the leader, which alone knows whether a position is out of range.
    """
    of_leaders = [source for source in sources if not (isinstance(source, Source) and source.from_follower)]
    confirmed = iter(await confirm_sources(context, of_leaders))
    checked: list[Source | EngineError] = []
    for source in sources:
        if isinstance(source, Source) and source.from_follower:
            checked.append(_check_follower(source))
            continue
        result = next(confirmed)
        if (
            isinstance(source, Source)
            and isinstance(result, OffsetAboveHighWatermark)
            and source.offset <= source.partition.log_end
        ):
            result = source
        checked.append(result)
    return checked


def _check_follower(source: Source) -> Source | EngineError:
    partition, offset, _ = source
    if partition.offline is None and partition.log.log_start <= offset <= partition.log_end:
        return source
    return NotLeader(f"the follower of {partition.name} does not have offset {offset}")


def _by_epoch(context: ReadContext, entry: StoredEntry, partition: Partition) -> StoredPart | None:
    """Returns the answer that the epochs of a client decide; None: read."""
    if entry.epoch != NO_EPOCH:
        own = partition.log.leader_epoch
        if entry.from_follower and isinstance(replica := context.partitions.replica(partition), Replica):
            own = replica.role_epoch  # its log has the epoch of its last batch
        if entry.epoch != own:
            return _part(partition, b"", FENCED if entry.epoch < own else UNKNOWN_EPOCH)
    if entry.last_epoch == NO_EPOCH:
        return None
    end = end_offset_for(epochs_of(partition), entry.last_epoch, partition.log_end)
    if end is None or (end.epoch == entry.last_epoch and end.end_offset >= entry.read.offset):
        return None
    return _part(partition, b"")._replace(diverging=(end.epoch, end.end_offset))


def epochs_of(partition: Partition) -> Sequence[EpochStart]:
    """Returns where leader epochs begin. A standalone node, which has one, keeps no list."""
    log = partition.log
    return log.epochs or [EpochStart(log.leader_epoch, log.log_start)]


def _part(partition: Partition, data: Buffer, problem: str | None = None) -> StoredPart:
    return StoredPart(data, partition.high_watermark, partition.log.log_start, problem)


def _failed(source: Source | EngineError, error: EngineError) -> StoredPart:
    if isinstance(source, Source):
        return _part(source.partition, b"", error.code)
    return StoredPart(b"", -1, -1, error.code)


async def _shown(context: ReadContext, partition: Partition, chunk: Chunk, max_bytes: int) -> Buffer:
    """Returns the batches of a chunk as clients get them; behind batches without records, later ones.

    Some clients advance by records only, or by batches that are not empty: at the end they get a control batch.
    """
    has_control = partition.validator.fencing.has_been_used
    for _ in range(SKIPPED_READS):
        data = without_control(chunk.data) if has_control else chunk.data
        if data and not has_no_records(data):
            return _without_entries(data)
        if chunk.next_offset >= partition.high_watermark:
            break
        source = Source(partition, chunk.next_offset)
        found = (await read_batches(context, {0: source}, max_bytes)).get(0)
        if not isinstance(found, Chunk):  # an error is that of the next fetch
            break
        chunk = found
    *_, (_, header) = record_batch.walk(chunk.data)
    return _emptied(header)


def _without_entries(data: bytes | bytearray) -> bytes | bytearray:
    return keyed_batch.shown(data) if data and keyed_batch.has_keyed(data) else data


def _emptied(header: Header) -> bytearray:
    """Returns a control batch without a value in place of another batch, with its last offset."""
    data = empty_control(max(header.max_timestamp, 0))
    stamp(data, header.next_offset - 1, header.leader_epoch)
    return data


def stored_read_handlers(context: ReadContext) -> Mapping[str, Handler]:
    """Returns the handler of calls for partitions of this shard."""

    async def read(arguments: StoredArguments, _: bytes) -> Answer:
        parts = await read_stored(context, arguments.entries, arguments.max_bytes)
        heads = [(len(part.data), *part[1:]) for part in parts]
        return heads, b"".join(part.data for part in parts)

    return {READ_STORED: handler(StoredArguments, read)}


def unpacked(heads: Sequence[Any], body: bytes) -> list[StoredPart]:
    """Returns the parts that a link has brought."""
    parts, position, view = [], 0, memoryview(body)
    for size, high_watermark, log_start, problem, diverging in heads:
        data = view[position : position + size]
        position += size
        parts.append(
            StoredPart(data, high_watermark, log_start, problem, None if diverging is None else tuple(diverging))
        )
    return parts
