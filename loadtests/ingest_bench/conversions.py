"""The rows of NDJSON to hourly Parquet, by ingestion and by the peers: seconds of processor time for a million rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loadtests.ingest_bench.cases import (
    DUCKDB,
    LOCAL,
    PLAIN_SPARK,
    PYARROW,
    SPARK,
    START,
    Case,
    alternate,
    rows_cases,
)
from loadtests.ingest_bench.measured import Measured
from loadtests.ingest_bench.parts import LOCAL_ENGINE, SPARK_ENGINE, Bench

MEMORY_MB = 1024
_PEERS = {DUCKDB: "duckdb", PYARROW: "pyarrow", PLAIN_SPARK: "spark"}
_BEYOND_START = (SPARK, PLAIN_SPARK)


class Conversions:
    """Measures all programs. The first table of each topic is compared with its lines."""

    def __init__(self, bench: Bench, rows: int, hours: Sequence[int]) -> None:
        self._bench = bench
        self._millions = rows / 1e6
        self._hours = hours
        self._start_s = {SPARK: 0.0, PLAIN_SPARK: 0.0}
        self._are_true: dict[int, bool] = {}

    def measure(self) -> bool:
        """Returns whether the tables have the rows of the lines."""
        works: list[Callable[[], None]] = [self._start] if self._bench.has_spark else []
        for hours in self._hours:
            works += [
                partial(self._convert, name, case, hours)
                for name, case in rows_cases(hours).items()
                if self._bench.has_spark or name not in _BEYOND_START
            ]
        if self._bench.has_spark:
            self._start()  # before the first round, which may run in the other direction
        alternate(self._bench.rounds, works)
        return all(self._are_true.values())

    def _start(self) -> None:
        for name, peer in ((SPARK, "ingest-start"), (PLAIN_SPARK, "spark-start")):
            measured = self._bench.peer(peer, "")
            self._start_s[name] = measured.cpu_s
            self._bench.figures.add(Case(f"{START}, subtracted from: {name}"), measured.cpu_s)

    def _convert(self, name: str, case: Case, hours: int) -> None:
        topic = f"hours-{hours}"
        measured = self._bench.peer(_PEERS[name], topic) if name in _PEERS else self._ingest(topic, hours, name)
        start_s = self._start_s.get(name, 0.0)
        self._bench.figures.add(case, (measured.cpu_s - start_s) / self._millions)

    def _ingest(self, topic: str, hours: int, name: str) -> Measured:
        engine = LOCAL_ENGINE if name == LOCAL else SPARK_ENGINE
        measured = self._bench.ingest(topic, "--event-time", "ts", *engine)
        if hours not in self._are_true:
            printed = self._bench.peer("truth", topic, keep=True).printed
            self._are_true[hours] = printed.rstrip().endswith(" equal")
            print(f"{topic}: rows and their hash {printed}", end="", flush=True)
        if name == LOCAL:
            memory = Case(f"largest process, {hours} hours: {name}", "MB", at_most=MEMORY_MB)
            self._bench.figures.add(memory, measured.rss_mb)
        return measured
