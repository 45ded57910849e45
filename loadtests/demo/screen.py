"""The final screen of the demo. Lays out an Outcome without measuring or deciding.

Renders twice: for the terminal, and as plain text of a fixed width for the file. Bars are exact to half a cell.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadtests.demo.outcome import Check, Outcome, checks
from loadtests.demo.spark_report import CarrierRow

WIDTH = 100
_FLIGHTS_CELLS = 16
_FULL, _HALF, _LEFT_HALF, _ZERO = "━", "╸", "╺", "│"
AXIS_CELLS = 24
_WIDTH_MIN = 0.1  # a tiny value stays small


def print_screen(outcome: Outcome) -> None:
    """Prints the screen: in colour on a terminal, otherwise as in the file."""
    console = Console(highlight=False)
    if not console.is_terminal:
        print(plain_screen(outcome), end="")
        return
    console.width = min(console.width, WIDTH)
    console.print(_screen(outcome))


def plain_screen(outcome: Outcome) -> str:
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False)
    console.print(_screen(outcome))
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def _screen(outcome: Outcome) -> RenderableType:
    title = Text.assemble(
        ("Penstock", "bold cyan"),
        (f"   {len(outcome.flights):,} flights out of New York in 2013, from HTTP to Spark", "bold"),
    )
    parts: Iterable[RenderableType] = (title, "", _steps(outcome), "", _carriers(outcome), "", _places(outcome))
    return Padding(Group(*parts), (1, 2))


def _steps(outcome: Outcome) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    table.columns[-1].no_wrap = False
    for check in checks(outcome).values():
        seconds, remark = _details_of(outcome)[check.name]
        rate = f"{check.measured / seconds:,.0f}/s" if check.measured and check.name != "again" else ""
        table.add_row(*_check_cells(check), f"{seconds:.1f} s", Text(rate, "dim"), _remark(check, remark))
    return table


def _check_cells(check: Check) -> tuple[Text, Text, Text]:
    style = "green" if check.is_good else "bold red"
    return Text("✓" if check.is_good else "✗", style), Text(check.name), Text(f"{check.measured:,}", f"bold {style}")


def _remark(check: Check, remark: str) -> Text:
    return Text(remark, "dim") if check.is_good else Text(check.wrong, "bold red")


def _details_of(outcome: Outcome) -> dict[str, tuple[float, str]]:
    """Returns the duration of each step and its other details."""
    produced, fetched, tiered = outcome.produced, outcome.fetched, outcome.tiered
    megabytes = produced.size_bytes / produced.seconds / 1e6
    return {
        "produced": (produced.seconds, f"as JSON over {produced.http_version}, acks=all, {megabytes:.0f} MB/s"),
        "fetched": (fetched.seconds, f"by long polls, each exactly once, median {fetched.median_lag_ms:.0f} ms later"),
        "tiered": (tiered.seconds, f"{tiered.objects} objects, {tiered.size_bytes / 1e6:.0f} MB"),
        "ingested": (
            outcome.ingested.seconds,
            f"by Spark into {outcome.ingested.files:,} Parquet files of {outcome.report.hours:,} hours",
        ),
        "again": (outcome.second_ingest.seconds, "a second ingest adds nothing"),
    }


def _carriers(outcome: Outcome) -> Table:
    rows = outcome.report.carriers
    flights_max = max((row.flights for row in rows), default=1)
    delays = [row.mean_delay_minutes or 0.0 for row in rows]
    axis = Axis.over(delays)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("carrier, as Spark counts", no_wrap=True)
    table.add_column("flights", justify="right", no_wrap=True)
    table.add_column("", width=_FLIGHTS_CELLS)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("mean arrival delay, minutes", no_wrap=True)
    for row in rows:
        table.add_row(*_carrier_cells(row, outcome.flights.carrier_names, flights_max, axis))
    return table


def _carrier_cells(row: CarrierRow, names: dict[str, str], flights_max: int, axis: Axis) -> Sequence[Text]:
    delay = row.mean_delay_minutes
    style = "green" if delay is not None and delay <= 0 else "yellow"
    return (
        Text(row.carrier, "bold"),
        Text(names.get(row.carrier, "?")),
        Text(f"{row.flights:,}"),
        Text(bar(row.flights / flights_max * _FLIGHTS_CELLS), "cyan"),
        Text("-" if delay is None else f"{delay:.1f}", style),
        axis.bar(delay or 0.0, style),
    )


def _places(outcome: Outcome) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    minutes, seconds = divmod(round(outcome.seconds), 60)
    for name, value in (
        ("tables", f"{_near(outcome.table)}/dt=…/hr=…/*.parquet"),
        ("plot", _near(outcome.plot)),
        ("this", _near(outcome.screen)),
        ("took", f"{minutes} min {seconds:02} s; the node has ended and its data is removed"),
    ):
        table.add_row(Text(name, "dim"), Text(value, overflow="fold"))
    return table


def _near(path: Path) -> str:
    """Returns the shortest path from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def bar(cells: float, *, is_leftward: bool = False) -> str:
    """Returns a bar of `cells` cells; a value above zero has at least half a cell."""
    halves = max(round(cells * 2), 1 if cells > 0 else 0)
    full, half = _FULL * (halves // 2), halves % 2
    return _LEFT_HALF * half + full if is_leftward else full + _HALF * half


class Axis(NamedTuple):
    """Cells for one unit, and cells left of zero."""

    cells_per_unit: float
    left_cells: int

    @classmethod
    def over(cls, values: Iterable[float]) -> Self:
        """Returns the axis on which zero and all values span AXIS_CELLS."""
        ends = [0.0, *values]
        cells_per_unit = AXIS_CELLS / max(max(ends) - min(ends), _WIDTH_MIN)
        left_cells = min(AXIS_CELLS, math.ceil(-min(ends) * cells_per_unit))  # the product may round up past it
        return cls(cells_per_unit, left_cells)

    def bar(self, value: float, style: str) -> Text:
        cells = abs(value) * self.cells_per_unit
        left = bar(cells, is_leftward=True) if value < 0 else ""
        right = bar(cells) if value > 0 else ""
        return Text.assemble((left.rjust(self.left_cells), style), (_ZERO, "dim"), (right, style))
