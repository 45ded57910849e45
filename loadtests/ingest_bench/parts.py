"""The parts beside the conversion of rows, and their bench. Tools of the tests do what needs the engine."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtests.demo.flights import EVENT_TIME
from loadtests.ingest_bench.cases import Case, Figures
from loadtests.ingest_bench.measured import CommandFailed, Measured, measure, penstock_command

LOCAL_ENGINE = ("--engine", "local", "--workers", "1")
SPARK_ENGINE = ("--engine", "spark", "--master", "local[1]")
_TYPED_FACTOR, _TYPED_MORE_S = 1.2, 1.0
_SEGMENTS = 100_000
_FAR = re.compile(r"round (\d+): ([\d.]+) s, (\d+) requests")
_TYPED = re.compile(r"round (\d+): (parquet|typed) ([\d.]+) s CPU")


@dataclass
class Bench:
    """Runs commands on the store, each with an empty output, and collects their figures."""

    directory: Path
    store: Path
    rounds: int
    figures: Figures
    has_spark: bool

    @property
    def output(self) -> Path:
        return self.directory / "out"

    def ingest(self, topic: str, *arguments: str, keep: bool = False) -> Measured:
        """Runs an ingestion of the topic; with `keep` into the output of the run before."""
        if not keep:
            shutil.rmtree(self.output, ignore_errors=True)
        flags = ("--store", str(self.store), "--output", str(self.output), "--topics", topic)
        return self.run(penstock_command("ingest", "run", *flags, *arguments))

    def peer(self, name: str, topic: str, *, keep: bool = False) -> Measured:
        if not keep:
            shutil.rmtree(self.output, ignore_errors=True)
        lines = str(self.directory / f"{topic}.ndjson")
        return self.run([sys.executable, "-m", "loadtests.ingest_bench.peers", name, lines, str(self.output)])

    def run(self, command: list[str]) -> Measured:
        measured = measure(command, self.directory / "command.log")
        print(f"  {measured.cpu_s:.2f} s, {measured.rss_mb:.0f} MB: {' '.join(command[-12:])}"[:150], flush=True)
        return measured


def small(bench: Bench) -> None:
    """Runs of 100 rows, and runs without new records."""
    for _ in range(bench.rounds):
        measured = bench.ingest("few", "--event-time", "ts", *LOCAL_ENGINE)
        bench.figures.add(Case("100 rows: ingest run --engine local", at_most=1.0), measured.cpu_s)
    bench.ingest("wide", *LOCAL_ENGINE)
    for _ in range(bench.rounds):
        measured = bench.ingest("wide", *LOCAL_ENGINE, keep=True)
        bench.figures.add(Case("nothing new in 400 partitions", at_most=0.7), measured.cpu_s)


def compaction(bench: Bench) -> None:
    """Makes one file of the small files of each of two hours: of row groups that are copied, and of smaller ones."""
    values = (bench.directory / "hours-2.ndjson").stat().st_size
    for _ in range(bench.rounds):
        rate = Case("compaction: values a second of processor time", "MB", at_least=200)
        bench.figures.add(rate, values / 1e6 / _measure_compaction(bench, 16 << 20).cpu_s)
        small = Case("the same, of few row groups of 0.8 MB", "MB", at_least=200)
        bench.figures.add(small, values / 1e6 / _measure_compaction(bench, 4 << 20).cpu_s)
        decoded = Case("the same, of files whose rows are encoded again", "MB")
        bench.figures.add(decoded, values / 1e6 / _measure_compaction(bench, 2 << 20).cpu_s)


def _measure_compaction(bench: Bench, task_bytes: int) -> Measured:
    """Raises CommandFailed if the table then has other rows."""
    bench.ingest("hours-2", "--event-time", "ts", "--task-bytes", str(task_bytes), *LOCAL_ENGINE)
    measured = bench.run(penstock_command("ingest", "compact", "--output", str(bench.output)))
    printed = bench.peer("truth", "hours-2", keep=True).printed
    if not printed.rstrip().endswith(" equal"):
        raise CommandFailed(f"rows and their hash after compaction: {printed}")
    return measured


def memory(bench: Bench) -> None:
    """Measures the largest process of runs of hostile records."""
    for topic, what in (("huge", "a record of 60 MiB"), ("names", "records with 1,000,000 names")):
        measured = bench.ingest(topic, "--on-misfit", "keep", *LOCAL_ENGINE)
        bench.figures.add(Case(f"largest process, {what}", "MB", at_most=1024), measured.rss_mb)


def planning(bench: Bench) -> None:
    """Plans many segments of 100 partitions."""
    store = bench.directory / "many"
    bench.run([sys.executable, "-m", "tests.spark_ingest.many_segments", str(store), str(_SEGMENTS)])
    flags = ("--store", str(store), "--output", str(bench.directory / "plans"), "--topics", "flights", "--json")
    for _ in range(bench.rounds):
        measured = bench.run(penstock_command("ingest", "plan", *flags))
        bench.figures.add(Case(f"plan of {_SEGMENTS:,} segments", at_most=5.0), measured.cpu_s)
        bench.figures.add(Case("the same, largest process", "MB", at_most=1024), measured.rss_mb)
    shutil.rmtree(store)


def far(bench: Bench) -> None:
    """Runs without new records on an S3 store whose answers take 20 ms more: seconds of the clock."""
    tool = [sys.executable, "-m", "tests.spark_ingest.far_run", str(bench.store), "wide", str(bench.rounds)]
    for number, clock_s, requests in _FAR.findall(bench.run(tool).printed):
        if number == "0":
            bench.figures.add(
                Case("400 partitions for the first time, 20 ms a request", "s of the clock"), float(clock_s)
            )
        else:
            case = Case("nothing new in 400 partitions, 20 ms a request", "s of the clock", at_most=3.0)
            bench.figures.add(case, float(clock_s))
            bench.figures.add(Case("the same", "requests"), float(requests))


def days(bench: Bench) -> None:
    """Measures the flights of `make demo` in files by day, which DuckDB counts. Raises CommandFailed."""
    config = bench.directory / "days.toml"
    job = {"store": bench.store, "output": bench.output, "topics": "flights"}
    settings = "".join(f'{name} = "{value}"\n' for name, value in job.items())
    config.write_text(f'[job]\n{settings}[topics.flights]\nevent_time = "{EVENT_TIME}"\npartition = "day"\n')
    for _ in range(bench.rounds):
        shutil.rmtree(bench.output, ignore_errors=True)
        bench.run(penstock_command("ingest", "run", "--config", str(config), "--engine", "local"))
        files = sum(1 for _ in bench.output.glob("tables/**/*.parquet"))
        bench.figures.add(Case("flights of the demo by day", "files", at_most=400), files)
        rows, clock_s = bench.peer("count", "flights", keep=True).printed.split()
        with (bench.directory / "flights.ndjson").open("rb") as lines:
            if int(rows) != sum(1 for _ in lines):
                raise CommandFailed(f"the table has {rows} flights")
        bench.figures.add(Case("the same, counted by DuckDB", "s of the clock", at_most=1.0), float(clock_s))


def typed_reads(bench: Bench) -> None:
    """Measures typed reads by Spark beside reads of Parquet with the same rows. The tool is of the tests."""
    if not bench.has_spark:
        return
    printed = bench.run([sys.executable, "-m", "tests.spark_ingest.typed_read_cost"]).printed
    rounds: dict[str, dict[str, float]] = {}
    for number, name, cpu_s in _TYPED.findall(printed):
        rounds.setdefault(number, {})[name] = float(cpu_s)
    for costs in list(rounds.values())[1:]:  # the first round compiles code of the JVM
        bench.figures.add(Case("a million rows: spark.read.parquet"), costs["parquet"])
        allowed = Case("typed spark.read, over 1.2 times of that plus 1 s", at_most=0.0)
        bench.figures.add(Case("the same, typed spark.read"), costs["typed"])
        bench.figures.add(allowed, max(0.0, costs["typed"] - _TYPED_FACTOR * costs["parquet"] - _TYPED_MORE_S))


PARTS: dict[str, Callable[[Bench], None]] = {
    "small": small,
    "compaction": compaction,
    "memory": memory,
    "planning": planning,
    "far": far,
    "days": days,
    "typed": typed_reads,
}
