"""What a replica knows of who wrote which part of its log: pure functions over the starts of leader epochs.

No file and no log: engine/log/leader_epochs.py keeps the starts durable, replication's cores ask these functions. Cases
and names are those of Kafka's LeaderEpochFileCache (KIP-101, KIP-279).
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
    """Where the records of an epoch, or of the nearest one below it that is known, end in one replica's log."""

    epoch: int
    end_offset: int


def with_epoch(epochs: list[EpochStart], epoch: int, start_offset: int) -> list[EpochStart]:
    """Kafka's assign: what is known changes nothing; a newer epoch takes the place of starts at or after its own."""
    if epochs and epoch <= epochs[-1].epoch:
        return epochs
    return [*(known for known in epochs if known.start_offset < start_offset), EpochStart(epoch, start_offset)]


def assigned(epochs: Sequence[EpochStart], epoch: int, start_offset: int) -> list[EpochStart]:
    """What a replica knows once records of `epoch` begin at `start_offset`, whoever wrote there before.

    Unlike with_epoch this may replace a newer epoch: one that has left no record here, as after a power loss.
    """
    if epochs and epochs[-1].epoch == epoch:
        return list(epochs)
    kept = [known for known in epochs if known.epoch <= epoch and known.start_offset < start_offset]
    if kept and kept[-1].epoch == epoch:
        return kept  # its records go on here: what is dropped had left none
    return [*kept, EpochStart(epoch, start_offset)]


def end_offset_for(epochs: Sequence[EpochStart], requested: int, log_end: int) -> EpochEnd | None:
    """Kafka's endOffsetFor, the answer of KIP-101 and KIP-279; None where nothing can be said.

    1. The newest epoch ends where the log does. 2. Any other ends where the first greater one begins; it is told with
    the greatest epoch that is known and not above it. 3. Below all that is known: as asked, and where those begin.
    """
    if not epochs or not 0 <= requested <= epochs[-1].epoch:
        return None
    if requested == epochs[-1].epoch:
        return EpochEnd(requested, log_end)
    at = bisect_right(epochs, requested, key=attrgetter("epoch"))
    floor = epochs[at - 1].epoch if at else requested
    return EpochEnd(floor, epochs[at].start_offset)


def epoch_before(epochs: Sequence[EpochStart], offset: int) -> int:
    """The epoch of the record before an offset; -1 when it is not known."""
    at = bisect_right(epochs, offset - 1, key=attrgetter("start_offset"))
    return epochs[at - 1].epoch if at else -1


def truncated_from_end(epochs: Sequence[EpochStart], log_end: int) -> list[EpochStart]:
    """What is left once the log ends here: an epoch without a record says nothing."""
    return [known for known in epochs if known.start_offset < log_end]


def truncated_from_start(epochs: Sequence[EpochStart], log_start: int) -> list[EpochStart]:
    """What is left once the log starts here: the epoch that was under way there and the later ones.

    Unlike Kafka's this leaves the first start where it is. Moved to log_start, which may lie within a batch, it would
    be told to a follower as the place to cut at, and no batch begins there.
    """
    at = bisect_right(epochs, log_start, key=attrgetter("start_offset"))
    return list(epochs[max(0, at - 1) :])
