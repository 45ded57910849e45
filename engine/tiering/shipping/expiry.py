"""Computes how far the store may expire: runs without local copies that are older or more than the topic keeps.

Blocking; asks the store for nothing while the oldest entry stays the same and is kept. engine/cleaning/retention.py
expires segments on the disk. Only the log raises log_start: this computes how far it may be raised.
Age counts from the upload and is the store's alone: the time of the object, of a merged one that of its last source,
against the time of one just written
(engine/tiering/manifest/store_time.py). `arrived_ms` of an entry comes from the clock of the node that led then, and is
not used (docs/decisions/0014). Invariants: oldest first, whole objects, and none that the disk still has.
Runs that a registered job has not committed may wait (job_holds.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from engine.tiering.manifest.chain import iter_entries, load_sub_manifest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry
from engine.tiering.shipping.job_holds import Hold, held_from
from engine.tiering.shipping.local_log import LocalLog
from engine.tiering.store.store import ObjectStore

_READS_MAX = 1000  # objects per pass, each a HEAD for its time: 20 s or so; later passes take the rest

StoreNow = Callable[[], int | None]  # milliseconds by the store's clock; None if it is unknown
Holds = Callable[[], Sequence[Hold]]  # of the partition's jobs


class StoreExpiry:
    """Expires one partition in repeated passes; remembers its oldest entry that can still be read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        # the first run's key, and the log_start that the fields below are for
        self._seen: tuple[str, int] | None = None
        self._oldest: ManifestEntry | None = None
        self._dead_bytes = 0  # of entries of the first run below log_start: a folded range expires as a whole
        self._uploaded: tuple[str, int] | None = None  # the last queried object, and its time

    def is_due(self, manifest: Manifest, local: LocalLog) -> bool:
        """True if `expired_end` could find anything; no request to the store."""
        is_bounded = local.retention_ms is not None or local.retention_bytes is not None
        return is_bounded and bool(manifest.folded or manifest.entries) and manifest.base_offset < local.local_log_start

    def expired_end(self, manifest: Manifest, local: LocalLog, store_now: StoreNow, holds: Holds = tuple) -> int | None:
        """Returns the end below which the store may delete everything; None without any. Raises errors of the store."""
        self._load_oldest(manifest)
        if self._oldest is None:
            return None
        is_timed = local.retention_ms is not None or local.wait_max_ms is not None
        now_ms = store_now() if is_timed else None
        kept_bytes = manifest.data_bytes - self._dead_bytes + local.bytes_from(manifest.end_offset)
        if self._has_expired(self._oldest, kept_bytes, local, now_ms) is False:
            return None
        held = None if local.wait_max_ms is None else held_from(holds(), now_ms, local.wait_max_ms)
        if self._is_waiting(self._oldest, held, kept_bytes, local, now_ms):
            return None
        end = None
        for entry in islice(iter_entries(self._store, manifest, manifest.log_start), _READS_MAX):
            has_expired = self._has_expired(entry, kept_bytes, local, now_ms)
            if has_expired is False or self._is_waiting(entry, held, kept_bytes, local, now_ms):
                break
            kept_bytes -= entry.size_bytes
            end = entry.end_offset if has_expired else end
        return end

    def _is_waiting(
        self, entry: ManifestEntry, held: int | None, kept_bytes: int, local: LocalLog, now_ms: int | None
    ) -> bool:
        """True if an expired run waits for a job that has not committed all of it. A missing object does not wait."""
        if held is None or entry.end_offset <= held:
            return False
        uploaded_ms = self._upload_time(entry)
        if uploaded_ms is None or now_ms is None:
            return uploaded_ms is not None
        assert local.wait_max_ms is not None
        is_too_much = local.retention_bytes is not None and kept_bytes - entry.size_bytes >= local.retention_bytes
        waits_from_ms = uploaded_ms + (0 if is_too_much else local.retention_ms or 0)
        return now_ms - waits_from_ms <= local.wait_max_ms

    def _has_expired(self, entry: ManifestEntry, kept_bytes: int, local: LocalLog, now_ms: int | None) -> bool | None:
        """Returns None for a missing object: the next one, which is younger, decides."""
        if entry.end_offset > local.local_log_start:
            return False
        if local.retention_bytes is not None and kept_bytes - entry.size_bytes >= local.retention_bytes:
            return True
        if local.retention_ms is None or now_ms is None:
            return False
        uploaded_ms = self._upload_time(entry)
        return None if uploaded_ms is None else now_ms - uploaded_ms > local.retention_ms

    def _upload_time(self, entry: ManifestEntry) -> int | None:
        if entry.stored_ms is not None:
            return entry.stored_ms
        if self._uploaded is None or self._uploaded[0] != entry.key:
            info = self._store.head(entry.key)
            if info is None:
                return None
            self._uploaded = (entry.key, info.modified_ms)
        return self._uploaded[1]

    def _load_oldest(self, manifest: Manifest) -> None:
        first = (manifest.folded or manifest.entries)[0]
        if self._seen == (first.key, manifest.log_start):
            return
        self._dead_bytes = 0
        self._oldest = None
        for entry in self._entries_of_first(manifest):
            if entry.end_offset > manifest.log_start:
                self._oldest = entry
                break
            self._dead_bytes += entry.size_bytes
        self._seen = (first.key, manifest.log_start)

    def _entries_of_first(self, manifest: Manifest) -> Iterator[ManifestEntry]:
        if manifest.folded:
            yield from load_sub_manifest(self._store, manifest.folded[0]).entries
        else:
            yield manifest.entries[0]
