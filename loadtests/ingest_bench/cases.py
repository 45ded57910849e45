"""The measured cases, and the targets of the project. A figure is seconds of processor time unless it has a unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

LOCAL, SPARK = "ingest run --engine local", "ingest run, beyond the start of Spark"
DUCKDB, PYARROW, PLAIN_SPARK = "DuckDB", "PyArrow", "Spark reading NDJSON, beyond its start"
START = "start of Spark"


@dataclass(frozen=True, slots=True)
class Case:
    """Has a target if it has `at_most` or `at_least`."""

    name: str
    unit: str = "s"
    at_most: float | None = None
    at_least: float | None = None

    def word(self, figure: float) -> str:
        """Returns whether the target is met; empty without one."""
        if self.at_most is not None:
            beyond = f"{figure / self.at_most - 1:.0%}" if self.at_most else f"{_number(figure)} {self.unit}"
            return "met" if figure <= self.at_most else f"not met, by {beyond}"
        if self.at_least is not None:
            return "met" if figure >= self.at_least else f"not met, by {1 - figure / self.at_least:.0%}"
        return ""

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}" if self.at_least is not None else ""


@dataclass(slots=True)
class Figures:
    """The figures of each case in the order in which they were measured."""

    measured: dict[Case, list[float]] = field(default_factory=dict)

    def add(self, case: Case, figure: float) -> None:
        self.measured.setdefault(case, []).append(figure)

    def table(self) -> list[str]:
        """Returns the lines of a table in Markdown: the median of each case, least and most, and its target."""
        lines = ["| case | median | least to most | target | |", "|---|---:|---:|---:|---|"]
        for case, figures in self.measured.items():
            middle = median(figures)
            least, most = _number(min(figures)), _number(max(figures))
            cells = (f"{_number(middle)} {case.unit}", f"{least} to {most}", case.target, case.word(middle))
            lines.append(f"| {case.name} | {' | '.join(cells)} |")
        return lines


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"


def rows_cases(hours: int) -> dict[str, Case]:
    """Returns the cases of a million rows over so many hours, by who does the work."""
    aims = {LOCAL: 2.5, SPARK: 2.5} if hours == 2 else {LOCAL: 3.5, SPARK: 3.5}
    names = (LOCAL, SPARK, DUCKDB, PYARROW, PLAIN_SPARK)
    return {name: Case(f"a million rows over {hours} hours: {name}", at_most=aims.get(name)) for name in names}


def alternate(rounds: int, cases: Sequence[Callable[[], None]]) -> None:
    """Runs all cases in each round, in the other direction in every second one."""
    for at in range(rounds):
        for case in cases if at % 2 == 0 else reversed(cases):
            case()
