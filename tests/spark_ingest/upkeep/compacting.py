"""A job with small files in memory, its compaction, and what must hold afterwards."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore
from spark_ingest.output import names
from spark_ingest.output.rewrites import Effect, Rewrites
from spark_ingest.protocol.history import History
from spark_ingest.upkeep.compact import Compaction, compact
from spark_ingest.upkeep.rewrite import Done
from spark_ingest.upkeep.rewritten_file import REPLACES
from tests.spark_ingest.jobs import listed_files, new_id, run_job
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row

EVERY = re.compile(".*")
HOUR_MS = 3_600_000
REWRITES = [
    make("default") for make in (names.rewrite_plans_prefix, names.rewrite_commits_prefix, names.folded_rewrites_prefix)
]


def filled(runs: int = 4, partitions: int = 2) -> tuple[MemoryStore, MemoryStore]:
    """Return a store and the output of runs that write two hours of two partitions, and a dead letter each."""
    source, output = MemoryStore(), MemoryStore(START_MS)
    log = TieredLog(source)
    for at in range(runs):
        for partition in range(partitions):
            log.add(partition, [*json_rows(5, first=10 * at), row(b'{"id":7}', timestamp=START_MS + HOUR_MS)])
        log.add(0, [row(b"no JSON", 1)])
        output.now_ms += 1000
        run_job(source, output, bad_percent_max=100)
    return source, output


def compacted(output: ObjectStore, grace_ms: int = 0, **wanted: Any) -> Done:
    is_dry = wanted.pop("is_dry", False)
    publish = wanted.pop("publish", None)
    topics = wanted.pop("topics", EVERY)
    return compact(
        output,
        "default",
        Compaction(topics, **wanted),
        grace_ms,
        new_id=new_id,
        publish=publish,
        is_dry=is_dry,
    )


def effect_of(output: ObjectStore) -> Effect:
    return Rewrites(output, "default").effect()


def chain_files(output: ObjectStore, topic: str = "flights") -> list[str]:
    """Return the table's files by the commits and rewrites, as a reader of the chain sees them."""
    effect = effect_of(output)
    named = [file for one in History(output, "default").commits() for result in one.results for file in result.files]
    live = [file.key for file in (*named, *effect.files_of(topic)) if file.key not in effect.replaced]
    return sorted(key for key in live if key.startswith(names.table_prefix(topic)))


def rule_files(output: ObjectStore, topic: str = "flights") -> list[str]:
    """Return the table's files by the listing and the footers of rewritten files alone."""
    listed = listed_files(output, topic)
    replaced = set()
    for key in listed:
        if names.rewrite_of(key) is not None:
            footer = pq.read_metadata(pa.BufferReader(output.get(key))).metadata
            directory = key.rpartition("/")[0]
            replaced |= {f"{directory}/{name}" for name in json.loads(footer[REPLACES])}
    return [key for key in listed if key not in replaced]


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(one["_partition"], one["_offset"]) for one in rows]
