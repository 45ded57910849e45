"""A progress bar on standard error, if that is a terminal; nothing elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from penstock.cli.output import format_bytes, format_count
from penstock.cli.records.reading import STDIN


class Progress(NamedTuple):
    """Updates the bar: `advance` takes the bytes done since the last call, and the records done in total."""

    advance: Callable[[int, int], None]


@contextmanager
def progress_of(inputs: Sequence[str]) -> Iterator[Progress]:
    """Shows a bar while the block runs, unless the input is typed at a terminal. Shows no total if it is unknown."""
    total_bytes = input_bytes(inputs)
    if not sys.stderr.isatty() or (STDIN in inputs and sys.stdin.isatty()):
        yield Progress(_show_nothing)
        return
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.BarColumn(bar_width=18),
        progress.TextColumn("{task.fields[text]}"),
        progress.TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,  # the summary line replaces it at the end
    )
    with bar:
        task = bar.add_task("", total=total_bytes, text="")

        def advance(size_bytes: int, records: int) -> None:
            bar.update(task, advance=size_bytes)
            done = bar.tasks[0]
            of_total = f" of {format_bytes(total_bytes)}" if total_bytes else ""
            rate = format_bytes(int(done.speed or 0))
            bar.update(
                task, text=f"{format_count(records, 'record')}, {format_bytes(int(done.completed))}{of_total}, {rate}/s"
            )

        yield Progress(advance)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Yields a function that replaces the text of a line on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as line:
        yield line.update


def _show_nothing(size_bytes: int, records: int) -> None:
    return


def input_bytes(inputs: Iterable[str]) -> int | None:
    """Returns the total size of the inputs in bytes, or None if one is standard input or not a regular file."""
    total = 0
    for name in inputs:
        if name == STDIN or not os.path.isfile(name):
            return None
        total += os.path.getsize(name)
    return total
