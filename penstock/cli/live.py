"""A screen that is drawn again every few seconds until a key ends it. Knows terminals; does not know what it shows."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout

QUIT, PAUSE = "q", "p"


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def show_live(draw: Callable[[str], None], every_s: float) -> None:
    """Shows what `draw` prints, given the key that was pressed last or "". q ends it, p pauses until the next key."""
    from rich.live import Live
    from rich.text import Text

    with _single_keys() as wait_key, Live(screen=True, auto_refresh=False) as live:
        key = ""
        while key != QUIT:
            if key != PAUSE:
                printed = io.StringIO()
                with redirect_stdout(printed):
                    draw(key)
            note = "paused: any key goes on\n" if key == PAUSE else ""
            live.update(Text(note + printed.getvalue(), no_wrap=True, overflow="ellipsis"), refresh=True)
            key = wait_key(None if key == PAUSE else every_s)


def in_order(names: Collection[str], before: list[str]) -> list[str]:
    """Returns the names in the order that they had; new ones follow in their own."""
    known = set(before)
    return [name for name in before if name in names] + [name for name in names if name not in known]


@contextmanager
def _single_keys() -> Iterator[Callable[[float | None], str]]:
    """Yields a function that waits for a key, "" once the time has passed. The terminal is as before afterwards."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def wait_key(timeout_s: float | None) -> str:
        if not select.select([descriptor], [], [], timeout_s)[0]:
            return ""
        return os.read(descriptor, 1).decode(errors="replace") or QUIT  # the terminal is gone

    tty.setcbreak(descriptor)
    try:
        yield wait_key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
