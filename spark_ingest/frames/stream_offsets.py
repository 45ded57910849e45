"""The offsets of a stream: how far each partition is read, and how many records of the next batch are admitted. Pure.

Spark keeps an offset as JSON in the checkpoint, before the batch that ends there. A batch is therefore a function of
two offsets, and a replay reads the same records.

    {"started": true, "topics": {"flights": {"topic_id": "ab…", "ends": {"0": 120}}}, "lost": {"retention": 5}}

The offset of a new query is `{}`. Its first batch is empty and ends where the query starts to read: the checkpoint has
the start from then on, however the store changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from spark_ingest.plan import RETENTION, Ended, Lost, Positions, positions_from
from spark_ingest.progress import Progress


class StreamOffset(msgspec.Struct, frozen=True):
    """`topics` has the first offset that is not read, of each partition; `lost` the skipped records by reason.

    `ended` has earlier ids, as in Progress; None in offsets of releases that did not look for them.
    """

    started: bool = False
    topics: Positions = {}
    lost: dict[str, int] = {}
    ended: Ended | None = None

    @property
    def progress(self) -> Progress:
        return Progress(self.topics, self.ended or {}, self.ended is not None)


class Unread(NamedTuple):
    """Offsets `start` to `end` (exclusive) of a partition, and the bytes of their segments."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    size_bytes: int

    @property
    def records(self) -> int:
        return self.end - self.start


def from_json(document: dict[str, Any]) -> StreamOffset:
    """Converts an offset of Spark's. Raises msgspec.ValidationError."""
    return msgspec.convert(document, StreamOffset, str_keys=True)


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """Converts an offset for Spark, which compares the text."""
    document: dict[str, Any] = msgspec.to_builtins(offset, str_keys=True, order="deterministic")
    return document if document["ended"] is not None else {k: v for k, v in document.items() if k != "ended"}


def admitted(unread: Sequence[Unread], records_max: int | None, bytes_max: int | None) -> list[Unread]:
    """Returns the same share of each partition's unread records, so that none falls behind; one record at least.

    Records are counted by their offsets, and bytes as if all records of a partition had one size.
    """
    records, size_bytes = sum(entry.records for entry in unread), sum(entry.size_bytes for entry in unread)
    share = Fraction(1)
    if records_max is not None and records:
        share = min(share, Fraction(records_max, records))
    if bytes_max is not None and size_bytes:
        share = min(share, Fraction(bytes_max, size_bytes))
    taken = [entry._replace(end=entry.start + int(entry.records * share)) for entry in unread]
    if records and not any(unread.records for unread in taken):
        at = max(range(len(unread)), key=lambda at: unread[at].records)
        taken[at] = unread[at]._replace(end=unread[at].start + 1)
    return [unread for unread in taken if unread.records]


def advanced(
    start: StreamOffset, taken: Iterable[Unread], lost: Sequence[Lost], settled: Mapping[str, Sequence[str]]
) -> StreamOffset:
    """Returns the offset after a batch, behind the lost records. `settled` as in Progress."""
    behind = [(loss.topic, loss.topic_id, loss.partition, loss.end or 0) for loss in lost if loss.reason == RETENTION]
    read = [(unread_part.topic, unread_part.topic_id, unread_part.partition, unread_part.end) for unread_part in taken]
    after = start.progress.advanced(
        positions_from([*behind, *read]), [loss for loss in lost if loss.reason != RETENTION], settled
    )
    counts = Counter(start.lost)
    for lost_part in lost:
        counts[lost_part.reason] += lost_part.records or 0
    return StreamOffset(True, after.positions, dict(counts), after.ended)
