"""Iceberg tables: the only file that imports pyiceberg. It adds files that exist, and writes no data.

    1 Load the table. Its property penstock.commit has the last commit whose files it has.
    2 Stage one transaction: new columns by name, the files, penstock.commit in the snapshot and in the table.
    3 The catalog accepts it if the table's newest snapshot is still that of step 1.
    4 If it did not accept or did not answer: step 1. The property says whether the transaction took effect.

A rewrite takes the same way, with penstock.rewrite, and exchanges files.

The properties stay when snapshots expire. The first transaction also creates the table.

Invariants: a transaction is sent once. pyiceberg sends a rejected one again, on top of the table as it is then and
without another look at its files, so that two drivers would add them twice: `_SentOnce` prevents that.
Files have no field ids, so the table maps columns by name (`schema.name-mapping.default`). Columns whose names Iceberg
has for its own have others in the table (iceberg_names.py), and the mapping has those of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationError
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform

from spark_ingest.errors import IngestRefused, NotPublished
from spark_ingest.layout import DAY, HOUR, MINUTES, MONTH, UTC_ZONE, YEAR, Layout
from spark_ingest.tables.iceberg_names import RESERVED, file_name, in_table, mapping_of_files, table_name
from spark_ingest.tables.settings import TableSettings
from spark_ingest.tables.values import (
    RewriteFiles,
    RunFiles,
    TableFile,
    TableState,
    first_line,
    send_after_look,
)

JOB, OUTPUT, TOPIC, COMMIT = "penstock.job", "penstock.output", "penstock.topic", "penstock.commit"
REWRITE = "penstock.rewrite"  # the last one whose files the table has; absent before the first
NEW_TABLE = {
    "commit.manifest-merge.enabled": "true",  # a run adds one manifest, and each reader opens all of them
    "write.metadata.delete-after-commit.enabled": "true",  # else the metadata file of each run remains
}


class IcebergTables:
    """The tables of one job in one catalog. `open_catalog` is called before the first use."""

    kind = "Iceberg"
    lists_files = True

    def __init__(
        self, settings: TableSettings, job: str, output_url: str, open_catalog: Callable[[], Any] | None = None
    ) -> None:
        self._settings = settings
        self._location = location_of(output_url)
        self._owner = {JOB: job, OUTPUT: self._location}
        self._io_properties = io_properties(output_url)
        self._open_catalog = open_catalog or (lambda: open_catalog_of(settings, self._io_properties))

    def name(self, topic: str) -> str:
        return ".".join(self._settings.identifier(topic))

    def state(self, topic: str) -> TableState | None:
        table = self._load(topic)
        if table is None:
            return None
        newest = table.current_snapshot()
        return TableState(_last_of(table, COMMIT), newest.snapshot_id if newest else None, _last_of(table, REWRITE))

    def add(self, run: RunFiles) -> bool:
        """Adds the files in one snapshot; False if the table has this commit. Raises IngestRefused, NotPublished."""
        what = f"commit {run.commit}"
        return self._send(
            run.topic,
            what,
            lambda table: table is None or _last_of(table, COMMIT) < run.commit,
            lambda table: self._stage(run, table),
        )

    def rewrite(self, change: RewriteFiles) -> bool:
        def is_wanted(table: Table | None) -> bool:
            state = (_last_of(table, COMMIT), _last_of(table, REWRITE)) if table is not None else (change.after, 0)
            return state == (change.after, change.since)

        what = f"rewrite {change.rewrite}"
        return self._send(change.topic, what, is_wanted, lambda table: self._stage_rewrite(change, table))

    def _send(
        self, topic: str, what: str, is_wanted: Callable[[Table | None], bool], stage: Callable[[Table | None], Any]
    ) -> bool:
        """Commits a staged transaction unless a look at the table says that it is not needed; false then."""
        return send_after_look(
            lambda: self._load(topic),
            is_wanted,
            lambda table: stage(table).commit_transaction(),
            f"{self._place(topic)} did not take {what}",
        )

    def mark(self, topic: str, commit: int) -> None:
        """Sets the table's last commit, unless it has a new snapshot meanwhile. Raises IngestRefused, NotPublished."""
        table = self._load(topic)
        newest = table.current_snapshot() if table is not None else None
        if table is None or newest is None or _last_of(table, COMMIT) >= commit:
            return
        unchanged = AssertRefSnapshotId(ref="main", snapshot_id=newest.snapshot_id)
        same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
        try:
            update = SetPropertiesUpdate(updates={COMMIT: str(commit)})
            self._catalog.commit_table(table, (same_table, unchanged), (update,))
        except CommitFailedException:
            return  # another driver has added files
        except Exception as error:
            raise NotPublished(f"{self._place(topic)} cannot be marked: {first_line(error)}") from error

    def files(self, topic: str) -> list[TableFile]:
        """Returns the data files of the newest snapshot. Raises IngestRefused, NotPublished."""
        table = self._load(topic)
        if table is None:
            return []
        try:
            listed = [task.file for task in table.scan().plan_files()]
        except Exception as error:
            raise NotPublished(f"{self._place(topic)} cannot be read: {first_line(error)}") from error
        return [TableFile(file.file_path.removeprefix(f"{self._location}/"), file.record_count) for file in listed]

    @cached_property
    def _catalog(self) -> Any:
        try:
            return self._open_catalog()
        except Exception as error:
            raise NotPublished(
                f"catalog {self._settings.shown_catalog} cannot be opened: {first_line(error)}"
            ) from error

    def _load(self, topic: str) -> Table | None:
        """Returns the table, whose transactions are sent once. Raises NotPublished, IngestRefused for a foreign one."""
        try:
            table = self._catalog.load_table(self._settings.identifier(topic))
        except NoSuchTableError:
            return None
        except NotPublished:
            raise
        except Exception as error:
            raise NotPublished(f"{self._place(topic)} cannot be read: {first_line(error)}") from error
        self._check_owner(topic, table)
        once = _SentOnce(self._catalog)
        return Table(table.name(), table.metadata, table.metadata_location, table.io, once, table.config)

    def _check_owner(self, topic: str, table: Table) -> None:
        """Raises IngestRefused for a table of another job, or one that has files of another program only."""
        properties = {name: table.properties.get(name) for name in (JOB, OUTPUT, TOPIC)}
        if properties == {**self._owner, TOPIC: topic}:
            return
        hint = "name another table in the file of --tables"
        if properties[JOB] is not None:
            owner = f"topic {properties[TOPIC]} of job {properties[JOB]} in {properties[OUTPUT]}"
            raise IngestRefused(f"{self._place(topic)} belongs to {owner}", hint=hint)
        if table.current_snapshot() is not None:
            raise IngestRefused(f"{self._place(topic)} has files of another program", hint=hint)

    def _stage_rewrite(self, change: RewriteFiles, table: Table | None) -> Any:
        """Returns a transaction that exchanges the files. Raises IngestRefused if the table cannot take them."""
        last = {COMMIT: str(change.commit), REWRITE: str(change.rewrite)}
        text = f"{self._place(change.topic)} cannot take rewrite {change.rewrite}"
        if table is None:
            transaction = self._stage(RunFiles(change.topic, change.commit, change.added, 0, change.layout), None)
            transaction.set_properties(last)
            return transaction
        listed = {task.file.file_path: task.file for task in table.scan().plan_files()}
        replaced = [f"{self._location}/{key}" for key in change.replaced]
        if missing := [path for path in replaced if path not in listed]:
            hint = "drop the table without purging and publish: it is then made from the files of the job"
            raise IngestRefused(f"{text}: another program has replaced {missing[0]}", hint=hint)
        paths = [added_path for key in change.added if (added_path := f"{self._location}/{key}") not in listed]
        try:
            transaction = table.transaction()
            # the first file is of a commit, the last of the newest rewrite
            _add_columns(transaction, [self._schema(path) for path in {paths[0], paths[-1]}] if paths else [])
            transaction.set_properties({**self._owner, TOPIC: change.topic, **last})
            if paths or replaced:
                snapshot = transaction.update_snapshot(snapshot_properties={JOB: self._owner[JOB], **last})
                view = _as_in_files(transaction.table_metadata)
                with snapshot.overwrite() as overwrite:
                    for path in paths:
                        overwrite.append_data_file(parquet_file_to_data_file(table.io, view, path))
                    for path in replaced:
                        overwrite.delete_data_file(listed[path])
        except (ValidationError, ValueError) as error:
            hint = "change the table, or name another one in the file of --tables"
            raise IngestRefused(f"{text}: {first_line(error)}", hint=hint) from error
        return transaction

    def _stage(self, run: RunFiles, table: Table | None) -> Any:
        """Returns a transaction that adds the files. Raises IngestRefused if the table cannot take them."""
        paths = [f"{self._location}/{key}" for key in run.keys]
        try:
            schema = self._schema(paths[0])
            transaction = self._new_table(run, schema) if table is None else table.transaction()
            _add_columns(transaction, [schema])
            _check_required(transaction.table_metadata.schema(), schema)
            last = {COMMIT: str(run.commit)}
            transaction.set_properties({**self._owner, TOPIC: run.topic, **last})
            _append(transaction, paths, {JOB: self._owner[JOB], **last})
        except (ValidationError, ValueError) as error:
            text = f"{self._place(run.topic)} cannot take commit {run.commit}: {first_line(error)}"
            raise IngestRefused(text, hint="change the table, or name another one in the file of --tables") from error
        return transaction

    def _schema(self, path: str) -> pa.Schema:
        """Returns the columns of a file as the table has them, all optional. All files of a run have the same."""
        with load_file_io({**self._catalog.properties, **self._io_properties}, path).new_input(path).open() as file:
            return in_table(pa.schema([field.with_nullable(True) for field in pq.read_schema(file)]))

    def _new_table(self, run: RunFiles, schema: pa.Schema) -> Any:
        identifier = self._settings.identifier(run.topic)
        if not self._catalog.namespace_exists(identifier[:-1]):  # creating one may need a right that the job lacks
            self._catalog.create_namespace_if_not_exists(identifier[:-1])
        transaction = self._catalog.create_table_transaction(identifier, schema, properties=NEW_TABLE)
        transform = _transform_of(run.layout)
        if transform is not None:
            with transaction.update_spec() as partitions:
                partitions.add_field("_event_time", transform, f"_event_time_{transform}")
        return transaction

    def _place(self, topic: str) -> str:
        return f"table {self.name(topic)} of {self._settings.shown_catalog}"


