"""The outcome of a pure function as a value that tests compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.http.problems import Problem


def refusal_of(function: Callable[..., Any], *arguments: Any) -> Problem | None:
    """Return the problem that it raises, or None if it returns. Any other exception is a bug and propagates."""
    try:
        function(*arguments)
    except Problem as problem:
        return problem
    return None
