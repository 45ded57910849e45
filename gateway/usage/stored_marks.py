"""How long a process has led partitions since its last mark: the part of an interval that it may bill. A core.

All processes mark at the same times of the wall clock. The leader at a mark has the time since the mark before, so that
of two leaders in one minute one counts it. A partition that had no leader at a mark is not counted by others: a node
that leads it again counts the time that it was down, if no other node has led meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from msgspec import Struct

from engine.tiering.manifest.json_reading import convert, read_object

MARK_MS = 60_000
FIRST_EPOCH_MAX = 1  # of a partition that is new: 0 at a standalone node, 1 in a cluster
FORMAT = 1


class StoredMarks(Struct):
    """The last mark of a process, and the leader epochs of the partitions that it led then, by their names."""

    mark_ms: int
    epochs: dict[str, int]

    def take(self, now_ms: int, elapsed_ms: int, leads: Mapping[str, int]) -> dict[str, int]:
        """Makes a mark, and returns the milliseconds that count for each partition.

        `leads` has the leader epochs of those that the process leads now. `elapsed_ms` is the time since the mark
        before, by a clock that is not set.
        """
        found = {name: self._interval(self.epochs.get(name), epoch, elapsed_ms) for name, epoch in leads.items()}
        self.mark_ms, self.epochs = now_ms, dict(leads)
        return found

    @staticmethod
    def _interval(before: int | None, epoch: int, elapsed_ms: int) -> int:
        if before is not None and epoch - before <= 1:  # it has led since, or no other has
            return elapsed_ms
        return min(elapsed_ms, MARK_MS) if epoch > FIRST_EPOCH_MAX else 0

    def encode(self) -> bytes:
        return orjson.dumps({"format": FORMAT, "mark_ms": self.mark_ms, "epochs": self.epochs})


def decode_marks(data: bytes, path: str) -> StoredMarks:
    """Raises Corrupt, UnsupportedFormat."""
    return convert(read_object(data, path, FORMAT), StoredMarks, path)
