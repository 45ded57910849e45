"""Inputs that fuzzing has found: a file for each test, tests/fuzz/corpus/NAME.txt, with an input a line in base64.

The tests replay them at every run. An input is kept because it was a bug, or because it reaches a line of our code that
no earlier one reaches: `PENSTOCK_FUZZ_KEEP=1 PENSTOCK_CODEC=python pytest tests/fuzz` appends those. A failing input
that Hypothesis prints is added by hand.
"""

from __future__ import annotations

import functools
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

DIRECTORY = Path(__file__).parent / "corpus"
IS_KEEPING = os.environ.get("PENSTOCK_FUZZ_KEEP", "") == "1"
_OURS = tuple(
    f"{Path(__file__).parents[2] / name}{os.sep}" for name in ("engine", "gateway", "penstock", "penstock_codec")
)
_BYTES_MAX = 2048  # longer ones repeat what shorter ones reach


def inputs(test: str) -> list[bytes]:
    """Return the inputs of a test, [] if it has no file."""
    path = DIRECTORY / f"{test}.txt"
    return [b64decode(line, validate=True) for line in path.read_text().splitlines()] if path.exists() else []


def keep_new(test: str, run: Callable[..., None]) -> Callable[..., None]:
    """Return a run that appends the `data` of each call that reaches a new line of our code to the test's file."""
    known = set(inputs(test))
    reached: set[tuple[str, int]] = set()

    @functools.wraps(run)
    def keeping(*arguments: Any, **named: Any) -> None:
        lines: set[tuple[str, int]] = set()
        before = sys.gettrace()
        sys.settrace(functools.partial(_trace, lines))
        try:
            run(*arguments, **named)
        finally:
            sys.settrace(before)
            data = named["data"]
            if not lines <= reached and (data in known or len(data) <= _BYTES_MAX):
                reached.update(lines)
                if data not in known:
                    known.add(data)
                    with (DIRECTORY / f"{test}.txt").open("a") as file:
                        file.write(b64encode(data).decode() + "\n")

    return keeping


def _trace(lines: set[tuple[str, int]], frame: FrameType, event: str, value: object) -> Any:
    if not frame.f_code.co_filename.startswith(_OURS):
        return None
    if event == "line":
        lines.add((frame.f_code.co_filename, frame.f_lineno))
    return functools.partial(_trace, lines)
