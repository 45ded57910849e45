"""Delta tables: the only file that imports deltalake. It adds files that exist, and writes no data.

    1 Load the table. Its application transactions have the last commit and the last rewrite whose files it has.
    2 Add columns that the files bring. This is a transaction of its own, and a repeat of it changes nothing.
    3 Send one transaction: the files, and the application transaction. It is accepted on top of the version of step 1.
    4 If it was not accepted or not answered: step 1. The application transaction says whether it took effect.

The table is the directory of the topic in the output, and its log is in `_delta_log` there. No file is copied.

Invariant: a transaction is sent once (`max_commit_retries=0`), so each one follows a look at the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from engine.tiering.store.store import open_store
from spark_ingest.errors import IngestRefused, NotPublished
from spark_ingest.layout import Layout
from spark_ingest.output import names
from spark_ingest.tables.settings import DELTA, NAME_RULES
from spark_ingest.tables.stored_object import StoredObject
from spark_ingest.tables.values import (
    RewriteFiles,
    RunFiles,
    TableFile,
    TableState,
    first_line,
    send_after_look,
)

_TYPES = {"DATE": pa.date32(), "INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}


@dataclass(frozen=True, slots=True)
class _Files:
    """The change of one transaction: files, the partition columns, and the last commit and rewrite after it."""

    added: Iterable[str]
    replaced: Iterable[str]
    partitions: pa.Schema
    last: tuple[int, int | None]


class DeltaTables:
    """The tables of one job, in its output."""

    kind = "Delta"
    lists_files = True

    def __init__(self, job: str, output_url: str) -> None:
        self._store = open_store(output_url)
        self._url, self._options = _address_of(output_url)
        self._app = f"penstock/{job}"
        self._rewrite_app = f"{self._app}/rewrite"

    def name(self, topic: str) -> str:
        return names.table_prefix(topic).rstrip("/")

    def state(self, topic: str) -> TableState | None:
        table = self._load(topic)
        return None if table is None else self._state(table)

    def add(self, run: RunFiles) -> bool:
        """Adds the files in one transaction; False if the table has this commit. Raises IngestRefused, NotPublished."""

        def is_wanted(state: TableState | None) -> bool:
            return state is None or state.commit < run.commit

        files = _Files(run.keys, (), _partitions(run.layout), (run.commit, None))
        return self._send(run.topic, f"commit {run.commit}", is_wanted, files)

    def rewrite(self, change: RewriteFiles) -> bool:
        def is_wanted(state: TableState | None) -> bool:
            published = (state.commit, state.rewrite) if state else (change.after, 0)
            return published == (change.after, change.since)

        last = (change.commit, change.rewrite)
        files = _Files(change.added, change.replaced, _partitions(change.layout), last)
        return self._send(change.topic, f"rewrite {change.rewrite}", is_wanted, files)

    def mark(self, topic: str, commit: int) -> None:
        """Does nothing: a transaction without files would be one more version of the table."""

    def files(self, topic: str) -> list[TableFile]:
        """Returns the data files of the newest version. Raises IngestRefused, NotPublished."""
        table = self._load(topic)
        prefix = names.table_prefix(topic)
        return [] if table is None else [TableFile(prefix + path, rows) for path, rows in _listed(table).items()]

    def _send(self, topic: str, what: str, is_wanted: Callable[[TableState | None], bool], files: _Files) -> bool:
        """Commits one transaction unless a look at the table says that it is not needed; false then."""

        def commit(table: DeltaTable | None) -> None:
            try:
                self._commit(topic, table, files)
            except (ValueError, FileNotFoundError) as error:
                text = f"table {self.name(topic)} cannot take {what}: {first_line(error)}"
                hint = "the files stay; ingest the topic into an output without [delta]"
                raise IngestRefused(text, hint=hint) from error

        return send_after_look(
            lambda: self._load(topic),
            lambda table: is_wanted(None if table is None else self._state(table)),
            commit,
            f"table {self.name(topic)} did not take {what}",
        )

    def _commit(self, topic: str, table: DeltaTable | None, files: _Files) -> None:
        """Raises ValueError if the table cannot take the files, FileNotFoundError if one is gone."""
        prefix = names.table_prefix(topic)
        listed = _listed(table) if table is not None else {}
        add = [key.removeprefix(prefix) for key in files.added]
        add = [path for path in add if path not in listed]
        remove = [key.removeprefix(prefix) for key in files.replaced]
        if table is not None and (gone := [path for path in remove if path not in listed]):
            raise ValueError(f"another program has replaced {gone[0]}")
        names_of = list(files.partitions.names)
        actions: list[Any] = [self._add_action(prefix, path, names_of) for path in add]
        modified_ms = max((action.modification_time for action in actions), default=0)
        columns = [pq.read_schema(self._file(prefix + path)) for path in dict.fromkeys((*add[:1], *add[-1:]))]
        properties = self._properties(files.last)
        if table is None:
            create_table_with_add_actions(
                self._address(topic),
                Schema.from_arrow(_merged([files.partitions, *columns])),
                actions,
                "error",
                names_of,
                storage_options=self._options,
                commit_properties=properties,
            )
            return
        before = pa.schema(table.schema().to_arrow())
        after = _merged([before, *columns])
        if after != before:
            new = [field for field in after if field.name not in before.names or before.field(field.name) != field]
            only = CommitProperties(max_commit_retries=0)
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(new)).fields), commit_properties=only)
        actions += [RemoveAction(path, True, modified_ms, None, _partition(path, names_of)) for path in remove]
        table.create_write_transaction(actions, "append", table.schema(), names_of, commit_properties=properties)

    def _add_action(self, prefix: str, path: str, names_of: Sequence[str]) -> AddAction:
        file = self._file(prefix + path)
        stats = json.dumps({"numRecords": pq.read_metadata(file).num_rows})
        info = file.info
        return AddAction(path, info.size_bytes, _partition(path, names_of), info.modified_ms, True, stats)

    def _file(self, key: str) -> StoredObject:
        """Raises FileNotFoundError."""
        info = self._store.head(key)
        if info is None:
            raise FileNotFoundError(f"{key} is missing")
        return StoredObject(self._store, info)

    def _properties(self, last: tuple[int, int | None]) -> CommitProperties:
        commit, rewrite = last
        transactions = [Transaction(self._app, commit)]
        shown = {"penstock.commit": str(commit)}
        if rewrite is not None:
            transactions.append(Transaction(self._rewrite_app, rewrite))
            shown["penstock.rewrite"] = str(rewrite)
        return CommitProperties(shown, max_commit_retries=0, app_transactions=transactions)

    def _state(self, table: DeltaTable) -> TableState:
        commit, rewrite = (table.transaction_version(app) or 0 for app in (self._app, self._rewrite_app))
        return TableState(commit, table.version(), rewrite)

    def _load(self, topic: str) -> DeltaTable | None:
        """Returns the table, None without one. Raises NotPublished, IngestRefused for a table of another program."""
        try:
            table = DeltaTable(self._address(topic), storage_options=self._options)
            is_ours = table.transaction_version(self._app) is not None
        except TableNotFoundError:
            return None
        except Exception as error:
            raise NotPublished(f"table {self.name(topic)} cannot be read: {first_line(error)}") from error
        if not is_ours:
            hint = "use another --output; the table is left as it is"
            raise IngestRefused(f"table {self.name(topic)} is of another job or program", hint=hint)
        return table

    def _address(self, topic: str) -> str:
        return f"{self._url}/{names.table_prefix(topic).rstrip('/')}"


def _address_of(output_url: str) -> tuple[str, dict[str, str] | None]:
    """Returns the URL of an output as deltalake takes it, and its options; credentials come from the environment.

    A log in S3 is written with put-if-absent, which every output has. Raises IngestRefused.
    """
    parts = urlsplit(output_url)
    if parts.scheme == "file":
        return output_url.rstrip("/"), None
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(options.keys() - {"endpoint", "region"}):
        hint = "set the encryption of the bucket instead"
        raise IngestRefused(f"Delta tables are not written with the store option {', '.join(unknown)}", hint=hint)
    path = unquote(parts.path).rstrip("/")
    if any(letter in path for letter in "?#%"):
        raise IngestRefused(f"--output {output_url} has a character that Delta readers take for another")
    storage = {"AWS_CONDITIONAL_PUT": "etag"}
    if "region" in options:
        storage["AWS_REGION"] = options["region"]
    if "endpoint" in options:
        storage |= {"AWS_ENDPOINT_URL": options["endpoint"], "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false"}
        storage["AWS_ALLOW_HTTP"] = "true" if options["endpoint"].startswith("http://") else "false"
    return f"{parts.scheme}://{parts.netloc}{path}", storage


def _listed(table: DeltaTable) -> dict[str, int]:
    """Returns the paths of the newest version's files, each with its number of rows."""
    rows = pa.table(table.get_add_actions()).select(["path", "num_records"]).to_pylist()
    return {unquote(row["path"]): row["num_records"] or 0 for row in rows}


