"""Reads records of the store as Arrow batches: the data source without Spark. Writes nothing, keeps no position.

Segment objects are read directly, by ranged GETs, and every batch is checked; no broker is asked. Records come in the
order of (partition, offset) within one part, and parts are cut by bytes from the manifests alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from engine.errors import Corrupt
from engine.format.batch import Record
from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.blocks import own_timestamp
from spark_ingest.source.cut import Slice, cut
from spark_ingest.source.scan import Scanned, scan
from spark_ingest.source.source import TieredPartition, discover, slices_between, the_cluster
from spark_ingest.spark.read_options import COLUMNS, FAIL, HEADERS, SKIP, Wanted

BLOCK_RECORDS = 16_384


def parts_of(store: ObjectStore, wanted: Wanted) -> list[tuple[str, tuple[Slice, ...]]]:
    """Topics and slices, cut into parts that can be read side by side."""
    topics = re.compile(wanted.topics)
    partitions = discover(store, the_cluster(store, wanted.cluster), lambda topic: bool(topics.fullmatch(topic)))
    by_topic: dict[str, list[Slice]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).extend(_slices(store, one, wanted))
    return [(topic, group) for topic, slices in by_topic.items() for group in cut(slices, wanted.part_bytes)]


def read_part(store: ObjectStore, wanted: Wanted, topic: str, slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
    """The records of a part. Raises Corrupt, and for batches that cannot be decoded unless they are to be skipped."""
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


def _slices(store: ObjectStore, partition: TieredPartition, wanted: Wanted) -> list[Slice]:
    start = max(partition.log_start, wanted.start_offset)
    end = partition.tiered_end if wanted.end_offset is None else min(partition.tiered_end, wanted.end_offset)
    return list(slices_between(store, partition, start, end, wanted.start_ms, wanted.end_ms)) if start < end else []


def _in_time(wanted: Wanted, scanned: Scanned) -> list[Record]:
    if wanted.start_ms is None and wanted.end_ms is None:
        return scanned.records
    return [record for record in scanned.records if wanted.has_time(record.timestamp)]


def _record_batch(wanted: Wanted, topic: str, partition: int, records: Sequence[Record]) -> pa.RecordBatch:
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
    own = own_timestamp(timestamp_ms)
    return None if own is None else own * 1000


def _headers_array(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    if not any(headers):
        ends = pa.repeat(pa.scalar(0, pa.int32()), len(headers) + 1)
        return pa.ListArray.from_arrays(ends, pa.array([], HEADERS.value_type), HEADERS)
    return pa.array([[{"name": name, "value": value} for name, value in one] for one in headers], HEADERS)


def _undecodable(topic: str, scanned: Scanned) -> Corrupt:
    header = scanned.header
    return Corrupt(
        f"{topic} partition {scanned.source.partition}: the batch of offsets {header.base_offset} to "
        f"{header.next_offset - 1} cannot be decoded: {scanned.undecodable}",
        hint=f"a producer made it so; the option undecodable={SKIP} passes over it",
    )
