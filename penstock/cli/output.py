"""Output for people: plain tables, facts, numbers with separators. Programs get JSON, one document per command.

Tables have no lines, dim headers, and numbers aligned right. Colour and width adapt to a terminal; elsewhere the output
is plain and never truncated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
import orjson

_WIDTH_WITHOUT_TERMINAL = 10_000  # a pipe has no width: rows are never wrapped or truncated
UNHEALTHY = (  # states of partitions in the description of a cluster, the worst first
    ("without a leader", "offline_partitions"),
    ("too few in sync for acks=all", "under_min_in_sync"),
    ("under-replicated", "under_replicated"),
)
NAMED_MAX = 10  # topics listed per state; --json lists all
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MINUTE_MS = 60_000
_TIME_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (_MINUTE_MS, "minute"), (1000, "second"))
_TEXT_WIDTH = 12  # a narrower column of text is hard to read
_PADDING = 2


class Column(NamedTuple):
    """Holds a header of one or two lines, and whether the column is text, aligned left. Numbers are aligned right."""

    header: str
    is_text: bool = False


def colour_choice() -> bool | None:
    """Returns False if NO_COLOR is set (https://no-color.org), else None: a terminal decides."""
    return False if os.environ.get("NO_COLOR") else None


def print_json(document: Any) -> None:
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def print_result(document: Any, text: str, *, as_json: bool) -> None:
    """Prints what a command has done: as JSON for programs, as a sentence for people."""
    if as_json:
        print_json(document)
    else:
        click.echo(text)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[format_value(cell) for cell in row] for row in rows]
    width = _WIDTH_WITHOUT_TERMINAL
    if sys.stdout.isatty():  # a terminal wraps lines that are longer; rich would cut numbers to make them fit
        width = max(Console().width, _least_width(columns, cells))
    console = Console(width=width, highlight=False)
    style = "" if colour_choice() is False else "dim"
    table = Table(box=None, pad_edge=False, padding=(0, _PADDING, 0, 0), header_style=style)
    has_two_lines = any("\n" in header for header, _ in columns)
    for header, is_text in columns:
        above = "\n" if has_two_lines and "\n" not in header else ""
        table.add_column(above + header, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _least_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Returns the width that shows all numbers whole, and text in columns that are still readable."""
    least = 0
    for number, column in enumerate(columns):
        cells = [*column.header.split("\n"), *(row[number] for row in rows)]
        longest = max(map(len, cells))
        least += _PADDING + (min(longest, _TEXT_WIDTH) if column.is_text else longest)
    return least


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Prints names and values, one pair per line."""
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        click.echo(f"{click.style(name.ljust(width), dim=True)}  {format_value(value)}")


def print_note(message: str) -> None:
    """Prints a remark on standard error, to keep it out of the output that programs read."""
    click.echo(message, err=True)


def print_limits(document: Mapping[str, Any]) -> bool:
    """Prints that an answer has only what the token has the right to. Returns False without such a limit."""
    limits = document.get("limited_to")
    if limits is None:
        return False
    prefixes = ", ".join(f"{prefix}…" for prefix in limits["prefixes"]) or "none"
    print_note(f"The answer is limited by the token's right {limits['right']}, which has these prefixes: {prefixes}.")
    return True


def format_value(value: object) -> str:
    """Formats the value of a cell: integers with separators, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def format_bytes(size_bytes: int) -> str:
    """Formats a size with three digits and a unit: `64.0 MiB`."""
    size, unit = float(size_bytes), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    if unit == 0:
        return f"{size_bytes} B"
    return f"{size:.{max(0, 3 - len(str(int(size))))}f} {_UNITS[unit]}"


def format_rate(count: float, seconds: float) -> str:
    return f"{count / max(seconds, 1e-9):,.0f}"


def format_time(timestamp_ms: int) -> str:
    """Formats a record's time: in the local zone on a terminal, else in UTC. An invalid time stays a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, None if sys.stdout.isatty() else UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def format_duration(duration_ms: int) -> str:
    """Formats a duration in the largest unit that divides it, else in its two largest: `90 seconds`, `2 days 3 hours`.

    Below one minute the second unit is a tenth of a second, below one second it is a millisecond.
    """
    for unit_ms, name in _TIME_UNITS:
        if duration_ms and duration_ms % unit_ms == 0:
            return format_count(duration_ms // unit_ms, name)
    if duration_ms < _MINUTE_MS:
        return f"{duration_ms:,} ms" if duration_ms < 1000 else f"{duration_ms / 1000:.1f} seconds"
    index = next(index for index, (unit_ms, _) in enumerate(_TIME_UNITS) if duration_ms >= unit_ms)
    (large_ms, large), (small_ms, small) = _TIME_UNITS[index : index + 2]
    count, rest = divmod(duration_ms, large_ms)
    smaller = f" {format_count(rest // small_ms, small)}" if rest >= small_ms else ""
    return format_count(count, large) + smaller


def format_count(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_partitions(topics: Sequence[Mapping[str, Any]]) -> str:
    """Formats partitions by topic, `orders/0,3 rides/1`; those of the first ten topics."""
    named = [f"{entry['topic']}/{','.join(map(str, entry['partitions']))}" for entry in topics[:NAMED_MAX]]
    more = [f"and of {len(topics) - NAMED_MAX} more topics"] if len(topics) > NAMED_MAX else []
    return " ".join([*named, *more])
