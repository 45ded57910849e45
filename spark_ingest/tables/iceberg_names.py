"""Names of columns in Iceberg tables, where they differ from those in files. Pure functions on names and columns.

Iceberg has these names for metadata columns, and Spark refuses to read a table that has a column of such a name
(MetadataColumns of the Java library; the table specification, "Reserved Field IDs").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

_OF_CHANGES = ("_change_type", "_change_ordinal", "_commit_snapshot_id")
_OF_ROWS = ("_file", "_pos", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number")
TABLE_NAMES: Mapping[str, str] = {
    "_partition": "_topic_partition",
    **{name: f"_member{name}" for name in (*_OF_ROWS, *_OF_CHANGES)},
}
_FILE_NAMES = {table: file for file, table in TABLE_NAMES.items()}


def in_table(schema: pa.Schema) -> pa.Schema:
    """Returns the columns of a file with their names in the table. Raises ValueError if two have the same."""
    names = [TABLE_NAMES.get(name, name) for name in schema.names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the files have columns {_FILE_NAMES[twice]} and {twice}, which the table calls {twice}")
    return pa.schema([one.with_name(name) for one, name in zip(schema, names, strict=True)])


def in_files(name: str, names: Collection[str] = ()) -> str:
    """Returns the name that a column of the table has in files, or in a file with columns of these `names`."""
    found = _FILE_NAMES.get(name, name)
    return name if name in names and found not in names else found


def may_be_own(name: str) -> bool:
    """Returns whether files may have this name of a table's column as well: every file has `_partition`."""
    return name in _FILE_NAMES and name != TABLE_NAMES["_partition"]


def mapping_of_files(mapping: Any) -> Any:
    """Returns a name mapping in which each renamed column also has its name in files."""
    fields = [
        one.model_copy(update={"names": [*one.names, *sorted({in_files(name) for name in one.names} - {*one.names})]})
        for one in mapping.root
    ]
    return type(mapping)(fields)
