"""The rows, the table and the page of the benchmark of ingestion, and what it counts of a command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.ingest_bench.cases import Case, Figures
from loadtests.ingest_bench.page import BEGIN, END, with_table
from loadtests.ingest_bench.rows import bodies, hostile_names

ROWS = 20_000
WITH_A_CHILD = """
import sys
from pathlib import Path
from loadtests.ingest_bench.measured import become_subreaper, measure
become_subreaper()
burn = "import subprocess, sys, time\\nwhile time.process_time() < 0.2: pass\\n"
orphan = burn + "bytearray(64 << 20).count(1)"
command = burn + f"subprocess.Popen([sys.executable, '-c', {orphan!r}])"
found = measure([sys.executable, "-c", command], Path(sys.argv[1]))
print(found.cpu_s, found.rss_mb)
"""
SPARK = """
from pyspark import SparkContext
context = SparkContext("local[1]", "workers")
context.parallelize([450 << 20], 1).map(lambda size: bytearray(size).count(1)).collect()
context.stop()
"""
WITH_SPARK = f"""
import sys
from pathlib import Path
from loadtests.ingest_bench.measured import become_subreaper, measure
become_subreaper()
print(measure([sys.executable, "-c", {SPARK!r}], Path(sys.argv[1])).rss_mb)
"""


def test_rows_are_of_the_size_that_the_page_says_and_in_order():
    lines = b"".join(bodies(ROWS, 500)).splitlines()
    assert len(lines) == ROWS
    assert 238 <= sum(map(len, lines)) / ROWS + 1 <= 246
    times = [json.loads(line)["ts"] for line in lines]
    assert times == sorted(times)
    assert len({one[:13] for one in times}) == 500
    assert b"".join(bodies(ROWS, 500)).splitlines() == lines


def test_hostile_names_never_repeat():
    names = [name for body in hostile_names(50_000) for line in body.splitlines() for name in json.loads(line)]
    assert len(names) == len(set(names)) == 50_000


def test_a_table_has_the_median_and_says_whether_it_meets_the_target():
    figures = Figures()
    for one in (3.0, 1.0, 2.0):
        figures.add(Case("slow", at_most=1.5), one)
        figures.add(Case("fast", "MB", at_least=2.0), 100 * one)
        figures.add(Case("beyond", at_most=0.0), one)
    slow, fast, beyond = sorted(figures.table()[2:], reverse=True)
    assert beyond == "| beyond | 2.00 s | 1.00 to 3.00 | at most 0 | not met, by 2.00 s |"
    assert slow == "| slow | 2.00 s | 1.00 to 3.00 | at most 1.5 | not met, by 33% |"
    assert fast == "| fast | 200 MB | 100 to 300 | at least 2 | met |"


def test_the_page_keeps_what_is_outside_of_the_marks():
    assert with_table(f"a\n{BEGIN}\nold\n{END}\nb\n", ["new"]) == f"a\n{BEGIN}\n\nnew\n\n{END}\nb\n"
    with pytest.raises(ValueError, match="the page has no"):
        with_table("a", [])


def test_processes_that_outlive_a_command_count(tmp_path):
    command = [sys.executable, "-c", WITH_A_CHILD, str(tmp_path / "log")]
    root = Path(__file__).parents[3]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    assert float(found[0]) >= 0.4
    assert float(found[1]) >= 64


@pytest.mark.spark
@pytest.mark.long
def test_python_workers_of_spark_count(tmp_path):
    """The worker of this job has more memory than any other process of it."""
    command = [sys.executable, "-c", WITH_SPARK, str(tmp_path / "log")]
    root = Path(__file__).parents[3]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert float(found) >= 450
