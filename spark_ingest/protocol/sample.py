"""Samples records of a plan to infer the columns of its tables.

A sample is enough: a member that it misses, or that has another type elsewhere, goes to `_extra`, and its type goes
into the commit for the next plan.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

import msgspec

from engine.format.compiled_batch import Member, read_members
from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.json_types import MEMBERS_MAX, Members, Type, add_members, described, infer_text
from spark_ingest.decode.value_costs import is_inferable
from spark_ingest.payload.decoder import converter_of
from spark_ingest.plan import Recipe
from spark_ingest.source.scan import scan
from spark_ingest.source.slices import Slice

READS_MAX = 16  # spread evenly over the plan
READ_BYTES = 256 << 10  # one ranged GET each
READ_RECORDS_MAX = 2000  # types seldom differ within one segment; inference costs ten times as much as decoding
_BLOCK_VALUES = 250  # that the compiled codec looks at together


def sampled_members(store: ObjectStore, slices: Sequence[Slice], recipe: Recipe) -> Members:
    """Returns the members of the sampled values and their types.

    Raises Corrupt, NoSuchObject, IngestRefused if the decoder of the recipe is not usable.
    """
    converter = converter_of(recipe)
    values = _values(store, _sampled_slices(slices))
    if converter is not None:
        values = (text for value in values for text in converter.convert([value]).texts if text is not None)
    return members_of(values)


def members_of(values: Iterable[bytes]) -> Members:
    """Returns the members of the objects among JSON values, and their types.

    A block of values that the compiled codec reads with the members of those before it has no others.
    """
    coming, members, known = iter(values), dict[str, Type](), None
    while block := list(islice(coming, _BLOCK_VALUES)):
        if known is not None and _are_known(block, known, len(members)):
            continue
        for value in filter(is_inferable, block):
            _infer(members, value)
        known = described([[name, kind] for name, kind in members.items()])
    return [[name, kind] for name, kind in members.items()]


def _are_known(values: Sequence[bytes], known: list[Member], count: int) -> bool:
    """Returns whether the codec reads all values; without PyArrow, which a plan alone does not need."""
    ends = memoryview(array("i", [0, *accumulate(map(len, values))]))
    return read_members(ends, b"".join(values), None, 0, len(values), known, count, skips_others=False) is not None


def _infer(members: dict[str, Type], value: bytes) -> None:
    try:
        kind = infer_text(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(kind, list) and kind[0] == "struct":
        add_members(members, kind[1], MEMBERS_MAX)


def _sampled_slices(slices: Sequence[Slice]) -> list[Slice]:
    """Returns slices that start a segment if there are any: in others the reader must skip to the first record."""
    beginnings = [one for one in slices if one.start == one.base_offset] or list(slices[:1])
    step = max(1, -(-len(beginnings) // READS_MAX))
    return beginnings[::step]


def _values(store: ObjectStore, slices: Sequence[Slice]) -> Iterator[bytes]:
    for one in slices:
        taken = taken_bytes = 0
        for scanned in scan(store, [one], READ_BYTES):
            yield from scanned.values()[: READ_RECORDS_MAX - taken]
            taken += scanned.record_count
            taken_bytes += scanned.header.size_bytes
            if taken >= READ_RECORDS_MAX or taken_bytes >= READ_BYTES:
                break