def _add_columns(transaction: Any, schemas: Sequence[pa.Schema]) -> None:
    """Adds the columns that a table lacks, and the names that they have in files."""
    fields = [field.name for field in transaction.table_metadata.schema().fields]
    if RESERVED & {*fields}:  # a table of an earlier release, or of a user: its columns have the names of files
        for name in sorted(fields, key=lambda name: name in RESERVED):  # the new name of one may be the old of another
            if table_name(name) != name:
                with transaction.update_schema() as columns:
                    columns.rename_column(name, table_name(name))
    for schema in schemas:
        with transaction.update_schema() as columns:
            columns.union_by_name(schema)
    metadata = transaction.table_metadata
    before = metadata.name_mapping()
    names = {field.field_id: field.name for field in metadata.schema().fields}
    mapping = mapping_of_files(before or metadata.schema().name_mapping, names)
    if mapping != before:
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json()})


def _append(transaction: Any, paths: Sequence[str], properties: dict[str, str]) -> None:
    """Adds files in one snapshot, as `Transaction.add_files` of pyiceberg, which takes the names of the table only.

    Raises ValueError for a file that the table has.
    """
    if already := transaction._find_referenced_data_files([*paths]):
        raise ValueError(f"it has {already[0]} already")
    update = transaction.update_snapshot(snapshot_properties=properties)
    merges = transaction.table_metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED) == "true"
    view = _as_in_files(transaction.table_metadata)
    with update.merge_append() if merges else update.fast_append() as append:
        for path in paths:
            append.append_data_file(parquet_file_to_data_file(transaction._table.io, view, path))


