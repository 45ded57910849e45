"""One test for many cells: every cell is tried, and every one that fails is named.

`each_cell` takes what `parametrize` takes. A parameter of pytest is a test of its own, which each worker collects and
the run reports, for milliseconds. That is most of what a cheap cell takes. Cells share the fixtures of their test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Test = Callable[..., None]


def each_cell(
    names: str | tuple[str, ...], cells: Iterable[Any], ids: Callable[[Any], object] | None = None
) -> Callable[[Test], Test]:
    """Call a test once for each cell."""
    parameters = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    values_of_cells = [cell if len(parameters) > 1 else (cell,) for cell in cells]
    assert values_of_cells, "a test without a cell shows nothing"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def try_cells(**fixtures: Any) -> None:
            errors = []
            for values in values_of_cells:
                try:
                    test(**fixtures, **dict(zip(parameters, values, strict=True)))
                except Exception as error:
                    error.add_note(f"the cell: {ids(values[0]) if ids else values}")
                    errors.append(error)
            if errors:
                raise ExceptionGroup(f"{len(errors)} of {len(values_of_cells)} cells", errors)

        signature = inspect.signature(test)
        assert not inspect.iscoroutinefunction(test), "its cells would not be awaited"
        assert {*parameters} <= signature.parameters.keys(), f"{test.__name__} does not take {parameters}"
        rest = [one for name, one in signature.parameters.items() if name not in parameters]
        try_cells.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return try_cells

    return decorate
