"""Shows progress on standard error: bars on a terminal, removed at the end; otherwise plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as bars
from rich.console import Console


class Step(Protocol):
    def advance(self, count: int) -> None: ...
    def finish(self, summary: str) -> None: ...


class Progress(Protocol):
    def step(self, name: str, total: int | None = None) -> Step:
        """Begins a step of `total` records; None if the number is unknown."""


@contextmanager
def show_progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    shown = bars.Progress(
        bars.SpinnerColumn(style="cyan", finished_text="[green]✓[/]"),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=24, complete_style="cyan", finished_style="dim green", pulse_style="cyan"),
        bars.TextColumn("{task.elapsed:6.1f} s", style="dim"),
        bars.TextColumn("{task.fields[summary]}"),
        console=Console(stderr=True),
        transient=True,  # the screen shows the results
    )
    with shown:
        yield BarProgress(shown)


class PlainProgress:
    """A line when a step begins and one when it is done."""

    def step(self, name: str, total: int | None = None) -> Step:
        print(f"{name} ...", file=sys.stderr, flush=True)
        return _PlainStep(name)


class _PlainStep:
    def __init__(self, name: str) -> None:
        self._name = name
        self._started = time.perf_counter()

    def advance(self, count: int) -> None:
        return

    def finish(self, summary: str) -> None:
        seconds = time.perf_counter() - self._started
        print(f"{self._name}: {summary} ({seconds:.1f} s)", file=sys.stderr, flush=True)


class BarProgress:
    def __init__(self, shown: bars.Progress) -> None:
        self._shown = shown

    def step(self, name: str, total: int | None = None) -> Step:
        return _BarStep(self._shown, name, total)


class _BarStep:
    def __init__(self, shown: bars.Progress, name: str, total: int | None) -> None:
        self._shown = shown
        self._total = total or 1
        self._count = 0
        self._task = shown.add_task(name.ljust(25), total=total, summary="")

    def advance(self, count: int) -> None:
        self._count += count
        self._shown.update(self._task, completed=self._count, summary=f"{self._count:,}")

    def finish(self, summary: str) -> None:
        self._shown.update(self._task, total=self._total, completed=self._total, summary=summary)
        self._shown.stop_task(self._task)  # otherwise its timer continues
