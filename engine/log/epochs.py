"""Pure functions over the starts of a replica's leader epochs.

engine/log/leader_epochs.py keeps the starts durable, replication's cores call these functions. Cases and names are
those of Kafka's LeaderEpochFileCache (KIP-101, KIP-279).
Invariant of every list here: epochs and start offsets both strictly increase.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The end of an epoch's records, or of the nearest known epoch below it, in one replica's log."""

    epoch: int
    end_offset: int


def with_epoch(epochs: list[EpochStart], epoch: int, start_offset: int) -> list[EpochStart]:
    """Assign as Kafka does: a known epoch changes nothing; a newer epoch replaces starts at or after its own."""
    if epochs and epoch <= epochs[-1].epoch:
        return epochs
    return [*(earlier for earlier in epochs if earlier.start_offset < start_offset), EpochStart(epoch, start_offset)]


def assigned(epochs: Sequence[EpochStart], epoch: int, start_offset: int) -> list[EpochStart]:
    """Returns the starts once records of `epoch` begin at `start_offset`, whatever epochs were there before.

    Unlike with_epoch this may replace a newer epoch without a record here, as after a power loss.
    """
    if epochs and epochs[-1].epoch == epoch:
        return list(epochs)
    lower = [earlier for earlier in epochs if earlier.epoch <= epoch and earlier.start_offset < start_offset]
    if lower and lower[-1].epoch == epoch:
        return lower  # its records continue here: the dropped epochs had none
    return [*lower, EpochStart(epoch, start_offset)]


def end_offset_for(epochs: Sequence[EpochStart], requested: int, log_end: int) -> EpochEnd | None:
    """Returns the end offset of an epoch as Kafka's endOffsetFor does (KIP-101, KIP-279); None if unknown.

    1. The newest epoch ends at the log end. 2. Any other ends where the first greater one begins; the answer names the
    greatest known epoch that is not above it. 3. Below all known epochs: the requested epoch, and the first known
    start.
    """
    if not epochs or not 0 <= requested <= epochs[-1].epoch:
        return None
    if requested == epochs[-1].epoch:
        return EpochEnd(requested, log_end)
    at = bisect_right(epochs, requested, key=attrgetter("epoch"))
    floor = epochs[at - 1].epoch if at else requested
    return EpochEnd(floor, epochs[at].start_offset)


def epoch_before(epochs: Sequence[EpochStart], offset: int) -> int:
    """Returns the epoch of the record before an offset; -1 if it is unknown."""
    at = bisect_right(epochs, offset - 1, key=attrgetter("start_offset"))
    return epochs[at - 1].epoch if at else -1


def truncated_from_end(epochs: Sequence[EpochStart], log_end: int) -> list[EpochStart]:
    """Returns the starts below the log end: drops epochs without a record."""
    return [earlier for earlier in epochs if earlier.start_offset < log_end]


def truncated_from_start(epochs: Sequence[EpochStart], log_start: int) -> list[EpochStart]:
    """Returns the starts of a log that begins at `log_start`: the epoch in progress there and the later ones.

    Unlike Kafka's this does not change the first start. Moved to log_start, which may be within a batch, it would send
    a follower to truncate at an offset where no batch begins.
    """
    at = bisect_right(epochs, log_start, key=attrgetter("start_offset"))
    return list(epochs[max(0, at - 1) :])
