"""Lifts values from `_extra` into the columns that the table has by now: widened, declared, or new since.

A value moves only if its column is null in that row and takes it exactly as a run would decode it. A row with a value
in both places stays as it is, and so does a text that is too large to decode. The result depends on the rows and the
members alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from spark_ingest.decode.json_columns import payload_arrays
from spark_ingest.decode.json_rows import JsonRows
from spark_ingest.decode.value_costs import ValueCosts
from spark_ingest.types.json_types import Members, columns
from spark_ingest.types.standard_columns import EXTRA


def lifted(rows: pa.Table, members: Members) -> tuple[pa.Table, dict[str, int]]:
    """Returns the rows, which have all columns of the members, and the number of values that moved to each column."""
    at = np.flatnonzero(np.asarray(rows[EXTRA.name].is_valid()))
    if not len(at):
        return rows, {}
    texts = rows[EXTRA.name].take(pa.array(at)).cast(pa.binary()).to_pylist()
    structs, rests = _decode(texts, members)
    arrays = payload_arrays(members, structs)
    fields = [name for name, _ in columns(members)]
    validity = [np.asarray(array.is_valid()) for array in arrays]
    is_taken = np.zeros(len(at), dtype=bool)
    for name, has_value in zip(fields, validity, strict=True):
        if has_value.any():
            is_taken |= has_value & np.asarray(rows[name].take(pa.array(at)).is_valid())
    counts: dict[str, int] = {}
    for name, array, has_value in zip(fields, arrays, validity, strict=True):
        moves = has_value & ~is_taken
        if moves.any():
            counts[name] = int(moves.sum())
            rows = _replaced(rows, name, at[moves], array.filter(pa.array(moves)))
    if counts:
        new_texts = [text if taken else rest for text, rest, taken in zip(texts, rests, is_taken, strict=True)]
        rows = _replaced(rows, EXTRA.name, at, pa.array(new_texts, pa.binary()).cast(pa.string()))
    return rows, counts


def _decode(texts: Sequence[bytes], members: Members) -> tuple[list[Any], list[bytes | None]]:
    """Returns the typed members of each text, and the text of what is left; None if nothing is."""
    decoder, costs = JsonRows(members), ValueCosts(members)
    structs: list[Any] = []
    rests: list[bytes | None] = []
    for start, end in costs.runs(texts, isolates=True):
        is_large = costs.is_large(texts[start])
        rows = decoder.decode([b"{}"] if is_large else texts[start:end])
        for row, text in enumerate(texts[start:end]):
            is_bad = is_large or row in rows.bad
            structs.append(decoder.struct() if is_bad else rows.structs[row])
            left = rows.leftovers.get(row)
            rests.append(text if is_bad else None if left is None else msgspec.json.encode(left))
    return structs, rests


def _replaced(rows: pa.Table, name: str, at: np.ndarray, values: pa.Array) -> pa.Table:
    """Returns the table with other values of a column at these rows."""
    field = rows.schema.field(name)
    before = pa.concat_arrays(rows[name].chunks) if rows[name].num_chunks else pa.array([], field.type)
    places = np.arange(rows.num_rows)
    places[at] = rows.num_rows + np.arange(len(at))
    column = pa.concat_arrays([before, values.cast(field.type)]).take(pa.array(places))
    return rows.set_column(rows.schema.get_field_index(name), field, column)
