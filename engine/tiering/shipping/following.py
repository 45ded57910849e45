"""What a node that does not lead a partition learns of it from the store: how far the leader has shipped.

Reads only, and seldom: a look costs a LIST, and a node may follow thousands of partitions. So it looks while this disk
has a sealed segment that the manifest has not been seen to reach, at most every `_PAUSE_S`, and not at all otherwise.
Blocking is the caller's affair: `look` is to be run in a thread.
"""

from __future__ import annotations

from engine.runtime.clock import Clock
from engine.tiering.manifest.chain import load_newest
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.shipping.local_log import LocalLog
from engine.tiering.store.store import ObjectStore

_PAUSE_S = 30.0  # the leader ships within seconds of a roll; local copies stay that much longer here


class ManifestWatch:
    """Remembers the newest manifest seen and when to look again."""

    def __init__(self, store: ObjectStore, prefix: str, clock: Clock) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._looked_at: float | None = None

    def is_due(self, seen: Manifest | None, local: LocalLog) -> bool:
        """Whether a look could let this disk delete anything; asks nobody."""
        if not local.sealed or (seen is not None and seen.end_offset >= local.sealed_end):
            return False
        return self._looked_at is None or self._clock.monotonic() - self._looked_at >= _PAUSE_S

    def look(self) -> Manifest | None:
        """The newest manifest. Raises what the store raises; then the next look is as far away as after an answer."""
        self._looked_at = self._clock.monotonic()
        return load_newest(self._store, self._prefix)
