"""Counts calls in this thread: a measure of cost that needs no clock."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Counts Python calls, C calls, and resumed generators. A pass over n things in Python has at least n of them."""
    count = [0]

    def profile(_frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(None)
