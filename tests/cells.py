"""One test for many cells: every cell is tried, and every one that fails is named.

`each_cell` takes what `parametrize` takes. A parameter of pytest is a test of its own, which each worker collects and
the run reports, for milliseconds. That is most of what a cheap cell takes. Cells share the fixtures of their test.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import wraps
from typing import Any

Test = Callable[..., Any]


def each_cell(
    names: str | tuple[str, ...], cells: Iterable[Any], ids: Callable[[Any], object] | None = None
) -> Callable[[Test], Test]:
    """Call a test once for each cell."""
    parameters = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    values_of_cells = [cell if len(parameters) > 1 else (cell,) for cell in cells]
    assert values_of_cells, "a test without a cell shows nothing"

    def kwargs_of() -> Iterator[tuple[str, dict[str, Any]]]:
        for values in values_of_cells:
            yield str(ids(values[0]) if ids else values), dict(zip(parameters, values, strict=True))

    def decorate(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def try_cells(**fixtures: Any) -> None:
                failures = [await _failure(name, test(**fixtures, **kwargs)) for name, kwargs in kwargs_of()]
                _raise(failures)
        else:

            @wraps(test)
            def try_cells(**fixtures: Any) -> None:
                _raise([_failure_now(name, test, fixtures | kwargs) for name, kwargs in kwargs_of()])

        signature = inspect.signature(test)
        rest = [one for name, one in signature.parameters.items() if name not in parameters]
        assert len(rest) == len(signature.parameters) - len(parameters), f"{test.__name__} does not take {parameters}"
        try_cells.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return try_cells

    return decorate


async def _failure(name: str, running: Awaitable[object]) -> Exception | None:
    try:
        await running
    except Exception as error:
        return _named(error, name)
    return None


def _failure_now(name: str, test: Test, kwargs: dict[str, Any]) -> Exception | None:
    try:
        test(**kwargs)
    except Exception as error:
        return _named(error, name)
    return None


def _named(error: Exception, name: str) -> Exception:
    error.add_note(f"the cell: {name}")
    return error


def _raise(failures: list[Exception | None]) -> None:
    if errors := [error for error in failures if error is not None]:
        raise ExceptionGroup(f"{len(errors)} of {len(failures)} cells", errors)
