"""The columns of the tables of a plan, inferred from a sample of its records.

A sample is enough: a member that it misses, or that has another type elsewhere, goes to `_extra`, and its type goes
into the commit for the next plan. decode/type_counts.py chooses between several types of one member.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import msgspec

from engine.format.compiled_batch import Member, MemberColumn, read_columns, read_members
from engine.tiering.store.store import ObjectStore
from spark_ingest.choices import TopicChoice
from spark_ingest.decode.declared_columns import with_declared
from spark_ingest.decode.type_counts import Mixed, TypeCounts, flattened, is_new, prefer_members, seen_members
from spark_ingest.decode.value_costs import is_inferable
from spark_ingest.payload.decoder import Converter, converter_of
from spark_ingest.payload.transformers import declared_after
from spark_ingest.plan import JSON, RAW, MixedColumn, Recipe, TableSchema, Task
from spark_ingest.protocol.commit import Commit
from spark_ingest.source.scan import ScannedBatch, scan
from spark_ingest.source.slices import Slice
from spark_ingest.source.value_schema import value_schema_of
from spark_ingest.types.declared_types import OfSame
from spark_ingest.types.json_types import (
    ANY_NAMES,
    MEMBERS_MAX,
    Members,
    NameRules,
    Type,
    add_members,
    described,
    evolve,
    infer_text,
)
from spark_ingest.types.schema_types import schema_members

READS_MAX = 16  # spread evenly over the plan
READ_BYTES = 256 << 10  # one ranged GET each
READ_RECORDS_MAX = 2000  # types seldom differ within one segment; inference costs ten times as much as decoding
_BLOCK_VALUES = 250  # that the compiled codec looks at together


_Sampled = tuple[bytes, object, Members]  # a value, its place, and the types that it declares


class _Place(NamedTuple):
    """The value of a record: the batch, and the number of the value among those of the batch."""

    batch: ScannedBatch
    at: int

    @property
    def offset(self) -> int:
        batch = self.batch
        if batch.plain is None:
            return [record.offset for record in batch.decoded if record.value is not None][self.at]
        columns = read_columns([batch.plain], batch.source.start, batch.source.end)
        is_there, nulls = columns.values.is_there, columns.values.null_count
        offsets = columns.offsets.cast("q")
        return [offset for at, offset in enumerate(offsets) if not nulls or is_there[at >> 3] >> (at & 7) & 1][self.at]


def table_schema(
    source: ObjectStore,
    head: Commit | None,
    choice: TopicChoice,
    topic: str,
    tasks: Sequence[Task],
    names: NameRules = ANY_NAMES,
) -> tuple[TableSchema, list[MixedColumn]]:
    """Returns the columns of a table: published ones, declared ones, and new ones of the sample and the last commit;
    and the new ones whose sampled values have several types.

    Raises IngestRefused if a declared type contradicts a published one, Corrupt.
    """
    published = head.schemas[topic].members if head and topic in head.schemas else []
    recipe, mixed = choice.recipe, list[MixedColumn]()
    if recipe.payload != RAW:
        published = with_declared(topic, published, choice.columns)
        slices = [piece for task in tasks for piece in task.slices]
        limit, declared = choice.misfit_max_percent, _schema_members(source, slices, recipe)
        sampled, mixed = sampled_members(source, slices, recipe, limit, published, declared)
        seen = seen_members(published, sampled, head.seen.get(topic, []) if head else [])
        before, reserved = published, recipe.layout.partition_columns
        published = evolve(published, seen, widens=choice.widens, reserved=reserved, names=names)
        mixed = [column for column in mixed if is_new(column.path, before, published)]
    return schema_of(published, recipe.payload), mixed


def _schema_members(store: ObjectStore, slices: Sequence[Slice], recipe: Recipe) -> Members:
    """Returns the types that the schema of the topic declares, as the steps of the recipe leave them."""
    if recipe.payload != JSON or not slices:
        return []
    text = value_schema_of(store, slices[-1].key)
    return declared_after(recipe.transforms, schema_members(text)) if text else []


def schema_of(members: Members, payload: str) -> TableSchema:
    digest = hashlib.sha256(msgspec.json.encode([payload, members])).hexdigest()
    return TableSchema(digest[:12], members)


def sampled_members(
    store: ObjectStore,
    slices: Sequence[Slice],
    recipe: Recipe,
    limit_percent: float,
    published: Members,
    declared: Members,
) -> tuple[Members, list[MixedColumn]]:
    """Returns the members of the sampled values with the types that their columns get, and those of several types.

    A type that payloads declare, or that the topic's schema has declared for all, holds for the values that it holds
    exactly, and for a member without a value. It does not widen a published bigint, which values alone do.

    Raises Corrupt, NoSuchObject, IngestRefused if the decoder of the recipe is not usable.
    """
    converter = converter_of(recipe)
    bigints = {name for name, kind in published if kind == "bigint"}
    declared = [member for member in declared if member[0] not in bigints]
    values = _values(store, _sampled_slices(slices), declared)
    known_types: dict[str, Type] = dict(declared)
    mixed: list[Mixed] = []
    counts = counted(values if converter is None else _convert(values, converter, bigints, known_types))
    members = [[name, count.chosen((name,), limit_percent, mixed)] for name, count in counts.items()]
    return prefer_members(members, [list(member) for member in known_types.items()]), [
        _mixed_column(column) for column in mixed
    ]


def _convert(
    values: Iterable[_Sampled], converter: Converter, bigints: Container[str], known_types: dict[str, Type]
) -> Iterator[_Sampled]:
    """Yields the JSON of values with the types that they declare, and adds these types to `known_types`."""
    without_bigints = OfSame(lambda members: [member for member in members if member[0] not in bigints])
    before: Members = []
    for value, origin, of_topic in values:
        [text] = converter.convert([value]).texts
        if text is not None:
            declared = of_topic or without_bigints(converter.declared(value))
            if declared is not before:
                add_members(known_types, declared, MEMBERS_MAX)
                before = declared
            yield text, origin, declared


def _mixed_column(mixed: Mixed) -> MixedColumn:
    origin = mixed.place if isinstance(mixed.place, _Place) else None
    partition, offset = (origin.batch.source.partition, origin.offset) if origin else (-1, -1)
    kind = mixed.kind if isinstance(mixed.kind, str) else mixed.kind[0]
    return MixedColumn(list(mixed.path), kind, mixed.values, mixed.others, list(mixed.other_kinds), partition, offset)


def counted(values: Iterable[_Sampled]) -> dict[str, TypeCounts]:
    """Returns the types of the members of the objects among JSON values, each with its place and declared types.

    A block of values that the compiled codec reads with the members of those before it has no others, unless their
    types are declared.
    """
    coming, counts = iter(values), dict[str, TypeCounts]()
    members: Members = []
    settled: list[Member] | None = None
    while block := list(islice(coming, _BLOCK_VALUES)):
        is_known = settled is not None and not any(declared for _, _, declared in block)
        columns = _read_known([text for text, _, _ in block], settled or [], len(members)) if is_known else None
        if columns is not None:
            for counts_of_member, column in zip(flattened(counts, members), columns, strict=True):
                counts_of_member.add_known(len(block) - column.null_count)
            continue
        for text, origin, declared in block:
            if is_inferable(text):
                _infer(counts, text, origin, declared)
        members = [[name, count.settle()] for name, count in counts.items()]
        settled = described(members) if members else None
    return counts


def _read_known(values: Sequence[bytes], members: list[Member], count: int) -> list[MemberColumn] | None:
    """Returns the columns if the codec reads all values; without PyArrow, which a plan alone does not need."""
    ends = memoryview(array("i", [0, *accumulate(map(len, values))]))
    return read_members(ends, b"".join(values), None, 0, len(values), members, count, skips_others=False)


def _infer(counts: dict[str, TypeCounts], value: bytes, origin: object, declared: Members) -> None:
    try:
        kind = infer_text(value, ["struct", declared])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(kind, list) and kind[0] == "struct":
        for name, member in kind[1]:
            if name in counts or len(counts) < MEMBERS_MAX:
                counts.setdefault(name, TypeCounts()).add(member, origin)


def _sampled_slices(slices: Sequence[Slice]) -> list[Slice]:
    """Returns slices that start a segment if there are any: in others the reader must skip to the first record."""
    beginnings = [piece for piece in slices if piece.start == piece.base_offset] or list(slices[:1])
    step = max(1, -(-len(beginnings) // READS_MAX))
    return beginnings[::step]


def _values(store: ObjectStore, slices: Sequence[Slice], declared: Members) -> Iterator[_Sampled]:
    for piece in slices:
        taken = taken_bytes = 0
        for scanned in scan(store, [piece], READ_BYTES):
            for at, value in enumerate(scanned.values()[: READ_RECORDS_MAX - taken]):
                yield value, _Place(scanned, at), declared
            taken += scanned.record_count
            taken_bytes += scanned.header.size_bytes
            if taken >= READ_RECORDS_MAX or taken_bytes >= READ_BYTES:
                break
