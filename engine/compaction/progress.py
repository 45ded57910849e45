"""How far a log is compacted: the file `cleaned` of a partition.

Below `cleaned_end` no key has two records. A round is a compaction that had reached an offset at a time: a tombstone
below it deleted every older record of its key then, and goes `delete_retention_ms` later (Kafka's delete horizon, kept
here per round and not in each batch). Derived: without the file the whole log is compacted again, and tombstones stay
longer.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import write_without_room
from engine.runtime.disk import Disk, read_file

_HEADER = "penstock cleaned 1"
GONE = -1  # in place of a time; an earlier version compacts once more for it
_ROUNDS_MAX = 64  # more become fewer: a tombstone then stays longer by a 64th of the retention at most


class Round(NamedTuple):
    """Every replica was compacted below `end` at `at_ms`, on the clock that never steps. GONE: so are tombstones."""

    end: int
    at_ms: int


class Progress(NamedTuple):
    """The compacted part of a log, and the rounds whose tombstones are still there, oldest first."""

    cleaned_end: int = 0
    rounds: tuple[Round, ...] = ()

    def tombstones_expired_below(self, now_ms: int, delete_retention_ms: int) -> int:
        """Returns the offset below which readers have had the time to see every tombstone."""
        waiting = (dated for dated in self.rounds if dated.at_ms != GONE)
        return max((dated.end for dated in waiting if now_ms - dated.at_ms >= delete_retention_ms), default=0)

    def after_round(self, end: int, *, expired_below: int) -> Progress:
        """Returns the progress after a round to `end` that removed the tombstones below `expired_below`."""
        left = [dated for dated in self.rounds if dated.end > expired_below]
        if expired_below > 0:
            left.insert(0, Round(expired_below, GONE))
        return Progress(max(end, self.cleaned_end), tuple(left))

    def with_all(self, compacted_by_all: int, now_ms: int, delete_retention_ms: int) -> Progress:
        """Returns the progress when every replica is known to be compacted below an offset."""
        end, left = min(compacted_by_all, self.cleaned_end), list(self.rounds)
        if end <= (left[-1].end if left else 0):
            return self
        if len(left) >= _ROUNDS_MAX and 0 <= now_ms - left[-1].at_ms < delete_retention_ms // _ROUNDS_MAX:
            left.pop()
        return Progress(self.cleaned_end, (*left[-2 * _ROUNDS_MAX :], Round(end, now_ms)))

    def truncated(self, log_end: int) -> Progress:
        """Returns the progress of a log that ends there: other records may follow."""
        if self.cleaned_end <= log_end:
            return self
        return Progress(log_end, tuple(dated for dated in self.rounds if dated.end <= log_end))


def load_progress(disk: Disk, directory: str) -> Progress:
    """Returns the saved progress; that of a log never compacted if the file is absent or in doubt. Raises OSError."""
    rows = read_rows(_HEADER, read_file(disk, os.path.join(directory, paths.CLEANED)))
    try:
        numbers = [[int(number) for number in row] for row in rows or []]
        ((cleaned_end,), *rounds) = numbers
        return Progress(cleaned_end, tuple(Round(end, at_ms) for end, at_ms in rounds))
    except ValueError:
        return Progress()


def lower_progress(disk: Disk, directory: str, log_end: int) -> None:
    """Saves the progress of a log that ends there from now on: the records that follow are others. Raises OSError."""
    progress = load_progress(disk, directory)
    if progress.truncated(log_end) != progress:
        save_progress(disk, directory, progress.truncated(log_end))


def save_progress(disk: Disk, directory: str, progress: Progress) -> None:
    """Saves the progress durably. Raises OSError."""
    rows = [str(progress.cleaned_end), *(f"{dated.end} {dated.at_ms}" for dated in progress.rounds)]
    write_without_room(disk, os.path.join(directory, paths.CLEANED), rows_as_text(_HEADER, rows))
