"""How a pure function ended, as a value: tests compare it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.http.problems import Problem


def refusal_of(function: Callable[..., Any], *arguments: Any) -> Problem | None:
    """The problem that it raises, or None if it returns. Anything else that it raises is a bug and goes on up."""
    try:
        function(*arguments)
    except Problem as problem:
        return problem
    return None
