"""The lifecycle of a process as requests see it: ready, draining, refusing."""

from __future__ import annotations

from engine.errors import Draining
from engine.partition.high_watermark import PositionWaiters

DRAINING = 1  # the end of `Lifecycle.draining` once the process drains


class Lifecycle:
    """Starts ready. Draining ends long polls and streams; refusing also rejects new work."""

    def __init__(self, *, is_ready: bool = True) -> None:
        self.is_ready = is_ready
        self._asked_at: float | None = None
        self.is_refusing = False
        self.is_draining = False
        self.draining = PositionWaiters(0)  # waits for DRAINING end when the process begins to drain

    def ready(self) -> None:
        self.is_ready = True

    def ready_s(self, now: float) -> float:
        """Returns the seconds since the first call; probes begin to call when the process is ready."""
        if self._asked_at is None:
            self._asked_at = now
        return now - self._asked_at

    def check_accepting(self) -> None:
        """Raises Draining once new work is refused."""
        if self.is_refusing:
            raise Draining("the node is stopping")

    def drain(self) -> None:
        """Ends all waits for draining. Work is still accepted."""
        self.is_draining = True
        self.draining.advance(DRAINING)
