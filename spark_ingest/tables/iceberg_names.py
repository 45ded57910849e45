"""Names of columns in Iceberg tables, where they differ from those in files. Pure functions on names and columns.

Iceberg has these names for metadata columns, and Spark refuses to read a table that has a column of such a name
(MetadataColumns of the Java library; the table specification, "Reserved Field IDs").
Invariant: two columns never get one name. A member that has the new name of another column gets a new one itself.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_PARTITION, _IN_TABLE, _MEMBER = "_partition", "_topic_partition", "_member"
_OF_CHANGES = ("_change_type", "_change_ordinal", "_commit_snapshot_id")
_OF_ROWS = ("_file", "_pos", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number")
RESERVED = frozenset({_PARTITION, *_OF_ROWS, *_OF_CHANGES})


def table_name(name: str) -> str:
    """Returns the name in the table of a column of files."""
    if name == _PARTITION:
        return _IN_TABLE
    return _MEMBER + name if _is_member(name) else name


def file_name(name: str) -> str:
    """Returns the name in files of a column of the table."""
    if name == _IN_TABLE:
        return _PARTITION
    inner = name.removeprefix(_MEMBER)
    return inner if inner != name and _is_member(inner) else name


def in_table(schema: pa.Schema) -> pa.Schema:
    """Returns the columns of a file with their names in the table."""
    return pa.schema([field.with_name(table_name(field.name)) for field in schema])


def mapping_of_files(mapping: Any, columns: dict[int, str]) -> Any:
    """Returns a name mapping in which renamed columns, by field id, have their names in files only."""
    fields = []
    for mapped in mapping.root:
        name = columns.get(mapped.field_id, "")
        renamed = file_name(name) != name
        fields.append(mapped.model_copy(update={"names": [file_name(name)]}) if renamed else mapped)
    return type(mapping)(fields)


def _is_member(name: str) -> bool:
    """Returns whether a member of this name gets another one: `_pos`, `_topic_partition`, and `_member` before such."""
    while name.startswith(_MEMBER):
        name = name[len(_MEMBER) :]
    return name == _IN_TABLE or (name in RESERVED and name != _PARTITION)
