"""Compaction between the processes of a node: the worker compacts, the shard that owns a partition swaps its files."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from engine.compaction.log_compaction import NewSegment
from engine.compaction.plan import LogFiles, SegmentFile
from engine.compaction.progress import Progress, Round
from engine.compaction.swapping import SegmentSwapper
from engine.directory.topics import TopicRecord
from engine.format.checksum import Checksum
from engine.partition.partition import Partition
from engine.topic_settings import TopicSettings
from gateway.links.link import Answer, Handler, handler
from gateway.links.link_client import LinkClient
from node.process_calls import CompactionRound, ReplaceSegments, SegmentFields, TieredPartition

CALL_S = 60.0  # a swap waits for its turn among truncations and removals of the same log


def compaction_handlers(
    swapper: SegmentSwapper, partition_of: Callable[[TieredPartition], Partition]
) -> dict[str, Handler]:
    """Returns the handlers of a shard for calls of the worker."""

    async def files(which: TieredPartition, _: bytes) -> Answer:
        partition = partition_of(which)
        return (await swapper.files(partition), await swapper.progress(partition)), b""

    async def replace(new: ReplaceSegments, _: bytes) -> Answer:
        replaced = tuple(SegmentFile(*structs.astuple(row)) for row in new.replaced)
        made = NewSegment(replaced, Checksum(new.size_bytes, new.crc32c), new.removed)
        return await swapper.replace(partition_of(new), made), b""

    async def end_round(done: CompactionRound, _: bytes) -> Answer:
        await swapper.end_round(partition_of(done), done.end, done.expired_below, done.generation)
        return None, b""

    return {
        "compaction_files": handler(TieredPartition, files),
        "replace_segments": handler(ReplaceSegments, replace),
        "end_compaction": handler(CompactionRound, end_round),
    }


class RemotePartition:
    """A partition of a shard process, for the worker's compactor."""

    def __init__(self, owner: LinkClient, record: TopicRecord, number: int) -> None:
        self.name = f"{record.name}/{number}"
        self.settings: TopicSettings = record.settings
        self._owner = owner
        self._partition_id = (record.topic_id, record.name, number)

    def __repr__(self) -> str:
        return f"RemotePartition({self.name})"

    async def log_files(self) -> tuple[LogFiles, Progress]:
        arguments = TieredPartition(*self._partition_id)
        fields, _ = await self._owner.link().call("compaction_files", arguments, timeout_s=CALL_S)
        (directory, log_start, sealed, now_ms, generation), (cleaned_end, rounds) = fields
        segments = tuple(SegmentFile(*row) for row in sealed)
        files = LogFiles(directory, log_start, segments, now_ms, tuple(generation))
        return files, Progress(cleaned_end, tuple(Round(*row) for row in rounds))

    async def replace(self, new: NewSegment) -> bool:
        replaced = tuple(SegmentFields(*segment) for segment in new.replaced)
        arguments = ReplaceSegments(*self._partition_id, replaced, *new.file, new.removed)
        is_replaced, _ = await self._owner.link().call("replace_segments", arguments, timeout_s=CALL_S)
        return bool(is_replaced)

    async def end_round(self, end: int, expired_below: int, generation: tuple[int, int]) -> None:
        arguments = CompactionRound(*self._partition_id, end, expired_below, generation)
        await self._owner.link().call("end_compaction", arguments, timeout_s=CALL_S)
