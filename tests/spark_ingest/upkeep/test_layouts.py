"""Steps after the commit follow the directories of each table: markers, compaction, retention, verification."""

from __future__ import annotations

import re
from itertools import count

import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.layout import POSITIONS, Field, Layout
from spark_ingest.output import names
from spark_ingest.output.retained import load_retained
from spark_ingest.output.rewrites import Rewrites
from spark_ingest.plan import Recipe
from spark_ingest.protocol.verify import verify
from spark_ingest.protocol.verify_deep import verify_deep
from spark_ingest.upkeep.compact import Compaction, compact
from spark_ingest.upkeep.finalize import finalize
from spark_ingest.upkeep.retain import retain
from tests.spark_ingest.jobs import listed_files, run_job
from tests.spark_ingest.tiered import START_MS, TieredLog, row

EVERY = re.compile(".*")
DAY_MS = 24 * 3_600_000  # the first day is Thursday 2013-11-21, 05:00 UTC
_NONCES = count(1)


def filled(layout: Layout) -> tuple[MemoryStore, MemoryStore]:
    """Return a store, and the output of two runs a day for 14 days."""
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for day in range(14):
        output.now_ms = START_MS + day * DAY_MS
        for at in range(2):
            log.add(0, [row(b'{"id":%d,"name":"a/%d"}' % (day, at % 2), timestamp=START_MS + day * DAY_MS + at)])
            run_job(source, output, recipe=Recipe(layout=layout))
    return source, output


def directories(output: MemoryStore) -> list[str]:
    return sorted({key.rpartition("/")[0].removeprefix("tables/flights/") for key in data_files(output)})


def data_files(output: MemoryStore) -> list[str]:
    return [one for one in listed_files(output) if not names.is_marker(one)]


@pytest.mark.parametrize(
    ("layout", "marked", "files", "kept"),
    [
        (Layout(period="15min"), 14, 14, [f"dt=2013-{day}/hr=05/min=00" for day in ("12-02", "12-03", "12-04")]),
        (Layout(period="day", zone="Pacific/Honolulu"), 13, 14, ["dt=2013-12-02", "dt=2013-12-03"]),
        (Layout(period="week"), 2, 3, ["week=2013-12-02"]),
        (Layout(period="month", directories="%Y/%m"), 1, 2, ["2013/12"]),
        (Layout(period="none", fields=(Field("by_name", "name"),)), 0, 2, ["by_name=a%2F0", "by_name=a%2F1"]),
        (Layout(period=POSITIONS, positions=10), 0, 3, ["offset=0", "offset=10", "offset=20"]),
    ],
    ids=lambda one: one.fixed if isinstance(one, Layout) else "",
)
def test_a_table_of_any_layout_is_marked_compacted_and_retired(
    layout: Layout, marked: int, files: int, kept: list[str]
) -> None:
    source, output = filled(layout)
    until_ms = START_MS + 13 * DAY_MS + 3_600_000
    done = finalize(source, output, "default", EVERY, now_ms=until_ms, delay_ms=0, idle_ms=0)
    assert len(done.marked) == marked
    compact(output, "default", Compaction(EVERY), 0, new_id=lambda: f"rewrite-{next(_NONCES)}")
    assert len(data_files(output)) == files
    retain(output, "default", EVERY, keep_days=2)
    assert directories(output) == kept
    findings, commits = verify(output, "default")
    assert findings.problems == []
    effect = Rewrites(output, "default").effect()
    assert list(verify_deep(output, commits, load_retained(output, "default").covers, effect)) == []