def _as_in_files(metadata: Any) -> Any:
    """Returns the metadata of a table with the names that its columns have in files."""
    schema = metadata.schema()
    fields = [field.model_copy(update={"name": file_name(field.name)}) for field in schema.fields]
    view = Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    others = [other for other in metadata.schemas if other.schema_id != schema.schema_id]
    return metadata.model_copy(update={"schemas": [*others, view]})


def _transform_of(layout: Layout) -> Any:
    """Returns the partition that a file of the layout is within; None if Iceberg has none that fits."""
    if layout.zone != UTC_ZONE:
        return None
    if layout.period in MINUTES:
        return HourTransform()
    return {HOUR: HourTransform(), DAY: DayTransform(), MONTH: MonthTransform(), YEAR: YearTransform()}.get(
        layout.period
    )


class _SentOnce:
    """A catalog that reports a rejected commit as an error after which pyiceberg neither repeats nor cleans up."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any) -> Any:
        try:
            return self._catalog.commit_table(*arguments)
        except CommitFailedException as error:
            raise _Rejected(first_line(error)) from error


class _Rejected(Exception):
    """Another writer committed first."""


def open_catalog_of(settings: TableSettings, io_properties: Mapping[str, str]) -> Any:
    given = {"type": settings.kind, "uri": settings.catalog, **io_properties, **settings.properties}
    if settings.warehouse is not None:
        given["warehouse"] = settings.warehouse
    return load_catalog(settings.name, **given)


def location_of(url: str) -> str:
    """Returns a store's URL as tables name it: without options and percent-encoding. Raises IngestRefused."""
    parts = urlsplit(url)
    path = unquote(parts.path).rstrip("/")
    if any(letter in path for letter in "?#%"):
        raise IngestRefused(f"--output {url} has a character that Iceberg readers take for another", hint="rename it")
    return f"{parts.scheme}://{parts.netloc}{path}"


def io_properties(url: str) -> dict[str, str]:
    """Returns the options of an S3 store as pyiceberg names them; credentials come from the environment."""
    return {f"s3.{name}": value for name, value in parse_qsl(urlsplit(url).query)}


def _last_of(table: Table, name: str) -> int:
    """Returns the last commit, or the last rewrite, whose files the table has had."""
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots if snapshot.summary is not None]
    return max(int(summary.get(name) or 0) for summary in ({**table.properties}, *summaries))


def _check_required(columns: Any, files: pa.Schema) -> None:
    """Raises ValueError for a required column that the files do not have."""
    missing = [field.name for field in columns.fields if field.required and field.name not in files.names]
    if missing:
        raise ValueError(f"the files do not have its required columns {', '.join(missing)}")
