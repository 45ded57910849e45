"""Which job writes a table, and the table's layout: an object that the first plan of the table creates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import CODECS, DEFAULT, Layout
from spark_ingest.output import names
from spark_ingest.output.stores import put_if_absent
from spark_ingest.plan import UnreadablePlan

Layouts = Callable[[str], Layout]  # of tables, by topic


class _Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """`layout` is the text of what a table keeps. `whole` is all of it, unless `<format> by <period>` says it."""

    job: str
    layout: str = DEFAULT.fixed
    whole: Layout | None = None


def claim_table(output: ObjectStore, topic: str, job: str, layout: Layout = DEFAULT) -> None:
    """Records this job as the owner of a table, and the table's layout. Two jobs would write every row twice.

    Raises IngestRefused.
    """
    key = names.owner_key(topic)
    whole = None if layout.fixed == f"{layout.format} by {layout.period}" else layout
    if put_if_absent(output, key, msgspec.json.encode(_Owner(job, layout.fixed, whole))):
        return
    owner = _decode(output.get(key), key)
    if owner.layout != layout.fixed:
        text = f"table {topic} in {output.url} has files of the layout {owner.layout}, not {layout.fixed}"
        raise IngestRefused(text, hint="a table keeps its format and period; use another --output")
    if owner.job != job:
        hint = f"use --job {owner.job} or another --output"
        raise IngestRefused(f"table {topic} in {output.url} belongs to job {owner.job}", hint=hint)


def layouts_of(output: ObjectStore) -> Layouts:
    """Returns a function that reads the layout of a topic's table, each once. It raises UnreadablePlan."""

    @cache
    def layout_of(topic: str) -> Layout:
        key = names.owner_key(topic)
        try:
            owner = _decode(output.get(key), key)
        except NoSuchObject:
            return DEFAULT
        if owner.whole is not None:
            return owner.whole
        form, _, period = owner.layout.partition(" by ")
        return Layout(form, next(iter(CODECS[form])), period)

    return layout_of


def _decode(data: bytes, key: str) -> _Owner:
    try:
        return msgspec.json.decode(data, type=_Owner)
    except msgspec.DecodeError as error:
        raise UnreadablePlan(f"{key}: {error}", hint="restore it, or use the newer release") from error
