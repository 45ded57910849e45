"""Records as rows of typed columns: the JSON values decoded as the tasks of a job do, in the same code.

A record always gives a row. A value of another type than its column is null, and stays in `_extra` if that column is
wanted. A value that is not a JSON object gives a row of nulls; `_reason` says why, `_value` has its bytes.

Without `_extra`, members that the schema does not name are skipped at every depth. With it, the rules are those of a
table: an object with a member that its column does not have is in `_extra`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_ingest.decode.compiled_rows import CompiledRows
from spark_ingest.decode.json_columns import extra_array, payload_arrays
from spark_ingest.decode.json_rows import JsonRows
from spark_ingest.decode.record_columns import RecordColumns
from spark_ingest.errors import IngestRefused
from spark_ingest.frames.record_array import COLUMNS, record_array
from spark_ingest.frames.typed_schema import EXTRA, REASON, TYPED_COLUMNS, members_of
from spark_ingest.types.json_types import columns

_KINDS = {f"_{name}": column.kind for name, column in COLUMNS.items()} | {EXTRA: pa.string(), REASON: pa.string()}


def typed_schema(names: Sequence[str]) -> pa.Schema:
    """Returns the columns of the record with these names."""
    return pa.schema([pa.field(name, _KINDS[name]) for name in names])


class TypedRows:
    """Makes the record batches of a typed read. `schema` is Spark's in JSON form, `arrow` the same in Arrow."""

    def __init__(self, schema: Mapping[str, Any], arrow: pa.Schema) -> None:
        """Raises IngestRefused for a schema that records cannot be read with."""
        self.schema = arrow
        self._members = members_of(schema)
        self._names = [name for name, _ in columns(self._members)]
        self._record_columns = [name for name in arrow.names if name in TYPED_COLUMNS]
        self._decodes = bool(self._names) or EXTRA in self._record_columns or REASON in self._record_columns
        self._json = JsonRows(self._members, keeps_others=EXTRA in self._record_columns)
        self._compiled = CompiledRows(self._members, keeps_others=EXTRA in self._record_columns)
        self._nothing = self._json.struct()
        for name in self._record_columns:
            if arrow.field(name).type != _KINDS[name]:
                raise IngestRefused(f"the column {name} of the record is {TYPED_COLUMNS[name]}")
            if not arrow.field(name).nullable:
                raise IngestRefused(f"the column {name!r} is NOT NULL", hint="leave that out")

    def batch(self, topic: str, partition: int, records: RecordColumns) -> pa.RecordBatch:
        """Returns one row for each record."""
        arrays = self._json_arrays(records) if self._decodes else {}
        for name in self._record_columns:
            if name not in arrays:
                arrays[name] = record_array(name.removeprefix("_"), topic, partition, records)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)

    def _json_arrays(self, records: RecordColumns) -> dict[str, pa.Array]:
        compiled = self._compiled.arrays(records.values)
        if compiled is not None:
            nothing = pa.nulls(len(records), pa.string())
            return dict(zip(self._names, compiled, strict=True)) | {EXTRA: nothing, REASON: nothing}
        rows = self._json.decode(records.values.to_pylist())
        reasons = [rows.bad[at].reason if at in rows.bad else None for at in range(len(records))] if rows.bad else []
        if rows.bad:
            rows.structs = [self._nothing if row is None else row for row in rows.structs]
        arrays = dict(zip(self._names, payload_arrays(self._members, rows.structs), strict=True))
        if EXTRA in self._record_columns:
            arrays[EXTRA] = extra_array(rows)
        if REASON in self._record_columns:
            arrays[REASON] = pa.array(reasons, pa.string()) if reasons else pa.nulls(len(records), pa.string())
        return arrays
