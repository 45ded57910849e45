"""`make bench-ingest`: processor time and memory of ingestion beside DuckDB, PyArrow and plain Spark, of the same rows.

A node takes the rows over HTTP and ships them to its store. Then each program converts them in a process of its own,
all of them in each round. Exits with 1 if the rows of a table are not those that were produced.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from loadtests.host.machine import inspect_machine, source_version
from loadtests.ingest_bench.cases import Figures
from loadtests.ingest_bench.conversions import Conversions
from loadtests.ingest_bench.measured import become_subreaper
from loadtests.ingest_bench.page import with_table
from loadtests.ingest_bench.parts import PARTS, Bench
from loadtests.ingest_bench.rows import bodies, flights, hostile_names, huge_record
from loadtests.ingest_bench.tiered import Topic, fill

HOURS = (2, 500)
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
WIDE_PARTITIONS = 400


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-ingest", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: rows, {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="one round of 100,000 rows: shows differences of a factor")
    parser.add_argument("--rows", type=int, help="rows of each of the two topics [default: 1,000,000]")
    parser.add_argument("--rounds", type=int, help="how often each case is measured [default: 3]")
    parser.add_argument("--without-spark", action="store_true", help="leave out what needs Java")
    parser.add_argument("--page", action="store_true", help=f"write the table into docs/{PAGE.name}")
    options = parser.parse_args()
    rows, rounds = (
        options.rows or (100_000 if options.quick else 1_000_000),
        options.rounds or (1 if options.quick else 3),
    )
    chosen = options.parts or ["rows", *PARTS]
    if unknown := sorted({*chosen} - {"rows", *PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}")
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as path:
        directory = Path(path)
        head = _head(directory, rows, rounds)
        store = fill(directory, _topics(rows))
        bench = Bench(directory, store, rounds, Figures(), has_spark=not options.without_spark)
        is_true = Conversions(bench, rows, HOURS).measure() if "rows" in chosen else True
        for name in [part for part in PARTS if part in chosen]:
            PARTS[name](bench)
        shutil.rmtree(directory / "out", ignore_errors=True)
    lines = [*head, "", *bench.figures.table()]
    print("\n".join(lines))
    if options.page:
        PAGE.write_text(with_table(PAGE.read_text(), lines))
    return 0 if is_true else 1


def _topics(rows: int) -> list[Topic]:
    one_record = b'{"id":1}\n'
    return [
        *[Topic(f"hours-{hours}", partial(bodies, rows, hours)) for hours in HOURS],
        Topic("few", partial(bodies, 100, 2)),
        Topic("wide", lambda: [one_record] * WIDE_PARTITIONS, WIDE_PARTITIONS),
        Topic("flights", flights),
        Topic("names", hostile_names),
        Topic("huge", huge_record, config={"record_bytes_max": 62 << 20, "batch_bytes_max": 64 << 20}),
    ]


def _head(directory: Path, rows: int, rounds: int) -> list[str]:
    machine = inspect_machine(directory)
    return [
        f"- {machine.cores} cores, {machine.cpu}, kernel {machine.kernel}, Python {machine.python}",
        f"- Penstock {source_version()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- {rows:,} rows over each number of hours; {rounds} rounds",
    ]


if __name__ == "__main__":
    sys.exit(main())
