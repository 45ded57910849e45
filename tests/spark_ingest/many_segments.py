"""Makes a store with many small segments, for `make bench-ingest ARGS=planning`.

python -m tests.spark_ingest.many_segments DIRECTORY SEGMENTS
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from crc32c import crc32c

from engine.format.batch import encode, stamp
from engine.format.paths import store_segment_key
from engine.tiering.manifest.chain import commit, store_sub_manifest
from engine.tiering.manifest.manifest import FOLD_ENTRIES, Manifest, ManifestEntry, SubManifest
from engine.tiering.store.store import open_store
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows

PARTITIONS = 100
RECORDS = 10


def fill(directory: Path, segments: int) -> None:
    """Writes the segments past the store, which would fsync each."""
    log = TieredLog(open_store(directory.as_uri()))
    batch = encode(json_rows(RECORDS))
    for partition in range(PARTITIONS):
        prefix, entries = log.prefix(partition), []
        for base in range(0, segments // PARTITIONS * RECORDS, RECORDS):
            stamp(batch, base, 0)
            key = store_segment_key(prefix, base, 0, uuid.uuid4().hex)
            if not base:
                (directory / key).parent.mkdir(parents=True, exist_ok=True)
            (directory / key).write_bytes(batch)
            entries.append(_entry(base, key, batch))
        parts = [tuple(entries[at : at + FOLD_ENTRIES]) for at in range(0, len(entries), FOLD_ENTRIES)]
        refs = [store_sub_manifest(log.store, SubManifest(prefix, one), lambda: uuid.uuid4().hex) for one in parts[:-1]]
        commit(log.store, Manifest(prefix, 1, 0, "test", 0, tuple(refs), parts[-1]))


def _entry(base: int, key: str, batch: bytearray) -> ManifestEntry:
    return ManifestEntry(
        base_offset=base,
        end_offset=base + RECORDS,
        leader_epochs=((0, base),),
        min_timestamp_ms=START_MS + base,
        max_timestamp_ms=START_MS + base + RECORDS - 1,
        size_bytes=len(batch),
        crc32c=crc32c(bytes(batch)),
        record_count=RECORDS,
        key=key,
        aux_key=key.replace(".log", ".aux"),
    )


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]))
