"""Positions by topic and partition: those that a job has committed, and those of a time in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.plan import Positions, TopicPosition, positions_from
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.history import History
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, slice_of, unread_entries
from spark_ingest.source.requests import request_all, value_of
from spark_ingest.source.scan import scan


def committed_positions(output: ObjectStore, job: str, is_wanted: Callable[[str], bool]) -> tuple[Commit, Positions]:
    """Returns the newest commit and its positions of the wanted topics. Raises IngestRefused without a commit."""
    head = History(output, job).head()
    if head is None:
        raise IngestRefused(f"job {job} in {output.url} has no commit", hint="run penstock ingest run first")
    return head, {topic: position for topic, position in sorted(head.positions.items()) if is_wanted(topic)}


def positions_at(
    source: ObjectStore, cluster: str, is_wanted: Callable[[str], bool], at_ms: int
) -> tuple[list[TieredPartition], Positions]:
    """Returns partitions, and the first offset of each whose record has a timestamp of `at_ms` or later.

    The end of the stored records if there is none. Reads at most one segment of each partition. Raises Corrupt.
    """
    partitions = discover(source, cluster, is_wanted)
    folded = load_folded(source, [(partition, partition.log_start, partition.tiered_end) for partition in partitions])

    def position(partition: TieredPartition) -> int:
        return _first_at(source, partition, unread_entries(partition, partition.log_start, folded), at_ms)

    ends = [value_of(answer) for answer in request_all(position, partitions)]
    return partitions, positions_of(partitions, ends)


def positions_of(partitions: Sequence[TieredPartition], ends: Sequence[int]) -> Positions:
    """Returns the positions of partitions, one end for each."""
    return positions_from(
        (partition.topic, partition.topic_id, partition.partition, end)
        for partition, end in zip(partitions, ends, strict=True)
    )


def positions_document(positions: Positions) -> dict[str, Any]:
    """Returns the positions for JSON documents; `offsets set --positions` reads them."""
    return {
        topic: {
            "topic_id": position.topic_id,
            "ends": {str(number): end for number, end in sorted(position.ends.items())},
        }
        for topic, position in sorted(positions.items())
    }


class _Document(msgspec.Struct):
    topics: dict[str, TopicPosition]


def positions_in(data: bytes) -> Positions:
    """Returns the positions of a JSON document of `get` or `at-time`. Raises IngestRefused."""
    try:
        return msgspec.json.decode(data, type=_Document).topics
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise IngestRefused(
            f"the positions cannot be read: {error}", hint="give the --json of get or at-time"
        ) from error


def _first_at(source: ObjectStore, partition: TieredPartition, entries: Sequence[ManifestEntry], at_ms: int) -> int:
    for entry in entries:
        if entry.max_timestamp_ms < at_ms:
            continue
        offset = _first_within(source, partition, entry, at_ms)
        if offset is not None:
            return offset
    return partition.tiered_end


def _first_within(source: ObjectStore, partition: TieredPartition, entry: ManifestEntry, at_ms: int) -> int | None:
    from spark_ingest.decode.record_columns import columns_of  # with PyArrow

    start = max(entry.base_offset, partition.log_start)
    for batch in scan(source, [slice_of(partition.partition, entry, start, entry.end_offset)]):
        if batch.header.max_timestamp < at_ms:
            continue
        if batch.undecodable is not None:
            return max(start, batch.header.base_offset)
        if not batch.record_count:
            continue
        columns = columns_of([batch])
        for offset, timestamp in zip(columns.offsets.to_pylist(), columns.timestamps.to_pylist(), strict=True):
            if timestamp is not None and timestamp >= at_ms:
                return int(offset)
    return None
