"""A report on the terminal: one screen, drawn with rich."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loadtests.bench.report import COLUMNS, Report, cells_of, facts, name_of, notes, titles, verdict

GOOD_RATIO = 0.6  # what a stored batch should reach of the bare function
POOR_RATIO = 0.3
NAME_WIDTH = 30
WIDTH_MIN = 104  # narrower, and the columns of figures would be cut


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
        table.add_column(column.replace(" ", "\n"), justify="right", no_wrap=True)  # units go below
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
