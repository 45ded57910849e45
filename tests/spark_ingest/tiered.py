"""Handmade tiered partitions: batches, segment objects and manifests, as the shipper writes them. No server."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from engine.format.batch import Codec, Row, decode, encode, stamp
from engine.format.paths import store_partition_prefix, store_segment_key
from engine.runtime.clock import SystemClock
from engine.runtime.throttled_thread import ThrottledThread
from engine.tiering.manifest.chain import commit, fold_if_due, load_newest, take_over
from engine.tiering.manifest.manifest import ManifestEntry, append, raise_log_start, replace_runs, successor
from engine.tiering.shipping.merge_plan import MergeRules
from engine.tiering.shipping.merging import MergeLane, PartitionMerger
from engine.tiering.store.store import ObjectStore
from spark_ingest.source.discovery import discover, slices_of
from spark_ingest.source.slices import Slice
from tests.engine.tiering.making import local_log

CLUSTER = "c" * 32
TOPIC_ID = "a" * 32
START_MS = 1_385_010_000_000  # 2013-11-21 05:00 UTC


def row(value: bytes | None, at: int = 0, **more: object) -> Row:
    """Return a row; successive rows are a second apart."""
    timestamp = more.get("timestamp", START_MS + at * 1000)
    return Row(timestamp, more.get("key"), value, list(more.get("headers", ())))  # type: ignore[arg-type, call-overload]


def undecodable_batch() -> bytearray:
    """A batch whose header counts 7 records, and which has 5. Its checksum is valid."""
    batch = encode(json_rows(5))
    struct.pack_into(">i", batch, 23, 6)
    struct.pack_into(">i", batch, 57, 7)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def json_rows(count: int, first: int = 0) -> list[Row]:
    return [
        row(b'{"id":%d,"name":"n%d"}' % (at, at % 7), at, key=b"k%d" % (at % 5)) for at in range(first, first + count)
    ]


@dataclass
class TieredLog:
    """Writes a topic into a store, partition by partition, one segment a call."""

    store: ObjectStore
    topic: str = "flights"
    topic_id: str = TOPIC_ID
    cluster: str = CLUSTER
    batch_records: int = 10
    codec: Codec = Codec.NONE
    ends: dict[int, int] = field(default_factory=dict)

    def prefix(self, partition: int) -> str:
        return store_partition_prefix(self.cluster, self.topic, self.topic_id, partition)

    def add(self, partition: int, rows: Sequence[Row]) -> None:
        batches = [
            encode(rows[at : at + self.batch_records], self.codec) for at in range(0, len(rows), self.batch_records)
        ]
        self.add_batches(partition, batches, [row.timestamp for row in rows], len(rows))

    def add_batches(
        self, partition: int, batches: Iterable[bytearray], timestamps: Sequence[int], record_count: int
    ) -> None:
        base = self.ends.get(partition, 0)
        data, end = bytearray(), base
        for batch in batches:
            stamp(batch, end, 0)
            data += batch
            end += int.from_bytes(batch[23:27], "big") + 1
        self.ends[partition] = end
        key = store_segment_key(self.prefix(partition), base, 0, uuid.uuid4().hex)
        self.store.put(key, bytes(data), if_absent=True)
        self._commit(
            partition,
            ManifestEntry(
                base_offset=base,
                end_offset=end,
                leader_epochs=((0, base),),
                min_timestamp_ms=min(timestamps),
                max_timestamp_ms=max(timestamps),
                size_bytes=len(data),
                crc32c=crc32c(bytes(data)),
                record_count=record_count,
                key=key,
                aux_key=key.replace(".log", ".aux"),
            ),
        )

    def raise_log_start(self, partition: int, log_start: int) -> None:
        newest = load_newest(self.store, self.prefix(partition))
        assert newest is not None
        commit(self.store, raise_log_start(successor(newest, 0, "test"), log_start))

    def merge(self, partition: int) -> None:
        """Merge the segments of a partition, and remove the ones that it had."""
        manifest = load_newest(self.store, self.prefix(partition))
        assert manifest is not None
        lane = MergeLane(MergeRules(1 << 20, 1 << 20, 0, count_min=2), ThrottledThread("merge", 1 << 40))
        merger = PartitionMerger(self.store, self.prefix(partition), lane, SystemClock(), lambda: uuid.uuid4().hex)
        run = merger.merge(manifest, local_log([]), 0, lambda: 2**50)
        assert run is not None
        commit(self.store, replace_runs(successor(manifest, 0, "test"), run))
        for entry in manifest.entries:
            self.store.delete(entry.key)

    def lose(self, partition: int, count: int) -> None:
        """Leave out offsets that the log removed before they were tiered."""
        self.ends[partition] += count
        self.raise_log_start(partition, self.ends[partition])

    def _commit(self, partition: int, entry: ManifestEntry) -> None:
        manifest = take_over(self.store, self.prefix(partition), 0, "test", entry.base_offset)
        folded = fold_if_due(self.store, successor(manifest, 0, "test"), lambda: uuid.uuid4().hex)
        commit(self.store, append(folded, entry))

    def records(self) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Return the records of the log: partition, offset, key, value."""
        found = []
        for partition in sorted(self.ends):
            manifest = load_newest(self.store, self.prefix(partition))
            assert manifest is not None
            for entry in manifest.entries:
                for one in decode(self.store.get(entry.key)):
                    if one.offset >= manifest.log_start:
                        found.append((partition, one.offset, one.key, one.value))
        return found

    def slices(self, start: int, end: int) -> list[Slice]:
        """Return the segments of a range of offsets of the only partition."""
        [partition] = discover(self.store, self.cluster, lambda topic: topic == self.topic)
        return list(slices_of(partition, start, end, {}))
