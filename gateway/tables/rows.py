"""Chooses the records of a part of a log that are rows of its table. Pure.

A record is a row if it is the last one of its key below `end`. The index may already be ahead of `end`: a key that has
a later record there may have its row below `end` anywhere, so all its records are kept, and the reader takes the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.format.batch import Record


def rows_of(
    records: Sequence[Record], last_offset: Callable[[bytes], int | None], end: int, *, with_deletes: bool
) -> list[Record]:
    """Returns the rows among records; with `with_deletes` also the last records of deleted keys."""
    rows = []
    for record in records:
        if record.key is None or record.offset >= end:
            continue
        last = last_offset(bytes(record.key))
        is_last = last == record.offset and (with_deletes or record.value is not None)
        if is_last or (last is not None and last >= end):
            rows.append(record)
    return rows
