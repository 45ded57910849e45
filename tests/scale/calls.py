"""Counts calls in this thread, which says what a change costs without asking a clock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Calls of Python and of C, and resumed generators: a pass over n things in Python is n of them or more."""
    count = [0]

    def profile(_frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(None)
