"""Computes the figures of cells from measured rounds. Pure.

The main figure is the CPU time of the server's processes for a record, which other load on the machine disturbs least.
Microseconds a record are the same number as seconds a million records. Ratios are computed within each round, between
cells that ran close to each other, and then the median is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loadtests.bench.works import Cell
from loadtests.generators.percentiles import median

COMPILER_SHARE_MAX = 0.1  # of its CPU; above it a JVM is not warm
GENERATOR_BOUND_SHARE = 0.9  # of the one core that a generator can use
Figure = Literal["cpu", "p50", "p99"]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one cell."""

    records: int
    seconds: float
    server_cpu_s: float
    p50_ms: float | None
    p99_ms: float | None
    generator_share: float
    others_share: float
    compiler_share: float = 0.0  # of the server's CPU, by the compiler threads of a JVM

    @property
    def cpu_us(self) -> float:
        return self.server_cpu_s * 1e6 / max(1, self.records)

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    def figure(self, name: Figure) -> float | None:
        return {"cpu": self.cpu_us, "p50": self.p50_ms, "p99": self.p99_ms}[name]


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a cell: medians of its rounds, and the least and the most CPU time."""

    cell: Cell
    rounds: tuple[Round, ...]

    @property
    def cpu_us(self) -> float:
        return median([sample.cpu_us for sample in self.rounds])

    @property
    def cpu_us_spread(self) -> tuple[float, float]:
        return min(sample.cpu_us for sample in self.rounds), max(sample.cpu_us for sample in self.rounds)

    @property
    def records_per_s(self) -> float:
        return median([sample.records_per_s for sample in self.rounds])

    @property
    def p50_ms(self) -> float | None:
        return _median_of([sample.p50_ms for sample in self.rounds])

    @property
    def p99_ms(self) -> float | None:
        return _median_of([sample.p99_ms for sample in self.rounds])

    @property
    def is_generator_bound(self) -> bool:
        return median([sample.generator_share for sample in self.rounds]) > GENERATOR_BOUND_SHARE

    @property
    def compiler_share(self) -> float:
        return median([sample.compiler_share for sample in self.rounds])

    @property
    def is_warm(self) -> bool:
        return self.compiler_share < COMPILER_SHARE_MAX

    @property
    def others_share(self) -> float:
        return max(sample.others_share for sample in self.rounds)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the ratios within each round, and the least and the most."""

    median: float
    least: float
    most: float


def ratio_of(rounds: Sequence[Round], against: Sequence[Round], figure: Figure) -> Ratio | None:
    """Returns how many times as much the first has; None where a figure is missing or zero."""
    ratios = []
    for sample, other in zip(rounds, against, strict=False):
        mine, theirs = sample.figure(figure), other.figure(figure)
        if mine is not None and theirs:
            ratios.append(mine / theirs)
    return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None


def rows_of(cells: Sequence[Cell], measured: Mapping[str, Sequence[Round]]) -> list[Row]:
    """Returns a row for each cell that was measured."""
    return [Row(cell, tuple(measured[cell.key])) for cell in cells if measured.get(cell.key)]


def _median_of(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if present else None
