"""The file that names the catalog and the tables of a job (`--tables`): [iceberg], [glue], or [delta] without settings.

    [iceberg]
    catalog = "sqlite:////data/catalog.db"
    warehouse = "/data/warehouse"
    namespace = "events"

    [iceberg.tables]
    flights = "aviation.flights"

    [glue]
    database = "events"
    region = "eu-central-1"

Pure but for reading the file. It opens no catalog.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from spark_ingest.errors import IngestRefused
from spark_ingest.tables.hive import COLUMN, MEMBER, NAME
from spark_ingest.toml_file import read_toml
from spark_ingest.types.json_types import ANY_NAMES, NameRules

ICEBERG, DELTA, GLUE = "iceberg", "delta", "glue"
SQLITE, REST = "sql", "rest"  # kinds of catalogs, as pyiceberg calls them
# The names that the tables of each kind can have. Delta takes more characters only if it maps columns.
_IN_DELTA = re.compile(r"[^ ,;{}()\n\t=]+")
NAME_RULES = {
    ICEBERG: NameRules(has_paths=True),
    DELTA: NameRules(_IN_DELTA, _IN_DELTA),
    GLUE: NameRules(COLUMN, MEMBER),
}
_KINDS = {"sqlite": SQLITE, "http": REST, "https": REST}
_TEXTS = ("catalog", "warehouse", "namespace", "name")


@dataclass(frozen=True, slots=True)
class TableSettings:
    """A catalog, and the names of tables by topic. Another topic has its own name, in `namespace`.

    `name` is the catalog's own name: a SQLite catalog keeps its tables apart by it.
    """

    catalog: str
    namespace: str
    warehouse: str | None = None
    name: str = "penstock"
    tables: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return _KINDS[urlsplit(self.catalog).scheme]

    @property
    def shown_catalog(self) -> str:
        """Returns the catalog's URI without a user and password."""
        parts = urlsplit(self.catalog)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else self.catalog

    def identifier(self, topic: str) -> tuple[str, ...]:
        """Returns the levels of the namespace and the name of a topic's table."""
        given = self.tables.get(topic)
        if given is None:
            return (*self.namespace.split("."), topic)
        return tuple(given.split(".")) if "." in given else (*self.namespace.split("."), given)


@dataclass(frozen=True, slots=True)
class GlueSettings:
    """A database of Glue, and the names of tables by topic. Credentials come from the environment."""

    database: str
    region: str | None = None
    endpoint: str | None = None
    catalog_id: str | None = None
    tables: Mapping[str, str] = field(default_factory=dict)


def read_tables(path: Path) -> TableSettings | GlueSettings | None:
    """Returns the settings of a TOML file; None for Delta tables, which need none. Raises IngestRefused."""
    sections = read_toml("--tables", path)
    if sections == {DELTA: {}}:
        return None
    try:
        return _glue(sections) if set(sections) == {GLUE} else _settings(sections)
    except ValueError as error:
        raise IngestRefused(f"--tables {path}: {error}") from error


def name_rules(path: Path | None) -> NameRules:
    """Returns the rules of the tables that a file names; any name without a file. Raises IngestRefused."""
    if path is None:
        return ANY_NAMES
    settings = read_tables(path)
    return NAME_RULES[DELTA if settings is None else GLUE if isinstance(settings, GlueSettings) else ICEBERG]


def _settings(sections: dict[str, Any]) -> TableSettings:
    section = sections.pop(ICEBERG, None)
    if sections or not isinstance(section, dict):
        raise ValueError(
            f"write one section [{ICEBERG}] or [{GLUE}], or an empty [{DELTA}]"
            + (f", not {', '.join(sorted(sections))}" if sections else "")
        )
    texts = {name: section.pop(name) for name in _TEXTS if name in section}
    maps = {name: section.pop(name) for name in ("tables", "properties") if name in section}
    if section:
        raise ValueError(f"unknown settings: {', '.join(sorted(section))}")
    for name in ("catalog", "namespace"):
        if not texts.get(name):
            raise ValueError(f"{name} is missing")
    for name, value in texts.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"{name} is not a text")
    for name, topic_map in maps.items():
        if not isinstance(topic_map, dict) or not all(isinstance(value, str) and value for value in topic_map.values()):
            raise ValueError(f"[{ICEBERG}.{name}] has a value that is not a text")
    settings = TableSettings(**texts, **maps)
    _check(settings)
    if settings.warehouse is not None and settings.kind == SQLITE and "://" not in settings.warehouse:
        texts["warehouse"] = "file://" + os.path.abspath(settings.warehouse)
    return TableSettings(**texts, **maps)


def _glue(sections: dict[str, Any]) -> GlueSettings:
    section = sections[GLUE]
    options = ("database", "region", "endpoint", "catalog_id", "tables")
    if not isinstance(section, dict) or (unknown := sorted(section.keys() - set(options))):
        raise ValueError(f"unknown settings: {', '.join(unknown)}" if isinstance(section, dict) else "write [glue]")
    tables = section.get("tables", {})
    texts = {name: text for name, text in section.items() if name != "tables"}
    if not texts.get("database"):
        raise ValueError("database is missing")
    if wrong := [name for name, text in texts.items() if not isinstance(text, str) or not text]:
        raise ValueError(f"{wrong[0]} is not a text")
    topics: dict[str, str] = {}
    for topic, name in tables.items() if isinstance(tables, dict) else [("", tables)]:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f"the table {name!r} of {topic} is not of lower-case letters, digits and _")
        if (other := topics.setdefault(name, topic)) != topic:
            raise ValueError(f"{other} and {topic} have the same table {name}")
    return GlueSettings(**texts, tables=dict(tables))


def _check(settings: TableSettings) -> None:
    if urlsplit(settings.catalog).scheme not in _KINDS:
        raise ValueError("catalog is not a URI of a SQLite file (sqlite:///path) or of a REST catalog (https://host)")
    if settings.kind == SQLITE and settings.warehouse is None:
        raise ValueError("a SQLite catalog needs warehouse: a path or URL for the metadata of its tables")
    topics: dict[tuple[str, ...], str] = {}
    for topic in settings.tables:
        if not all(identifier := settings.identifier(topic)):
            raise ValueError(f"the table {settings.tables[topic]!r} of {topic} has an empty part")
        if (other := topics.setdefault(identifier, topic)) != topic:
            raise ValueError(f"{other} and {topic} have the same table {'.'.join(identifier)}")
