"""One Arrow schema for files of a table that were written with different columns, and their rows in it.

Columns are matched by name. A missing column is null, a struct gains members, a bigint becomes the decimal or double
that the table has now. Nothing else is converted: a value never changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_ingest.decode.blocks import arrow_field
from spark_ingest.decode.json_columns import arrow_fields
from spark_ingest.types.json_types import Members
from spark_ingest.types.standard_columns import EXTRA, LEADING, VALUE


class Unfit(ValueError):
    """A file has a column that does not fit the table's."""


def unified_schema(files: Sequence[pa.Schema], members: Members) -> pa.Schema:
    """Returns the standard columns and those of the table. Raises Unfit for a column of a file that the table lacks.

    Files of dead letters have other columns, all the same: then it returns those of the file with the most.
    """
    names = {name for file in files for name in file.names}
    if "_event_time" not in names:
        return max(files, key=len)
    last = [column for column in (EXTRA, VALUE) if column.name in names]
    payload = arrow_fields(members) if EXTRA.name in names else []
    schema = pa.schema([*map(arrow_field, LEADING), *payload, *map(arrow_field, last)])
    if missing := sorted(names - set(schema.names)):
        raise Unfit(f"the table has no column {', '.join(missing)}")
    return schema


def unified(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with the columns of the schema. Raises Unfit."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        if field.name not in table.schema.names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        try:
            columns.append(
                pa.chunked_array([_fitted(chunk, field.type) for chunk in table[field.name].chunks], type=field.type)
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise Unfit(f"column {field.name}: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _fitted_struct(array, kind)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        values = _fitted(array.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values])
    return pc.cast(array, kind, safe=True)


def _fitted_struct(array: pa.StructArray, kind: pa.StructType) -> pa.Array:
    names = {member.name for member in array.type}
    if missing := sorted(names - {member.name for member in kind}):
        raise Unfit(f"the table has no member {', '.join(missing)}")
    rows = len(array)
    children = [
        _fitted(pc.struct_field(array, member.name), member.type)
        if member.name in names
        else pa.nulls(rows, member.type)
        for member in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