def _partitions(layout: Layout) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in layout.partition_columns.items()])


def _partition(path: str, names_of: Sequence[str]) -> dict[str, str | None]:
    """Raises ValueError for a file that is in no directory of a period."""
    parts = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    if list(parts) != list(names_of):
        raise ValueError(f"{path} is not in directories of {', '.join(names_of)}")
    return {name: str(int(value)) if value.isdecimal() else value for name, value in parts.items()}


def _merged(schemas: list[pa.Schema]) -> pa.Schema:
    """Returns the columns of all schemas, by name, without those that a table cannot name: files may have others.

    Jobs with tables have no such columns, except those that they had before. Raises ValueError for types.
    """
    optional = [
        pa.schema([field.with_nullable(True).with_type(_named(field.type)) for field in schema]).remove_metadata()
        for schema in schemas
    ]
    try:
        merged = _union([pa.struct(list(schema)) for schema in optional])
    except pa.ArrowInvalid as error:
        raise ValueError(first_line(error)) from error
    names: dict[str, str] = {}
    fields = [field for field in merged if NAME_RULES[DELTA].can_have(field.name) and not _is_empty(field.type)]
    return pa.schema([field for field in fields if names.setdefault(field.name.lower(), field.name) == field.name])


def _named(kind: Any) -> Any:
    """Returns a type without the members that a table cannot name."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [field.with_type(_named(field.type)) for field in kind if NAME_RULES[DELTA].can_have(field.name)]
        )
    return pa.list_(kind.value_field.with_type(_named(kind.value_type))) if pa.types.is_list(kind) else kind


def _is_empty(kind: Any) -> bool:
    """Returns whether a type has a struct without members, which no table has."""
    if pa.types.is_struct(kind):
        return not len(list(kind)) or any(_is_empty(field.type) for field in kind)
    return pa.types.is_list(kind) and _is_empty(kind.value_type)


def _union(types: list[Any]) -> Any:
    """Returns the struct with the members of all, the list of such structs, or the type that all are.

    Raises ValueError.
    """
    if all(map(pa.types.is_list, types)):
        return pa.list_(types[0].value_field.with_type(_union([kind.value_type for kind in types])))
    if not all(map(pa.types.is_struct, types)):
        first, *others = types
        if any(_plain(other) != _plain(first) for other in others):
            raise ValueError(f"a column is {first} in the table and {others[-1]} in the files")
        return first
    members: dict[str, list[Any]] = {}
    for member in types:
        for field in member:
            members.setdefault(field.name, []).append(field.type)
    return pa.struct([pa.field(name, _union(kinds), nullable=True) for name, kinds in members.items()])


def _plain(kind: Any) -> object:
    """Returns a type without the names and the nullability of its parts, which libraries write differently."""
    if pa.types.is_struct(kind):
        return "struct", [(field.name, _plain(field.type)) for field in kind]
    if pa.types.is_map(kind):
        return "map", _plain(kind.key_type), _plain(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list", _plain(kind.value_type)
    return str(kind).replace("large_", "").replace("_view", "")
