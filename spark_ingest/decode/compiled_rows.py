"""Reads JSON values as typed Arrow columns in one pass of the compiled codec, if all of a block fit their columns.

json_rows.py and json_columns.py read every other block, and every schema with arrays, decimals, dates, times or JSON
text. Narrow numbers are read as wide ones, and the block is left to them if one does not fit.

Invariant: both ways give equal arrays.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from engine.format.compiled_batch import MemberColumn, MemberKind, read_members
from spark_ingest.decode.json_columns import arrow_type
from spark_ingest.decode.json_rows import FLOAT_MAX
from spark_ingest.types.json_types import CODEC_KINDS, Members, Type, described

_WIDE = {MemberKind.BIGINT: pa.int64(), MemberKind.DOUBLE: pa.float64()}


class CompiledRows:
    """Reads the values of one topic with one schema.

    Without `keeps_others`, members that the schema does not have are skipped at every depth.
    """

    def __init__(self, members: Members, *, keeps_others: bool = True) -> None:
        self._members = members
        self._skips_others = not keeps_others
        self._described = described(members)

    def arrays(self, values: pa.Array) -> list[pa.Array] | None:
        """Returns an array for each column; None if a value does not fit, or the schema is not for the codec."""
        if self._described is None or not len(values):
            return None
        is_there, ends, data = values.buffers()
        rows_range, members = (values.offset, len(values)), (self._described, len(self._members))
        columns = read_members(ends, data or b"", is_there, *rows_range, *members, skips_others=self._skips_others)
        try:
            return None if columns is None else self._arrays(columns, self._members, 0, len(values))
        except pa.ArrowInvalid:  # a number that is too large
            return None

    def _arrays(self, columns: list[MemberColumn], members: Members, first: int, rows: int) -> list[pa.Array]:
        assert self._described is not None
        return [self._array(columns, kind, at, rows) for at, (_, kind) in enumerate(members, first) if kind != "null"]

    def _array(self, columns: list[MemberColumn], kind: Type, at: int, rows: int) -> pa.Array:
        assert self._described is not None
        column = columns[at]
        is_there = pa.py_buffer(column.is_there) if column.null_count else None
        if not isinstance(kind, str):
            children = self._arrays(columns, kind[1], self._described[at].first, rows)
            return pa.Array.from_buffers(arrow_type(kind), rows, [is_there], column.null_count, children=children)
        arrow_kind = arrow_type(kind)
        ends = [pa.py_buffer(column.ends)] if kind == "string" else []
        buffers = [is_there, *ends, pa.py_buffer(column.data)]
        wide = pa.Array.from_buffers(_WIDE.get(CODEC_KINDS[kind], arrow_kind), rows, buffers, column.null_count)
        return wide if wide.type == arrow_kind else _narrowed(wide, arrow_kind)


def _narrowed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises ArrowInvalid if a number does not fit."""
    if pa.types.is_floating(kind) and (pc.max(pc.abs(values)).as_py() or 0) > FLOAT_MAX:
        raise pa.ArrowInvalid("a number is too large")
    return values.cast(kind)
