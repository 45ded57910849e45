"""Columns that the operator declares in a file, before any record decides their types.

    [flights]
    amt = "double"
    id = "bigint"

Pure but for reading the file. A declared type holds for members without a column; a published column keeps its type,
except that a bigint may become a decimal. Types that payloads declare are in types/declared_types.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from spark_ingest.errors import IngestRefused
from spark_ingest.toml_file import read_toml
from spark_ingest.types.json_types import RESERVED, Members, can_be_column

TYPES = ("boolean", "bigint", "double", "decimal", "string", "json")

Declared = Mapping[str, Mapping[str, str]]  # types by topic and member


def read_declared(path: Path) -> Declared:
    """Returns the columns of a TOML file. Raises IngestRefused."""
    document = read_toml("--schema", path)
    for topic, columns in document.items():
        if not isinstance(columns, dict):
            raise IngestRefused(
                f"--schema {path}: {topic} is not a table of members", hint=f'write [{topic}], a = "bigint"'
            )
        for name, kind in columns.items():
            where = f"--schema {path}: {topic}: {name!r}"
            if problem := column_problem(name, kind, columns):
                what, _, hint = problem.partition("; ")
                raise IngestRefused(f"{where} {what}", hint=hint)
    return document


def column_problem(name: str, kind: object, columns: Iterable[str]) -> str | None:
    """Returns why a column of `columns` cannot be declared, and what to write; None if it can."""
    if kind not in TYPES:
        return f"has the type {kind!r}; there are: {', '.join(TYPES)}"
    names = [column.lower() for column in columns]
    if not name or not can_be_column(name) or name.lower() in RESERVED or names.count(name.lower()) > 1:
        return "cannot be a column; names of standard columns are taken, in any case"
    return None


def with_declared(topic: str, published: Members, declared: Mapping[str, str]) -> Members:
    """Returns the published members with the declared ones. Raises IngestRefused if a published type is another."""
    members = dict(published)
    spelt = {name.lower(): name for name, kind in published if kind != "null"}
    for name, kind in declared.items():
        kind_published = members.get(name, "null")
        if spelt.get(name.lower(), name) != name:
            raise IngestRefused(f"{topic}: the column {name!r} is published as {spelt[name.lower()]!r}")
        if kind_published not in ("null", kind) and (kind_published, kind) != ("bigint", "decimal"):
            hint = "declare that type, or ingest into another --output"
            raise IngestRefused(
                f"{topic}: the column {name!r} is declared {kind}, and published as {kind_published}", hint=hint
            )
        members[name] = kind
    return [[name, kind] for name, kind in members.items()]
