"""The high watermark of one partition: how far records are committed, where that is in the file, and who waits for it.

Knows no replicas: replication says how far it goes. Long polls and acknowledgements wait for the same position apart,
because the former may be ended early, to look for themselves, and the latter never.
Invariant: `place` is where the batch begins that `position` is the offset of, or the end of the log.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import Corrupt
from engine.log.batch_boundaries import BatchBoundaries, place_below
from engine.log.log import BytePosition, Log
from engine.log.segment import Segment
from engine.partition.position_waiters import PositionWaiters, acks_of
from engine.runtime.disk import WouldBlock


class HighWatermark:
    """Begins at the end of the log: a node that is alone has committed all that it has."""

    def __init__(self, log: Log) -> None:
        self.place = log.end_position
        self.polls = PositionWaiters(log.log_end)
        self.acks = PositionWaiters(log.log_end, acks_of)
        self.boundaries = BatchBoundaries()
        self.generation = (
            0  # grows when the log is cut or less of it is known: places that were looked for before are void
        )
        self.when_place_unknown: Callable[[], None] = _nothing
        self.sought: int | None = None  # the position whose place the disk is being asked for
        self._log = log

    def __repr__(self) -> str:
        return f"HighWatermark({self.position}, polls={len(self.polls)}, acks={len(self.acks)})"

    @property
    def position(self) -> int:
        return self.polls.position

    @property
    def is_waited_for(self) -> bool:
        return bool(self.polls or self.acks)

    @property
    def waiting(self) -> int:
        return len(self.polls) + len(self.acks)

    def advance(self, position: int) -> None:
        """To a position between two batches, or the last such before it.

        Where that is in the file is known for all that this life has written. For what is older the disk may have to be
        asked; then the watermark follows once it has answered.
        """
        if position <= self.position:
            return
        assert position <= self._log.log_end
        place = self.boundaries.take(position)
        if place is not None:
            self.advance_to(position, place)
        elif (found := self._found_in_memory(position)) is not None:
            self.advance_to(*found)
        elif self.sought is None:
            self.sought = position
            self.when_place_unknown()
        else:
            self.sought = max(self.sought, position)

    def advance_to(self, position: int, place: BytePosition) -> None:
        if position > self.position:
            self.place = place
            self.polls.advance(position)
            self.acks.advance(position)

    def set_back(self, position: int, place: BytePosition) -> None:
        """The log ends here now, or less is known of it. Those who poll look again; who waits for an ack goes on."""
        self.place = place
        self.cut()
        self.acks.retreat(position)
        self.polls.retreat(position)
        self.polls.wake_all()

    def cut(self) -> None:
        """The log ends here now, no earlier than what is known to be committed."""
        self.generation += 1
        self.sought = None
        self.boundaries.cut(self._log.log_end)

    def fail(self, error: Exception) -> None:
        self.polls.fail(error)
        self.acks.fail(error)

    def _found_in_memory(self, position: int) -> tuple[int, BytePosition] | None:
        if position < self._log.log_end and not self._log.segment_of(position).is_loaded:
            return None
        try:
            return place_below(self._log, position, Segment.pread_nowait)
        except (WouldBlock, OSError, Corrupt):  # who asks again in a thread is told why
            return None


def _nothing() -> None:
    """Nobody can ask the disk."""
