"""Divides the rows of a task by the directories of their table: by period or positions, then by the values of fields.

The result depends on the rows and the layout only, and on the rules of time zones of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ingest.decode.blocks import without_dictionaries
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import FAIL_ON_MORE, MONTH, NONE, POSITIONS, UTC_ZONE, WEEK, YEAR, Layout
from spark_ingest.output.directories import (
    LENGTHS_S,
    OTHER_VALUES,
    offset_s,
    position_directory,
    time_directory,
    value_directory,
)
from spark_ingest.payload.installed import PARTITIONERS, load_entry_point
from spark_ingest.payload.member_path import path_of

_RUN_ROWS_MIN = 16  # of one directory in a row: if there are fewer, sorting costs less than slices
_SECOND_US = 1_000_000
_ZONE_SLOT_S = 900  # clocks change by multiples of this, at multiples of this
_MONDAY_S = 4 * 86_400  # 1970-01-05
_OTHER_CODE = -2  # of a row whose values are too many; -1 is null


class Partitioner(Protocol):
    """An entry point of PARTITIONERS makes it of its options: names of directories, and their values for rows."""

    names: Sequence[str]

    def values(self, rows: pa.Table) -> Sequence[Sequence[str | None]]: ...


def partitioner_of(name: str, options: Any) -> Partitioner:
    """Returns the partitioner of an entry point. Raises IngestRefused."""
    try:
        partitioner: Partitioner = load_entry_point(PARTITIONERS, name)(options)
        names = list(partitioner.names)
    except IngestRefused:
        raise
    except Exception as error:  # of code that is not ours
        raise IngestRefused(f"partitioner {name} does not take its options: {error}") from error
    if not names or not all(isinstance(name, str) for name in names):
        raise IngestRefused(f"partitioner {name} has no names of directories")
    return partitioner


def split_rows(table: pa.Table, layout: Layout) -> Iterator[tuple[str, pa.Table]]:
    """Yields directories below the table's root, each with its rows in the order of (partition, offset).

    Raises IngestRefused if a field has too many values, or cannot name directories.
    """
    if not table.num_rows:
        return
    starts = starts_of(table, layout)
    codes, texts = _field_codes(table, layout)
    keys = [starts, *codes]
    cuts = _cuts(keys)
    if len(cuts) > table.num_rows // _RUN_ROWS_MIN:
        order = np.lexsort(keys[::-1])  # stable
        if np.any(order[1:] < order[:-1]):
            table, keys = table.combine_chunks().take(pa.array(order)), [key[order] for key in keys]
            cuts = _cuts(keys)
    runs: dict[tuple[int, ...], list[pa.Table]] = {}
    for start, end in pairwise(cuts):
        runs.setdefault(tuple(int(key[start]) for key in keys), []).append(table.slice(start, end - start))
    for codes_of_run in sorted(runs):
        path = directory_of(layout, codes_of_run[0])
        for at, field in enumerate(layout.fields):
            path += value_directory(field.name, _value(texts[at], codes_of_run[at + 1]))
        parts = runs[codes_of_run]
        yield path, table if len(cuts) == 2 else pa.concat_tables(parts).combine_chunks()


def _cuts(keys: Sequence[np.ndarray]) -> list[int]:
    """Returns where runs of rows with the same keys begin, and the number of rows."""
    is_cut = np.zeros(len(keys[0]) - 1, dtype=bool)
    for key in keys:
        is_cut |= key[1:] != key[:-1]
    return [0, *(np.flatnonzero(is_cut) + 1).tolist(), len(keys[0])]


def directory_of(layout: Layout, start: int) -> str:
    """Returns the directory of a period or of positions, without those of fields."""
    return position_directory(layout, start) or time_directory(layout, start // _SECOND_US)


def starts_of(table: pa.Table, layout: Layout) -> np.ndarray:
    """Returns for each row the wall time at which its period starts, in microseconds, or the first offset of its
    positions; needs the columns `_event_time` and `_offset`.
    """
    if layout.period == POSITIONS:
        offsets = np.asarray(table["_offset"])
        return np.asarray(offsets - offsets % layout.positions)
    times = np.asarray(table["_event_time"].cast(pa.int64()))
    if layout.period == NONE:
        return np.zeros(len(times), dtype=np.int64)
    if layout.zone != UTC_ZONE:
        times = times + _offsets_us(times, layout.zone)
    if layout.period in (MONTH, YEAR):
        unit = "datetime64[M]" if layout.period == MONTH else "datetime64[Y]"
        return times.astype("datetime64[us]").astype(unit).astype("datetime64[us]").astype(np.int64)
    length = LENGTHS_S[layout.period] * _SECOND_US
    first = _MONDAY_S * _SECOND_US if layout.period == WEEK else 0
    return np.asarray(times - (times - first) % length)


def _offsets_us(times: np.ndarray, zone: str) -> np.ndarray:
    slots, at = np.unique(times // (_ZONE_SLOT_S * _SECOND_US), return_inverse=True)
    offsets_us = [offset_s(zone, slot * _ZONE_SLOT_S) * _SECOND_US for slot in slots.tolist()]
    return np.array(offsets_us, dtype=np.int64)[at]


def _field_codes(table: pa.Table, layout: Layout) -> tuple[list[np.ndarray], list[list[str]]]:
    """Returns for each field the codes of rows in the order of their values, and the values of the codes."""
    if not layout.fields:
        return [], []
    codes, texts = [], []
    for column in _values(table, layout):
        values = sorted(value for value in pc.unique(column).to_pylist() if value)
        value_codes = pc.index_in(column, pa.array(values, pa.string()))
        at = np.asarray(pc.fill_null(value_codes.combine_chunks(), -1)).astype(np.int64)
        codes.append(_codes_by_directory(values)[at])
        texts.append(values)
    _bound(layout, codes)
    return codes, texts


def _codes_by_directory(values: Sequence[str]) -> np.ndarray:
    """Returns the code of each value, and that of null at the end. Values with one directory have one code: a value
    may be the text of another one's directory, or the name that null has.
    """
    code_of_directory = {value_directory("", None): -1, value_directory("", OTHER_VALUES): _OTHER_CODE}
    return np.array(
        [*(code_of_directory.setdefault(value_directory("", value), at) for at, value in enumerate(values)), -1]
    )


def _bound(layout: Layout, codes: list[np.ndarray]) -> None:
    """Gives the rows of the rarest values beyond the bound the code of others. Raises IngestRefused."""
    _, at, counts = np.unique(np.stack(codes), axis=1, return_inverse=True, return_counts=True)
    if len(counts) <= layout.values_max:
        return
    if layout.on_values == FAIL_ON_MORE:
        names = ", ".join(field.name for field in layout.fields)
        text = f"{names}: a task has {len(counts):,} values, and {layout.values_max:,} directories are allowed"
        hint = "abandon the plan; then use another member, a larger partition_values_max or partition_on_more = 'other'"
        raise IngestRefused(text, hint=hint)
    is_kept = np.zeros(len(counts), dtype=bool)
    is_kept[np.lexsort((np.arange(len(counts)), -counts))[: layout.values_max]] = True
    for codes_of_level in codes:
        codes_of_level[~is_kept[at.reshape(-1)]] = _OTHER_CODE


def _value(texts: Sequence[str], code: int) -> str | None:
    return OTHER_VALUES if code == _OTHER_CODE else texts[code] if code >= 0 else None


def _values(table: pa.Table, layout: Layout) -> list[pa.ChunkedArray]:
    if not layout.partitioner:
        return [_texts(_column(table, field.member), field.member) for field in layout.fields]
    partitioner = partitioner_of(layout.partitioner, msgspec.json.decode(layout.options or "{}"))
    try:
        rows = without_dictionaries(table)
        columns = [
            pa.chunked_array([pa.array(column_values, pa.string())]) for column_values in partitioner.values(rows)
        ]
    except Exception as error:  # of code that is not ours
        raise IngestRefused(f"partitioner {layout.partitioner}: {type(error).__name__}: {error}") from error
    if [len(column) for column in columns] != [table.num_rows] * len(layout.fields):
        raise IngestRefused(f"partitioner {layout.partitioner} does not give a value for each row and name")
    return columns


def _column(table: pa.Table, member: str) -> pa.ChunkedArray:
    """Returns a column, or a member within one; nulls if the table does not have it."""
    path = (member,) if member in table.schema.names else path_of(member)
    if path[0] not in table.schema.names:
        return pa.chunked_array([pa.nulls(table.num_rows, pa.string())])
    column = table[path[0]]
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return pa.chunked_array([pa.nulls(table.num_rows, pa.string())])
        column = pc.struct_field(column, name)
    return column


def _texts(column: pa.ChunkedArray, member: str) -> pa.ChunkedArray:
    if pa.types.is_nested(column.type):
        hint = "abandon the plan; then use a member that is a text, a number or true and false"
        raise IngestRefused(f"{member} cannot be a directory: it is {column.type}", hint=hint)
    if not pa.types.is_binary(column.type):
        return column.cast(pa.string())
    texts = [None if text is None else text.decode(errors="backslashreplace") for text in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])
