"""The file of a rewrite has copies of large row groups, between others, which are encoded again."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.output.row_groups import parts_of
from spark_ingest.upkeep import rewritten_file
from tests.spark_ingest.jobs import assert_sound, listed_files, run_job, table_rows
from tests.spark_ingest.tiered import START_MS, TieredLog, row
from tests.spark_ingest.upkeep.compacting import compacted


@pytest.mark.parametrize(
    ("copied_bytes", "copied_bytes_of_few", "few", "groups"),
    [
        (20_000, 20_000, 0, [4, 40, 2, 40, 2]),
        (20_000, 1 << 20, 6, [4, 40, 2, 40, 2]),
        (1 << 20, 20_000, 6, [4, 40, 2, 40, 2]),
        (1 << 20, 20_000, 5, [88]),
    ],
)
def test_large_row_groups_are_copied_and_small_ones_become_one(
    monkeypatch: pytest.MonkeyPatch, copied_bytes: int, copied_bytes_of_few: int, few: int, groups: list[int]
) -> None:
    """If the inputs have few row groups, smaller ones are copied as well."""
    source, output = MemoryStore(), MemoryStore(START_MS)
    log, noise = TieredLog(source), random.Random(7)
    for at, records in enumerate((2, 2, 40, 2, 40, 2)):
        log.add(0, [row(b'{"text":"%s"}' % noise.randbytes(500).hex().encode(), at) for _ in range(records)])
        run_job(source, output, task_bytes=1 << 20)
    rows, large = table_rows(output), [one for one in map(output.get, listed_files(output)) if len(one) > 20_000]
    monkeypatch.setattr(rewritten_file, "COPIED_BYTES", copied_bytes)
    monkeypatch.setattr(rewritten_file, "COPIED_BYTES_OF_FEW", copied_bytes_of_few)
    monkeypatch.setattr(rewritten_file, "FEW_ROW_GROUPS", few)
    assert compacted(output).replaced == 6
    [key] = listed_files(output)
    made = pq.ParquetFile(pa.BufferReader(output.get(key))).metadata
    assert [made.row_group(at).num_rows for at in range(made.num_row_groups)] == groups
    are_copied = all(
        bytes(group.data) in output.get(key) for one in large for group in parts_of(one).row_groups if group
    )
    assert are_copied == (len(groups) > 1)
    assert table_rows(output) == rows
    assert_sound(output)
