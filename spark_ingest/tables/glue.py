"""Tables of AWS Glue, by boto3: columns and partitions; engines list the files of a partition themselves.

    1 Load the table. Its parameter penstock.commit has the last commit whose partitions it has.
    2 Create the table if it is absent, and each partition if it is absent.
    3 Update the table: new columns, penstock.commit.
Each step changes nothing when it is repeated, so a kill or a lost answer needs no more than the next call, and two
drivers do each other's work. A column is never removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from spark_ingest.errors import IngestRefused, NotPublished
from spark_ingest.protocol.history import History
from spark_ingest.tables.described import described, files_of_table, location_of
from spark_ingest.tables.hive import STORAGE, HiveTable, directories_of, partition_values, table_name
from spark_ingest.tables.settings import GlueSettings
from spark_ingest.tables.values import RewriteFiles, RunFiles, TableFile, TableState

JOB, OUTPUT, TOPIC = "penstock.job", "penstock.output", "penstock.topic"
COMMIT, REWRITE = "penstock.commit", "penstock.rewrite"
_PARTITIONS_AT_ONCE = 100  # Glue's limit
_UPDATES_MAX = 4  # each but the first after another writer's update


class GlueTables:
    """The tables of one job in one database. `open_client` is called before the first use."""

    kind = "Glue"
    lists_files = False

    def __init__(self, settings: GlueSettings, history: History, open_client: Callable[[], Any] | None = None) -> None:
        self._settings = settings
        self._history = history
        self._open_client = open_client or (
            lambda: boto3.client("glue", region_name=settings.region, endpoint_url=settings.endpoint)
        )

    def name(self, topic: str) -> str:
        return f"{self._settings.database}.{self._name(topic)}"

    def state(self, topic: str) -> TableState | None:
        table = self._load(topic)
        if table is None:
            return None
        parameters = table.get("Parameters", {})
        return TableState(_number(parameters, COMMIT), None, _number(parameters, REWRITE))

    def add(self, run: RunFiles) -> bool:
        """Adds the partitions of the files; False if the table has this commit. Raises IngestRefused, NotPublished."""
        state = self.state(run.topic)
        if state is not None and state.commit >= run.commit:
            return False
        self._register(run.topic, run.keys, {COMMIT: run.commit})
        return True

    def rewrite(self, change: RewriteFiles) -> bool:
        state = self.state(change.topic)
        if state is not None and (state.commit, state.rewrite) != (change.after, change.since):
            return False
        self._register(change.topic, change.added, {COMMIT: change.commit, REWRITE: change.rewrite})
        return True

    def mark(self, topic: str, commit: int) -> None:
        self._register(topic, (), {COMMIT: commit})

    def files(self, topic: str) -> list[TableFile]:
        """Returns the files of the job that are in partitions of the table. Raises IngestRefused, NotPublished."""
        table = self._described(topic)
        if self._load(topic) is None:
            return []
        pages = self._calls(topic, lambda: list(self._pages(topic)))
        registered = {tuple(partition["Values"]) for page in pages for partition in page["Partitions"]}
        named = files_of_table(self._history, topic)
        return [
            TableFile(directory.key, directory.rows)
            for directory in named
            if not table.partitions or tuple(partition_values(table, directory.directory)) in registered
        ]

    def _pages(self, topic: str) -> Iterable[Any]:
        pages: Iterable[Any] = self._client.get_paginator("get_partitions").paginate(**self._place(topic, "TableName"))
        return pages

    def _register(self, topic: str, keys: Iterable[str], last: Mapping[str, int]) -> None:
        table, location = self._described(topic), location_of(self._history, topic)
        if self._load(topic) is None:
            self._create(topic, table, location)
        directories = directories_of(keys) if table.partitions else []
        for at in range(0, len(directories), _PARTITIONS_AT_ONCE):
            some = directories[at : at + _PARTITIONS_AT_ONCE]
            self._add_partitions(topic, [_partition(table, self._history, directory) for directory in some])
        self._update(topic, table, location, last)

    def _create(self, topic: str, table: HiveTable, location: str) -> None:
        given = _table_input(table, location, self._parameters(topic, table))
        try:
            self._calls(topic, lambda: self._client.create_table(TableInput=given, **self._place("", "")))
        except NotPublished as error:
            code = _code(error.__cause__)
            if code == "EntityNotFoundException":
                hint = f"create it: aws glue create-database --database-input Name={self._settings.database}"
                raise IngestRefused(f"Glue has no database {self._settings.database}", hint=hint) from error
            if code != "AlreadyExistsException":
                raise

    def _add_partitions(self, topic: str, partitions: list[dict[str, Any]]) -> None:
        done = self._calls(
            topic,
            lambda: self._client.batch_create_partition(
                PartitionInputList=partitions, **self._place(topic, "TableName")
            ),
        )
        errors = [error["ErrorDetail"] for error in done.get("Errors") or ()]
        if bad := [error for error in errors if error.get("ErrorCode") != "AlreadyExistsException"]:
            raise NotPublished(f"{self.name(topic)} did not take a partition: {bad[0].get('ErrorMessage')}")

    def _update(self, topic: str, table: HiveTable, location: str, last: Mapping[str, int]) -> None:
        """Adds columns, and raises the numbers of the last commit and rewrite."""
        for _ in range(_UPDATES_MAX):
            loaded = self._load(topic)
            if loaded is None:
                raise NotPublished(f"{self.name(topic)} was removed by another program")
            before = {column["Name"]: column["Type"] for column in loaded["StorageDescriptor"]["Columns"]}
            parameters = loaded.get("Parameters", {}) | self._parameters(topic, table)
            parameters |= {name: str(max(value, _number(parameters, name))) for name, value in last.items()}
            given = _table_input(table, location, parameters, before)
            version = {"VersionId": loaded["VersionId"]} if loaded.get("VersionId") else {}
            try:
                self._calls(
                    topic,
                    lambda given=given, version=version: self._client.update_table(  # type: ignore[misc]
                        TableInput=given, **version, **self._place("", "")
                    ),
                )
            except NotPublished as error:
                if _code(error.__cause__) != "ConcurrentModificationException":
                    raise
            else:
                return
        raise NotPublished(f"{self.name(topic)} changes all the time")

    def _load(self, topic: str) -> dict[str, Any] | None:
        """Returns the table, None without one. Raises NotPublished, IngestRefused for a table of another program."""
        try:
            answer = self._calls(topic, lambda: self._client.get_table(Name=self._name(topic), **self._place("", "")))
        except NotPublished as error:
            if _code(error.__cause__) == "EntityNotFoundException":
                return None
            raise
        table: dict[str, Any] = answer["Table"]
        owner = table.get("Parameters", {})
        if (owner.get(JOB), owner.get(TOPIC)) != (self._history.job, topic):
            hint = "name another table in the file of --tables; this one is left as it is"
            raise IngestRefused(f"table {self.name(topic)} of Glue is of another job or program", hint=hint)
        return table

    def _parameters(self, topic: str, table: HiveTable) -> dict[str, str]:
        owner = {JOB: self._history.job, OUTPUT: self._history.output.url.partition("?")[0], TOPIC: topic}
        return table.properties | owner | {"classification": table.layout.format}

    def _described(self, topic: str) -> HiveTable:
        return described(self._history, topic, self._settings.tables)

    def _name(self, topic: str) -> str:
        return self._settings.tables.get(topic) or table_name(topic)

    def _place(self, topic: str, name: str) -> dict[str, str]:
        catalog = {"CatalogId": self._settings.catalog_id} if self._settings.catalog_id else {}
        return {"DatabaseName": self._settings.database, **catalog} | ({name: self._name(topic)} if name else {})

    @cached_property
    def _client(self) -> Any:
        return self._open_client()

    def _calls(self, topic: str, call: Callable[[], Any]) -> Any:
        """Raises NotPublished with the error of boto3 as its cause."""
        try:
            return call()
        except (ClientError, BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is not a URL
            raise NotPublished(f"Glue does not answer for {self.name(topic)}: {error}") from error


def _code(error: BaseException | None) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _number(parameters: Mapping[str, str], name: str) -> int:
    text = parameters.get(name, "")
    return int(text) if text.isdecimal() else 0


def _storage(table: HiveTable, location: str) -> dict[str, Any]:
    library, reader, writer = STORAGE[table.layout.format]
    return {
        "Location": location,
        "InputFormat": reader,
        "OutputFormat": writer,
        "SerdeInfo": {"SerializationLibrary": library, "Parameters": table.parameters},
    }


def _partition(table: HiveTable, history: History, directory: str) -> dict[str, Any]:
    location = f"{history.output.url.partition('?')[0].rstrip('/')}/{directory}"
    columns = [{"Name": name, "Type": kind} for name, kind in table.columns]
    return {
        "Values": partition_values(table, directory),
        "StorageDescriptor": {**_storage(table, location), "Columns": columns},
    }


def _table_input(
    table: HiveTable, location: str, parameters: Mapping[str, str], before: Mapping[str, str] | None = None
) -> dict[str, Any]:
    columns = dict(before or {}) | dict(table.columns)
    return {
        "Name": table.name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": dict(parameters),
        "PartitionKeys": [{"Name": name, "Type": kind} for name, kind in table.partitions],
        "StorageDescriptor": {
            **_storage(table, location),
            "Columns": [{"Name": name, "Type": kind} for name, kind in columns.items()],
        },
    }
