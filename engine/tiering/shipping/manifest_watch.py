"""Watches how far the leader has shipped a partition, on a node that does not lead it.

Reads only, and seldom: a check costs a LIST, and a node may follow thousands of partitions. So it checks while this
disk has a sealed segment beyond the last seen manifest, at most every `_PAUSE_S`, and not at all otherwise.
`poll` blocks: callers run it in a thread.
"""

from __future__ import annotations

from engine.runtime.clock import Clock
from engine.tiering.manifest.chain import load_newest
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.shipping.local_log import LocalLog
from engine.tiering.store.store import ObjectStore

_PAUSE_S = 30.0  # the leader ships within seconds of a roll; local copies stay that much longer here


class ManifestWatch:
    """Remembers the newest manifest seen and when to check again."""

    def __init__(self, store: ObjectStore, prefix: str, clock: Clock) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._polled_at: float | None = None

    def is_due(self, seen: Manifest | None, local: LocalLog) -> bool:
        """True if a check could allow this disk to delete anything; no request to the store."""
        if not local.sealed or (seen is not None and seen.end_offset >= local.sealed_end):
            return False
        return self._polled_at is None or self._clock.monotonic() - self._polled_at >= _PAUSE_S

    def poll(self) -> Manifest | None:
        """Look for the newest manifest. Raises the errors of the store, which also start the pause."""
        self._polled_at = self._clock.monotonic()
        return load_newest(self._store, self._prefix)
