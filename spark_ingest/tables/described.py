"""The tables of a job as a catalog of Hive's kind has them, from the newest commit and its schemas."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from engine.tiering.store.store import NoSuchObject
from spark_ingest.errors import HistoryDamaged
from spark_ingest.output import names
from spark_ingest.output.owners import layouts_of
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.protocol.history import History
from spark_ingest.tables.hive import HiveTable, hive_table


class _Document(msgspec.Struct):
    payload: str


def described(history: History, topic: str, given: Mapping[str, str] | None = None) -> HiveTable:
    """Returns the table of a topic of the newest commit. `given` has the names of some. Raises HistoryDamaged."""
    head = history.head()
    assert head is not None
    schema = head.schemas[topic]
    key = names.schema_key(history.job, topic, schema.schema_id)
    try:
        payload = msgspec.json.decode(history.output.get(key), type=_Document).payload
    except (NoSuchObject, msgspec.DecodeError) as error:
        raise HistoryDamaged(f"{key} is missing or damaged", hint="the next run with new columns writes it") from error
    layout = layouts_of(history.output)(topic)
    return hive_table(topic, payload, schema, layout, (given or {}).get(topic, ""))


def location_of(history: History, topic: str) -> str:
    """Returns the directory of a topic's table without the options of the store."""
    url = urlsplit(history.output.url)._replace(query="").geturl().rstrip("/")
    return f"{url}/{names.table_prefix(topic)}"


def files_of_table(history: History, topic: str) -> list[StoredFile]:
    """Returns the files of commits and rewrites, without replaced ones."""
    effect = history.effect()
    named = [
        file
        for commit in history.commits()
        for result in commit.results
        if result.topic == topic
        for file in result.files
    ]
    return [file for file in (*named, *effect.files_of(topic)) if file.key not in effect.replaced]
