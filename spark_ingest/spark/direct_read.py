"""Reads records of the store as Arrow record batches: the data source without Spark. Keeps no position.

Reads segment objects with ranged GETs and verifies every batch; calls no node. Records of one Spark partition are in
the order of (partition, offset). Spark partitions are planned from manifests alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from engine.errors import Corrupt
from engine.format.batch import Record
from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.blocks import record_timestamp
from spark_ingest.source.discovery import TieredPartition, discover, resolve_cluster, slices_between
from spark_ingest.source.scan import ScannedBatch, scan
from spark_ingest.source.slices import Slice, cut
from spark_ingest.spark.read_options import COLUMNS, FAIL, HEADERS, SKIP, ReadOptions

BLOCK_RECORDS = 16_384


def plan_partitions(store: ObjectStore, wanted: ReadOptions) -> list[tuple[str, tuple[Slice, ...]]]:
    """Returns the topic and the slices of each Spark partition."""
    topics = re.compile(wanted.topics)
    partitions = discover(store, resolve_cluster(store, wanted.cluster), lambda topic: bool(topics.fullmatch(topic)))
    by_topic: dict[str, list[Slice]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).extend(_slices(store, one, wanted))
    return [(topic, group) for topic, slices in by_topic.items() for group in cut(slices, wanted.partition_bytes)]


def read_partition(
    store: ObjectStore, wanted: ReadOptions, topic: str, slices: Sequence[Slice]
) -> Iterator[pa.RecordBatch]:
    """Yields the records of a Spark partition. Raises Corrupt; for undecodable batches unless the option skips them."""
    block: list[Record] = []
    partition = -1
    for scanned in scan(store, slices):
        if scanned.undecodable is not None and wanted.undecodable == FAIL:
            raise _undecodable(topic, scanned)
        if block and (scanned.source.partition != partition or len(block) >= BLOCK_RECORDS):
            yield _record_batch(wanted, topic, partition, block)
            block = []
        partition = scanned.source.partition
        block += _in_time(wanted, scanned)
    if block:
        yield _record_batch(wanted, topic, partition, block)


def _slices(store: ObjectStore, partition: TieredPartition, wanted: ReadOptions) -> list[Slice]:
    start = max(partition.log_start, wanted.start_offset)
    end = partition.tiered_end if wanted.end_offset is None else min(partition.tiered_end, wanted.end_offset)
    return list(slices_between(store, partition, start, end, wanted.start_ms, wanted.end_ms)) if start < end else []


def _in_time(wanted: ReadOptions, scanned: ScannedBatch) -> list[Record]:
    if wanted.start_ms is None and wanted.end_ms is None:
        return scanned.records
    return [record for record in scanned.records if wanted.has_time(record.timestamp)]


def _record_batch(wanted: ReadOptions, topic: str, partition: int, records: Sequence[Record]) -> pa.RecordBatch:
    arrays = [_array(name, topic, partition, records) for name in wanted.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)


def _array(name: str, topic: str, partition: int, records: Sequence[Record]) -> pa.Array:
    kind = COLUMNS[name].kind
    match name:
        case "topic":
            return pa.repeat(topic, len(records))
        case "partition":
            return pa.repeat(pa.scalar(partition, kind), len(records))
        case "timestamp":
            return pa.array([_microseconds(record.timestamp) for record in records], kind)
        case "headers":
            return _headers_array([record.headers for record in records])
        case _:
            return pa.array([getattr(record, name) for record in records], kind)


def _microseconds(timestamp_ms: int) -> int | None:
    own = record_timestamp(timestamp_ms)
    return None if own is None else own * 1000


def _headers_array(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    if not any(headers):
        ends = pa.repeat(pa.scalar(0, pa.int32()), len(headers) + 1)
        return pa.ListArray.from_arrays(ends, pa.array([], HEADERS.value_type), HEADERS)
    return pa.array([[{"name": name, "value": value} for name, value in one] for one in headers], HEADERS)


def _undecodable(topic: str, scanned: ScannedBatch) -> Corrupt:
    header = scanned.header
    return Corrupt(
        f"{topic} partition {scanned.source.partition}: the batch of offsets {header.base_offset} to "
        f"{header.next_offset - 1} cannot be decoded: {scanned.undecodable}",
        hint=f"the producer sent it so; the option undecodable={SKIP} skips it",
    )
