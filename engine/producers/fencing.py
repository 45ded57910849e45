"""Fencing tokens: what every append to one partition has to carry, once somebody has said so.

Pure: it judges and remembers. A token is set, replaced and taken back by control batches of the log itself
(engine/format/control_batch.py), so that it is as durable as the records, in one order with them, and goes where they
go. An empty token stands for none.
An append has to carry just the token that is in force, none when none is. One that sets a token carries the one that it
expects to replace, or says nothing and replaces any.
Invariants: `present` follows from the log up to its end; what is noted for a plan is in force with `commit`, gone with
`forget`. While no token is in force an append that says nothing costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.errors import FencingTokenMismatch, InvalidBatch
from engine.format.batch import Buffer, Header
from engine.format.control_batch import read_fence

TOKEN_LENGTH_MAX = 255


class Fence(NamedTuple):
    """A token, and the offset of the control batch that says so; -1: none ever did."""

    token: str
    offset: int


NO_FENCE = Fence("", -1)


class Fencing:
    """The token of one partition."""

    def __init__(self) -> None:
        self.present = NO_FENCE
        self.is_noted = False  # that the log may have a token is known to the next start
        self.kept_offset = NO_FENCE.offset  # of the latest one that is kept outside of the log
        self._noted: list[Fence] = []  # by the plan under way, in its order

    def __repr__(self) -> str:
        return f"Fencing({self.present}, noted={len(self._noted)})"

    @property
    def is_demanding(self) -> bool:
        """Whether an append that says nothing is to be refused."""
        return bool(self.present.token)

    @property
    def has_been_used(self) -> bool:
        """Whether the log may hold tokens that are, or may come to be, in force."""
        return self.present.offset >= 0

    def judge(self, name: str, header: Header, carried: str | None) -> FencingTokenMismatch | None:
        """Whether the append may pass as far as tokens go. `carried` is what it says: None is nothing."""
        if header.is_control and carried is None:
            return None
        latest = self._noted[-1].token if self._noted else self.present.token
        if (carried or "") == latest:
            return None
        demanded = "another fencing token is in force" if latest else "no fencing token is in force"
        return FencingTokenMismatch(f"{name}: {demanded}", fencing_token=latest or None)

    def note(self, batch: Buffer, offset: int) -> None:
        """This control batch is part of the plan, at this offset."""
        token = read_fence(batch)
        if token is not None:
            self._noted.append(Fence(token, offset))

    def commit(self, below: int | None = None) -> None:
        """What the plan says is in the log, as far as this offset, or all of it."""
        count = len(self._noted) if below is None else sum(fence.offset < below for fence in self._noted)
        if count:
            self.present = self._noted[count - 1]
            del self._noted[:count]

    def forget(self) -> None:
        """What is noted and not committed never happened."""
        self._noted.clear()

    def replay(self, batch: Buffer, offset: int) -> None:
        """Take note of a control batch that is in the log. One that cannot be understood is no token."""
        try:
            self.note(batch, offset)
        except InvalidBatch:
            return
        self.commit()

    def restore(self, fence: Fence) -> None:
        """Begin with what was saved."""
        self.present = fence

    def restore_kept(self, kept: Fence) -> None:
        """There is a note, and this is what the log has let go of, if it is not known already."""
        self.is_noted, self.kept_offset = True, kept.offset
        if kept.offset > self.present.offset:
            self.present = kept
