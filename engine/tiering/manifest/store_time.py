"""What time it is by the store's own clock: the one clock that every object of a partition is dated by.

Writes the hint of the manifest chain again and looks at its time; counts on by the process's monotonic clock. Blocking.
Invariant: never ahead of the store's clock, so an age that is measured by it is never too great.
"""

from __future__ import annotations

from engine.runtime.clock import Clock
from engine.tiering.manifest.chain import write_hint
from engine.tiering.manifest.keys import latest_key
from engine.tiering.store.store import ObjectStore

_SURE_SECONDS = 24 * 3600.0  # a monotonic clock stands still while its machine sleeps: the store is asked again


class StoreTime:
    """The clock of one store, as one process knows it. A wall clock of this machine is never asked."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: tuple[int, float] | None = None  # the store's time, and the monotonic time when it was read

    def now_ms(self, prefix: str, generation: int) -> int | None:
        """Milliseconds by the store's clock; None when what was just written is gone. Raises what the store raises.

        `generation` is the newest one of the chain below `prefix`, whose hint is written.
        """
        if self._known is None or self._clock.monotonic() - self._known[1] > _SURE_SECONDS:
            write_hint(self._store, prefix, generation)
            found = self._store.head(latest_key(prefix))
            self._known = None if found is None else (found.modified_ms, self._clock.monotonic())
        if self._known is None:
            return None
        modified_ms, read_at = self._known
        return modified_ms + int((self._clock.monotonic() - read_at) * 1000)
