"""One screen after a run of locust: each kind of request, the node's cost, and locust's own beside h2load's. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadtests.locust.node_samples import NodeUsage

COLUMNS = ("request", "requests/s", "failures", "p50 ms", "p99 ms", "most ms")
TOTAL = "Aggregated"


@dataclass(frozen=True, slots=True)
class GeneratorCost:
    """The rate that a generator reached, and the CPU that it used itself for a request."""

    name: str
    requests_per_s: float
    cpu_us_per_request: float


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The outcome of a run. `rows` are those of locust's CSV."""

    title: str
    rows: tuple[dict[str, str], ...]
    node: NodeUsage
    costs: tuple[GeneratorCost, ...]
    files: tuple[str, ...]

    @property
    def failures(self) -> int:
        return sum(int(row["Failure Count"]) for row in self.rows if row["Name"] != TOTAL)


def rows_of(text: str) -> tuple[dict[str, str], ...]:
    """Returns the rows of locust's CSV of statistics."""
    return tuple(csv.DictReader(io.StringIO(text)))


def lines_of(report: LoadReport) -> list[tuple[str, ...]]:
    """Returns a line of the table for each kind of request, and one for all."""
    return [
        (
            row["Name"],
            f"{float(row['Requests/s']):,.1f}",
            row["Failure Count"],
            *(_milliseconds(row[name]) for name in ("50%", "99%", "100%")),
        )
        for row in report.rows
    ]


def facts(report: LoadReport) -> list[str]:
    """Returns the lines below the table."""
    node = report.node
    lag = "no sample" if node.loop_lag_p99_s is None else f"at most {node.loop_lag_p99_s * 1000:g} ms at p99"
    cores = f"{node.cpu_cores:.2f} cores, at most {node.cpu_cores_most:.2f}"
    lines = [f"Node: {cores}; {node.rss_bytes_most / 1e6:,.0f} MB at most; loop lag {lag}."]
    for cost in report.costs:
        lines.append(
            f"{cost.name}: {cost.requests_per_s:,.0f} requests/s; the generator itself used "
            f"{cost.cpu_us_per_request:,.0f} µs of CPU a request."
        )
    return [*lines, f"Written: {', '.join(report.files)}"]


def render(report: LoadReport) -> RenderableType:
    table = Table(*COLUMNS, box=box.SIMPLE_HEAD, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines_of(report):
        table.add_row(*line, style="bold" if line[0] == TOTAL else "")
    verdict = Text("No request failed.", style="bold green")
    if report.failures:
        verdict = Text(f"{report.failures} requests FAILED.", style="bold red")
    below: Sequence[RenderableType] = [Text(line, style="dim") for line in facts(report)]
    return Group(Text(report.title, style="bold cyan"), table, Padding(Group(*below, verdict), (0, 1)))


def _milliseconds(text: str) -> str:
    return "–" if text in ("", "N/A") else f"{float(text):,.0f}"
