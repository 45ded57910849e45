"""The damaged records of a sealed segment, and how reads skip them.

Does not find (engine/cleaning/segment_check.py does) or repair damage. Stored beside the segment as a small file, so
that it survives a restart. Invariant: damages ascend, do not touch, and begin and end between batches, as far as the
file has any; records within one are never served.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.errors import Damaged
from engine.format.small_file import read_rows, rows_as_text

_HEADER = "penstock quarantine 1"


class Damage(NamedTuple):
    """A range of offsets, and the bytes of the segment file where they were."""

    start_offset: int
    end_offset: int
    start_position: int
    end_position: int


def merged(damages: Iterable[Damage]) -> tuple[Damage, ...]:
    """Merges neighbours."""
    merged_damages: list[Damage] = []
    for damage in damages:
        if merged_damages and merged_damages[-1].end_offset == damage.start_offset:
            last = merged_damages.pop()
            damage = Damage(last.start_offset, damage.end_offset, last.start_position, damage.end_position)
        merged_damages.append(damage)
    return tuple(merged_damages)


def check_undamaged(damages: Iterable[Damage], offset: int, path: str) -> None:
    """Raises Damaged for an offset that must not be served."""
    for damage in damages:
        if damage.start_offset <= offset < damage.end_offset:
            raise damaged(damage.start_offset, damage.end_offset, f"in {path} are damaged")


def damaged(start_offset: int, end_offset: int, what: str) -> Damaged:
    """Makes the error for a range of offsets; `what` names the damage."""
    return Damaged(
        f"offsets {start_offset} to {end_offset - 1} {what}",
        hint=f"go on at {end_offset}, or have them restored",
        damaged_from=start_offset,
        damaged_end=end_offset,
    )


def start_after(damages: Iterable[Damage], offset: int, start: int, start_offset: int) -> tuple[int, int]:
    """Return where to read for an undamaged offset, as (position, base offset): not before the last damage below it."""
    for damage in damages:
        if start_offset < damage.end_offset <= offset:
            start, start_offset = damage.end_position, damage.end_offset
    return start, start_offset


def end_before(damages: Iterable[Damage], offset: int, end: int, next_offset: int) -> tuple[int, int]:
    """Returns where a read for an undamaged offset ends, as (position, next offset): before the next damage.

    Both the bytes and the offsets bound it: damage has no bytes where the file was cut off between two batches, and no
    offsets where bytes follow the last batch.
    """
    for damage in damages:
        if damage.start_offset > offset and (damage.start_offset < next_offset or damage.start_position < end):
            return damage.start_position, damage.start_offset
    return end, next_offset


def encode_quarantine(damages: Iterable[Damage]) -> bytes:
    return rows_as_text(_HEADER, [" ".join(map(str, damage)) for damage in damages])


def decode_quarantine(data: bytes | None, base_offset: int, end_offset: int, size_bytes: int) -> tuple[Damage, ...]:
    """Decodes a quarantine file; an unreadable one quarantines the whole segment. Empty without a file."""
    if data is None:
        return ()
    rows = read_rows(_HEADER, data)
    try:
        return tuple(Damage(*map(int, row)) for row in rows or _NONE)
    except (ValueError, TypeError):
        return (Damage(base_offset, end_offset, 0, size_bytes),)


_NONE = [["unreadable"]]
