"""A session of a load generator of the field: its command runs for each round, and its printed figures are parsed.

The tools are h2load's counterparts: `kafka-producer-perf-test`, `nats bench` and `redis-benchmark`. They send an exact
number of records. This file does not know their options.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import NamedTuple

from loadtests.bench.entrants.session import RUN_S, UNBOUNDED, Counted
from loadtests.generators.load import GeneratorFailed, Outcome, ended_children_cpu_s
from loadtests.generators.percentiles import Latency

CLOCK_S = 0.001  # of the tools: they count milliseconds


class Printed(NamedTuple):
    """The figures that a tool prints."""

    records: int
    records_per_s: float
    p50_ms: float
    p99_ms: float


class ToolSession:
    """Runs a tool at one log. `command_of` takes the number of records; `count` counts the log."""

    def __init__(
        self,
        command_of: Callable[[int], list[str]],
        parse: Callable[[str, int], Printed],
        records_each: int,
        *,
        count: Callable[[], int] | None = None,
        close: Callable[[], None] = lambda: None,
        requests_step: int = 1,
        requests_max: int = UNBOUNDED,
    ) -> None:
        self._command_of = command_of
        self._parse = parse
        self._count = count
        self._close = close
        self._sent = 0
        self.records_each = float(records_each)
        self.requests_step = requests_step
        self.requests_max = requests_max

    def run(self, requests: int) -> Counted:
        """Runs the tool once. Raises GeneratorFailed."""
        records = requests * round(self.records_each)
        cpu_before = ended_children_cpu_s()
        printed = self._parse(run_tool(self._command_of(records)), records)
        self._sent += printed.records
        outcome = Outcome(
            good=round(printed.records / self.records_each),
            bad=0,
            seconds=max(CLOCK_S, printed.records / printed.records_per_s),
            durations_us=[],
            answer_bytes=0,
            generator_cpu_s=ended_children_cpu_s() - cpu_before,
        )
        return Counted(outcome, printed.records, Latency(0, printed.p50_ms, printed.p99_ms, None, None))

    def problem(self) -> str:
        if self._count is None:
            return ""
        stored = self._count()
        return "" if stored == self._sent else f"the log has {stored} records, sent were {self._sent}"

    def close(self) -> None:
        self._close()


def run_tool(command: list[str]) -> str:
    """Returns what a tool prints. Raises GeneratorFailed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired:
        raise GeneratorFailed(f"{command[0]} was not over after {RUN_S:.0f} s") from None
    if done.returncode != 0:
        raise GeneratorFailed(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    return done.stdout + done.stderr
