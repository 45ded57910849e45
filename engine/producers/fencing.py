"""Fencing tokens: what every append to one partition must carry, once a client has set one.

Pure: judges and remembers. Control batches of the log itself set, replace and remove a token
(engine/format/control_batch.py), so it is as durable as the records, in one order with them, and replicated and tiered
with them. An empty token means none.
An append must carry exactly the current token, or none if there is none. One that sets a token carries the one that it
expects to replace, or carries nothing and replaces any.
Invariants: `present` follows from the log up to its end; `commit` applies the notes of a plan, `discard_staged`
drops them. Without a current token an append without one costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.errors import FencingTokenMismatch, InvalidBatch
from engine.format.batch import Buffer, Header
from engine.format.control_batch import read_fence


class Fence(NamedTuple):
    """A token, and the offset of the control batch that set it; -1 if none ever did."""

    token: str
    offset: int


NO_FENCE = Fence("", -1)


class Fencing:
    """The token of one partition."""

    def __init__(self) -> None:
        self.present = NO_FENCE
        self.is_noted = False  # the note for the next start is written
        self.kept_offset = NO_FENCE.offset  # of the latest fence stored outside of the log
        self._staged: list[Fence] = []  # by the plan in progress, in its order

    def __repr__(self) -> str:
        return f"Fencing({self.present}, noted={len(self._staged)})"

    @property
    def has_been_used(self) -> bool:
        """True if the log may hold tokens that are, or may become, current."""
        return self.present.offset >= 0

    @property
    def is_in_use(self) -> bool:
        """True if an append without a token may be rejected, or one with a token accepted."""
        return bool(self._staged or self.present.token)

    def validate(self, name: str, header: Header, carried: str | None) -> FencingTokenMismatch | None:
        """Judges the token of an append. `carried` is its token or None. Returns the error, or None to accept."""
        if header.is_control and carried is None:
            return None
        latest = self._staged[-1].token if self._staged else self.present.token
        if (carried or "") == latest:
            return None
        demanded = "the partition has another fencing token" if latest else "the partition has no fencing token"
        return FencingTokenMismatch(f"{name}: {demanded}", fencing_token=latest or None)

    def stage(self, batch: Buffer, offset: int) -> None:
        """Notes a control batch of the plan, at this offset."""
        token = read_fence(batch)
        if token is not None:
            self._staged.append(Fence(token, offset))

    def commit(self, below: int | None = None) -> None:
        """Applies the plan's notes below an offset, or all of them."""
        count = len(self._staged) if below is None else sum(fence.offset < below for fence in self._staged)
        if count:
            self.present = self._staged[count - 1]
            del self._staged[:count]

    def discard_staged(self) -> None:
        """Drops the uncommitted notes."""
        self._staged.clear()

    def replay(self, batch: Buffer, offset: int) -> None:
        """Applies a control batch of the log. One that cannot be decoded is ignored."""
        try:
            self.stage(batch, offset)
        except InvalidBatch:
            return
        self.commit()

    def restore(self, fence: Fence) -> None:
        """Begins with a saved fence."""
        self.present = fence

    def restore_saved(self, saved: Fence) -> None:
        """Applies the note beside the log: a fence whose batch was deleted, unless a later one is known."""
        self.is_noted, self.kept_offset = True, saved.offset
        if saved.offset > self.present.offset:
            self.present = saved
