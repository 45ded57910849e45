"""Removes old manifests and orphans of one partition from the store, now and then. Blocking but for `is_due`.

Decides only when; garbage_collection.py decides what. For the shipper of its leader.
"""

from __future__ import annotations

from engine.runtime.clock import Clock
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.shipping.garbage_collection import remove_expired_roots, remove_orphans
from engine.tiering.store.store import ObjectStore

DAY_SECONDS = 24 * 3600.0


class StoreUpkeep:
    """Counts commits, after which old roots are removed; looks for orphans once a day, first after `first_s`."""

    def __init__(self, store: ObjectStore, prefix: str, clock: Clock, commits_max: int, first_s: float) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._commits_max = commits_max
        self._commits = 0
        self._orphans_due = clock.monotonic() + first_s

    def note_commit(self) -> None:
        self._commits += 1

    def is_due(self) -> bool:
        """True if `clean` would send requests to the store."""
        return self._commits >= self._commits_max or self._clock.monotonic() >= self._orphans_due

    def clean(self, manifest: Manifest) -> None:
        """Remove old roots, and orphans once a day. `manifest` is the newest. Raises errors of the store."""
        now_ms = self._clock.now_ms()
        remove_expired_roots(self._store, self._prefix, now_ms)
        self._commits = 0
        if self._clock.monotonic() >= self._orphans_due:
            remove_orphans(self._store, manifest, now_ms)
            self._orphans_due = self._clock.monotonic() + DAY_SECONDS
