"""Looks at a few records of what a plan is going to read, so that its tables get columns of the right types.

A sample is enough: a member that it misses, or that has another type elsewhere, is kept in `_extra` and tells the next
plan of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.json_types import Members, infer_text, merge_members
from spark_ingest.source.cut import Slice
from spark_ingest.source.scan import scan

PLACES_MAX = 16  # spread evenly over what is planned
PLACE_BYTES = 256 << 10  # one ranged GET each
PLACE_RECORDS_MAX = 2000  # types seldom differ within one place; inference costs ten times what decoding does


def sampled_members(store: ObjectStore, slices: Sequence[Slice]) -> Members:
    """The members of the JSON objects in the sample. Raises Corrupt, NoSuchObject."""
    members: Members = []
    for value in _values(store, _places(slices)):
        try:
            kind = infer_text(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(kind, list) and kind[0] == "struct":
            members = merge_members(members, kind[1])
    return members


def _places(slices: Sequence[Slice]) -> list[Slice]:
    """Beginnings of segments if there are any: elsewhere the first record has to be searched for."""
    beginnings = [one for one in slices if one.start == one.base_offset] or list(slices[:1])
    step = max(1, -(-len(beginnings) // PLACES_MAX))
    return beginnings[::step]


def _values(store: ObjectStore, places: Sequence[Slice]) -> Iterator[bytes]:
    for place in places:
        taken = taken_bytes = 0
        for scanned in scan(store, [place], PLACE_BYTES):
            wanted = scanned.records[: PLACE_RECORDS_MAX - taken]
            yield from (record.value for record in wanted if record.value is not None)
            taken += len(wanted)
            taken_bytes += scanned.header.size_bytes
            if taken >= PLACE_RECORDS_MAX or taken_bytes >= PLACE_BYTES:
                break
