"""Output for people: plain tables, facts, numbers with separators. Programs get JSON, one document per command.

Tables have no lines, dim headers, and numbers aligned right. Colour and width adapt to a terminal; elsewhere the output
is plain and never truncated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
import orjson

_WIDTH_WITHOUT_TERMINAL = 10_000  # a pipe has no width: rows are never wrapped or truncated
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIME_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))


class Column(NamedTuple):
    """Holds a header of one or two lines, and whether the column is text, aligned left. Numbers are aligned right."""

    header: str
    is_text: bool = False


def print_json(document: Any) -> None:
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _WIDTH_WITHOUT_TERMINAL, highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    has_two_lines = any("\n" in header for header, _ in columns)
    for header, is_text in columns:
        above = "\n" if has_two_lines and "\n" not in header else ""
        table.add_column(above + header, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in rows:
        table.add_row(*(Text(format_value(cell)) for cell in row))
    console.print(table)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        click.echo(f"{click.style(name.ljust(width), dim=True)}  {format_value(value)}")


def print_note(message: str) -> None:
    """Print a remark on standard error, to keep it out of the output that programs read."""
    click.echo(message, err=True)


def format_value(value: object) -> str:
    """Format the value of a cell: integers with separators, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def format_bytes(size_bytes: int) -> str:
    """Format a size with three digits and a unit: `64.0 MiB`."""
    size, unit = float(size_bytes), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    if unit == 0:
        return f"{size_bytes} B"
    return f"{size:.{max(0, 3 - len(str(int(size))))}f} {_UNITS[unit]}"


def format_rate(count: float, seconds: float) -> str:
    return f"{count / max(seconds, 1e-9):,.0f}"


def format_time(timestamp_ms: int) -> str:
    """Format a record's time: in the local zone on a terminal, else in UTC. An invalid time stays a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, None if sys.stdout.isatty() else UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def format_duration(duration_ms: int) -> str:
    """Format a duration in the largest unit that divides it: `7 days`, `90 seconds`."""
    for unit_ms, name in _TIME_UNITS:
        if duration_ms and duration_ms % unit_ms == 0:
            count = duration_ms // unit_ms
            return f"{count:,} {name}{'' if count == 1 else 's'}"
    return f"{duration_ms:,} ms"


def format_count(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
