"""The time by the store's own clock, which dates every object of a partition.

Rewrites the hint of the manifest chain and reads its time; continues by the process's monotonic clock. Blocking.
Invariant: never ahead of the store's clock, so an age by it is never too great.
"""

from __future__ import annotations

from engine.runtime.clock import Clock
from engine.tiering.manifest.chain import write_hint
from engine.tiering.manifest.keys import latest_key
from engine.tiering.store.store import ObjectStore

_SURE_SECONDS = 24 * 3600.0  # a monotonic clock stops while its machine sleeps: then the store's time is read again


class StoreTime:
    """The clock of one store, as one process knows it. Never uses a wall clock of this machine."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._last_reading: tuple[int, float] | None = None  # the store's time, and the monotonic time when it was read

    def now_ms(self, prefix: str, generation: int) -> int | None:
        """Returns milliseconds by the store's clock; None if the written hint is gone. Raises the errors of the store.

        `generation` is the newest one of the chain below `prefix`, whose hint is written.
        """
        if self._last_reading is None or self._clock.monotonic() - self._last_reading[1] > _SURE_SECONDS:
            write_hint(self._store, prefix, generation)
            info = self._store.head(latest_key(prefix))
            self._last_reading = None if info is None else (info.modified_ms, self._clock.monotonic())
        if self._last_reading is None:
            return None
        modified_ms, read_at = self._last_reading
        return modified_ms + int((self._clock.monotonic() - read_at) * 1000)
