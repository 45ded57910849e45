"""Reads records of the store as Arrow record batches: the data source without Spark. Keeps no position.

Reads segment objects with ranged GETs and verifies every batch; calls no node. Records of one Spark partition are in
the order of (partition, offset). Spark partitions are planned from manifests alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from engine.errors import Corrupt
from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.record_columns import RecordColumns, columns_of
from spark_ingest.errors import IngestRefused
from spark_ingest.frames.read_options import FAIL, SKIP, ReadOptions
from spark_ingest.frames.record_array import record_array
from spark_ingest.frames.typed_rows import TypedRows
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, resolve_cluster, slices_between
from spark_ingest.source.scan import ScannedBatch, scan
from spark_ingest.source.slices import Slice, cut

BLOCK_RECORDS = 16_384


def plan_partitions(store: ObjectStore, options: ReadOptions) -> list[tuple[str, tuple[Slice, ...]]]:
    """Returns the topic and the slices of each Spark partition. Raises IngestRefused if no topic is there."""
    topics = re.compile(options.topics)
    discovered = discover(store, resolve_cluster(store, options.cluster), lambda topic: bool(topics.fullmatch(topic)))
    if not discovered:
        fault = f"no topic {options.topic!r}" if options.topic else f"no topic that matches {options.topics!r}"
        raise IngestRefused(
            f"{store.url} has {fault}", hint="check the name and the store; or no segment is tiered yet"
        )
    partitions = [
        partition for partition in discovered if options.partitions is None or partition.partition in options.partitions
    ]
    by_topic: dict[str, list[Slice]] = {}
    folded = load_folded(store, [(partition, *_range(partition, options)) for partition in partitions])
    for tiered in partitions:
        slices = slices_between(tiered, *_range(tiered, options), folded, options.start_ms, options.end_ms)
        by_topic.setdefault(tiered.topic, []).extend(slices)
    return [(topic, group) for topic, slices in by_topic.items() for group in cut(slices, options.partition_bytes)]


def read_partition(
    store: ObjectStore, options: ReadOptions, topic: str, slices: Sequence[Slice], typed: TypedRows | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the records of a Spark partition. Raises Corrupt; for undecodable batches unless the option skips them."""
    block: list[ScannedBatch] = []
    partition = -1
    count = 0
    for scanned in scan(store, slices):
        if scanned.undecodable is not None and options.undecodable == FAIL:
            raise _undecodable(topic, scanned)
        if count and (scanned.source.partition != partition or count >= BLOCK_RECORDS):
            yield from _record_batches(options, typed, topic, partition, block)
            block, count = [], 0
        partition = scanned.source.partition
        if scanned.record_count:
            block.append(scanned)
        count += scanned.record_count
    if count:
        yield from _record_batches(options, typed, topic, partition, block)


def _range(partition: TieredPartition, options: ReadOptions) -> tuple[int, int]:
    start = max(partition.log_start, options.starts.of(partition.partition) or 0)
    end = options.ends.of(partition.partition)
    return start, max(start, partition.tiered_end if end is None else min(partition.tiered_end, end))


def _record_batches(
    options: ReadOptions, typed: TypedRows | None, topic: str, partition: int, block: Sequence[ScannedBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields one record batch, none if no record has a time of the read."""
    records = _in_time(options, columns_of(block))
    if len(records) and typed is not None:
        yield typed.batch(topic, partition, records)
    elif len(records):
        arrays = [record_array(name, topic, partition, records) for name in options.columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=options.schema)


def _in_time(options: ReadOptions, records: RecordColumns) -> RecordColumns:
    if options.start_ms is None and options.end_ms is None:
        return records
    is_wanted = pa.array([options.has_time(timestamp) for timestamp in records.timestamps.to_pylist()], pa.bool_())
    return RecordColumns(*(column.filter(is_wanted) for column in records))


def _undecodable(topic: str, scanned: ScannedBatch) -> Corrupt:
    header = scanned.header
    return Corrupt(
        f"{topic} partition {scanned.source.partition}: the batch of offsets {header.base_offset} to "
        f"{header.next_offset - 1} cannot be decoded: {scanned.undecodable}",
        hint=f"the producer sent it so; the option undecodable={SKIP} skips it",
    )
