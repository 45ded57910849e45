"""One server at one work, ready to run: the value between a server and the rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from loadtests.bench.works import Cell
from loadtests.generators.load import Outcome
from loadtests.generators.percentiles import Latency

IN_FLIGHT = 64
READERS = 8
FETCH_BYTES = 1 << 20
RUN_S = 120.0
UNBOUNDED = 1 << 40


@dataclass(frozen=True, slots=True)
class Counted:
    """The outcome of a run, and the records that were acknowledged, read or delivered.

    `latency` is what a tool measured; without it the durations of the outcome have it.
    """

    outcome: Outcome
    records: int
    latency: Latency | None = None


class Session(Protocol):
    """A log of a server, and the load on it."""

    @property
    def records_each(self) -> float:
        """Returns the records of a request, about."""

    @property
    def requests_step(self) -> int:
        """Returns the least number of requests of a run, and what it must be a multiple of."""

    @property
    def requests_max(self) -> int:
        """Returns the largest number of requests of a run."""

    def run(self, requests: int) -> Counted:
        """Runs the load. Raises GeneratorFailed."""

    def problem(self) -> str:
        """Returns what is wrong with the log or with what was read after all runs; empty if nothing is."""

    def close(self) -> None:
        """Removes the log, unless other rounds read it."""


class Entrant(Protocol):
    """A running server that takes part in the comparison."""

    def pid(self, cell: Cell) -> int:
        """Returns the process that does the work of a cell."""

    def session(self, cell: Cell) -> Session:
        """Returns a session with a log of its own, or with the one that all rounds read."""

    def facts(self) -> list[str]:
        """Returns version, settings, and what an answer guarantees."""
