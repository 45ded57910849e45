"""A report of one run and its forms: a table on the terminal, Markdown for a page, JSON with all figures."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadtests.bench.figures import Row
from loadtests.host.machine import Machine

COLUMNS = ("case", "req/s", "records/s", "MB/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU µs/req", "RSS MB", "of bare")

GOOD_RATIO = 0.6  # the target of stored batches, as a share of the bare function
POOR_RATIO = 0.3
NAME_WIDTH = 30
WIDTH_MIN = 104  # narrower, and the columns of figures would be cut

CLOSED_LOOP_NOTE = "Closed loop: the time of one request at full load, with 64 in flight (fetch: 8)."
OPEN_LOOP_NOTE = "Open loop (asked): counted from the scheduled moment, so that no stall is hidden."
RATIO_NOTE = (
    "MB/s counts HTTP bodies. The column 'of bare': requests/s against a Granian function that appends the raw body to "
    "a file, or reads as many bytes from one, without fsync, in the same rounds."
)


@dataclass(frozen=True, slots=True)
class Report:
    """All results of a run."""

    plan: str
    started: str
    version: str
    machine: Machine
    generator: str
    rows: tuple[Row, ...]
    proofs: tuple[str, ...]
    recovery: tuple[str, ...]
    checked: int
    mismatches: tuple[str, ...]
    took_s: float

    @property
    def is_correct(self) -> bool:
        return not self.mismatches


def titles(report: Report) -> list[str]:
    """Returns the groups in the order of the rows."""
    return list(dict.fromkeys(row.title for row in report.rows))


def name_of(row: Row) -> str:
    """Returns a row's name below its group's title."""
    if row.peer == "bare":
        return "bare function"
    name = f"acks={row.acks}" if row.acks else "penstock"
    if row.flush_delay_ms:
        name += f", fdatasync + {row.flush_delay_ms} ms"
    return f"{name}, {row.asked_per_s:,.0f}/s asked" if row.asked_per_s is not None else name


def cells_of(row: Row) -> tuple[str, ...]:
    """Returns the columns after the name. A dagger marks a figure that the generator may limit."""
    latency = row.latency
    return (
        f"{row.requests_per_s:,.0f}" + ("†" if row.is_generator_bound else ""),
        _records(row.records_per_s),
        f"{row.megabytes_per_s:,.1f}" if row.megabytes_per_s < 100 else f"{row.megabytes_per_s:,.0f}",
        *(_milliseconds(value) for value in (latency.p50_ms, latency.p99_ms, latency.p99_9_ms)),
        f"{row.cpu_us_per_request:,.0f}",
        f"{row.rss_megabytes:,.0f}",
        "" if row.ratio_to_bare is None or row.peer == "bare" else f"{row.ratio_to_bare:.0%}",
    )


def facts(report: Report) -> list[str]:
    """Returns the facts above the table."""
    machine = report.machine
    return [
        f"{machine.cores} cores, {machine.cpu}, {machine.memory_bytes / 2**30:.1f} GiB, kernel {machine.kernel}",
        f"Python {machine.python}, Granian {machine.granian}, Penstock {report.version}",
        f"plan {report.plan}, {report.started}, {report.took_s:.0f} s",
        f"data on {machine.file_system}; append and fdatasync of 4 KiB: {_spread(machine)} ms (least, p50, most)",
        f"closed loops by {report.generator}, on the same machine",
    ]


def notes(report: Report) -> list[str]:
    """Returns the notes below the table."""
    busiest = max((row.others_share for row in report.rows), default=0.0)
    lines = [
        CLOSED_LOOP_NOTE,
        OPEN_LOOP_NOTE,
        RATIO_NOTE,
        f"Other programs used up to {busiest:.0%} of the machine in a round: trust CPU per request and ratios first.",
    ]
    if any(row.is_generator_bound for row in report.rows):
        lines.append("† the generator used its whole core: the server may be faster than this figure.")
    if report.machine.flush_caveat:
        lines.append(f"Mind: {report.machine.flush_caveat}.")
    return lines


def verdict(report: Report) -> str:
    if report.is_correct:
        return f"Checked after {report.checked} rounds: stored is exactly what was acknowledged, answers are complete."
    return f"{len(report.mismatches)} of {report.checked} checks FAILED."


def to_json(report: Report) -> str:
    return json.dumps(dataclasses.asdict(report), indent=2) + "\n"


def to_markdown(report: Report) -> str:
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: Report) -> Iterator[str]:
    yield from (f"- {fact}" for fact in facts(report))
    yield ""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "| --- |" + " ---: |" * (len(COLUMNS) - 1)
    for title in titles(report):
        yield f"| **{title}** |" + " |" * (len(COLUMNS) - 1)
        for row in report.rows:
            if row.title == title:
                yield "| " + " | ".join((name_of(row), *cells_of(row))) + " |"
    yield ""
    yield from (
        f"- {line}" for line in (*notes(report), *report.recovery, *report.proofs, verdict(report), *report.mismatches)
    )


def _spread(machine: Machine) -> str:
    return ", ".join(f"{time_ms:.2f}" for time_ms in (machine.flush_min_ms, machine.flush_p50_ms, machine.flush_max_ms))


def _records(per_s: float) -> str:
    return f"{per_s / 1e6:.2f} M" if per_s >= 1e5 else f"{per_s:,.0f}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def print_report(report: Report, console: Console) -> None:
    if console.width < WIDTH_MIN:
        console = Console(width=WIDTH_MIN, file=console.file)
    console.print(render(report))


def render(report: Report) -> RenderableType:
    head = Text("\n".join(facts(report)), style="dim")
    foot = [Text(line, style="dim") for line in notes(report)]
    foot += [Text(line) for line in report.recovery]
    proofs = [Text(line, style="red" if "not proved" in line else "green") for line in report.proofs]
    checks = Text(verdict(report), style="bold green" if report.is_correct else "bold red")
    wrong = [Text(f"  {line}", style="red") for line in report.mismatches]
    title = Text("Penstock bench", style="bold cyan")
    return Group(Text(), title, head, Text(), _table(report), Padding(Group(*foot, *proofs, checks, *wrong), (1, 0)))


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), header_style="bold", show_edge=False)
    table.add_column(COLUMNS[0], no_wrap=True, min_width=NAME_WIDTH)
    for column in COLUMNS[1:]:
        table.add_column(column.replace(" ", "\n"), justify="right", no_wrap=True)  # units go on the next line
    for number, title in enumerate(titles(report)):
        if number:
            table.add_row()
        table.add_row(Text(title, style="bold"))
        for row in report.rows:
            if row.title != title:
                continue
            style = "dim" if row.peer == "bare" else ""
            *figures, ratio = cells_of(row)
            table.add_row(
                f"  {name_of(row)}", *figures, Text(ratio, style=_ratio_style(row.ratio_to_bare)), style=style
            )
    return table


def _ratio_style(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return "green" if ratio >= GOOD_RATIO else "red" if ratio < POOR_RATIO else "yellow"
