"""Bars made of characters, exact to half a cell: to the right, or to both sides of a zero."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

from rich.text import Text

_FULL, _HALF, _LEFT_HALF, _ZERO = "━", "╸", "╺", "│"
AXIS_CELLS = 24
_WIDTH_MIN = 0.1  # all but nothing stays small


def bar(cells: float, *, is_leftward: bool = False) -> str:
    """A bar of so many cells; one that is not zero is never invisible."""
    halves = max(round(cells * 2), 1 if cells > 0 else 0)
    full, half = _FULL * (halves // 2), halves % 2
    return _LEFT_HALF * half + full if is_leftward else full + _HALF * half


class Axis(NamedTuple):
    """How wide one unit is, and how many cells lie left of zero."""

    cells_per_unit: float
    left_cells: int

    @classmethod
    def over(cls, values: Iterable[float]) -> Self:
        """The axis on which the smallest and the largest value, and zero, take AXIS_CELLS."""
        ends = [0.0, *values]
        cells_per_unit = AXIS_CELLS / max(max(ends) - min(ends), _WIDTH_MIN)
        return cls(cells_per_unit, math.ceil(-min(ends) * cells_per_unit))

    def bar(self, value: float, style: str) -> Text:
        cells = abs(value) * self.cells_per_unit
        left = bar(cells, is_leftward=True) if value < 0 else ""
        right = bar(cells) if value > 0 else ""
        return Text.assemble((left.rjust(self.left_cells), style), (_ZERO, "dim"), (right, style))
