"""Garbage collection of the store: manifests long superseded, and objects that no manifest names.

The promise to readers: the objects of a manifest stay for a day after it was superseded. So a root is removed a day
after its successor came, and an object only if neither the newest root nor the oldest kept one names it; an object that
came and went between those two is younger than a day, and objects that young are never touched.

Age is the store's own clock (`modified_ms`) against a time that the caller takes from a Clock; a day is far more than
their skew, and than any upload takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from engine.format.paths import store_manifest_prefix, store_topic_prefix
from engine.runtime.clock import Clock
from engine.tiering.manifest.chain import load_generation, load_newest, load_sub_manifest
from engine.tiering.manifest.deleted_topic import LogRanges, mark_deleted
from engine.tiering.manifest.keys import base_offset_of, generation_of, is_own
from engine.tiering.manifest.manifest import Manifest
from engine.tiering.store.store import ObjectInfo, ObjectStore

DAY_SECONDS = 24 * 3600.0
GRACE_MS = 24 * 3600 * 1000  # longer than any reader keeps a manifest, and than any upload takes


def expired_roots(prefix: str, listed: Iterable[ObjectInfo], now_ms: int, grace_ms: int = GRACE_MS) -> Iterator[str]:
    """Yields the keys of roots that were superseded more than `grace_ms` ago, oldest first.

    `listed` is a LIST of the manifests in key order, and is read no further than needed. A root's age counts from its
    successor's creation: until then it was the newest, and a reader may have loaded it a moment before. The newest root
    never expires.
    """
    older: str | None = None
    for info in listed:
        if generation_of(prefix, info.key) is None:
            continue
        if older is not None:
            if now_ms - info.modified_ms <= grace_ms:
                return
            yield older
        older = info.key


def remove_expired_roots(
    store: ObjectStore, prefix: str, now_ms: int, limit: int = 1000, grace_ms: int = GRACE_MS
) -> int:
    """Deletes expired roots, at most `limit`; returns how many."""
    listed = store.list(store_manifest_prefix(prefix))
    expired = [key for key, _ in zip(expired_roots(prefix, listed, now_ms, grace_ms), range(limit), strict=False)]
    for key in expired:
        store.delete(key)
    return len(expired)


def find_orphans(store: ObjectStore, newest: Manifest, now_ms: int, grace_ms: int = GRACE_MS) -> Iterator[ObjectInfo]:
    """Yields objects of a partition that no kept manifest names, and older than `grace_ms`.

    Crashes between upload and commit, lost races, merges, and a raised log_start leave them. Excludes roots and the
    hint.
    """
    named: set[str] = set()
    _add_names(store, newest, named)
    for generation in kept_generations(
        newest.prefix, [*store.list(store_manifest_prefix(newest.prefix))], now_ms, grace_ms
    ):
        if generation < newest.generation:
            _add_names(store, load_generation(store, newest.prefix, generation), named)
    for info in store.list(newest.prefix):
        is_old = now_ms - info.modified_ms > grace_ms
        base_offset = base_offset_of(newest.prefix, info.key)
        if is_old and info.key not in named and base_offset is not None and base_offset < newest.end_offset:
            yield info


def kept_generations(prefix: str, listed: Sequence[ObjectInfo], now_ms: int, grace_ms: int = GRACE_MS) -> Sequence[int]:
    """Returns the generations of the oldest root, and of the oldest one that has not expired.

    The objects that a root between them and the newest has named, and neither of them, are younger than a day, or
    were dropped more than a day ago.
    """
    expired = set(expired_roots(prefix, listed, now_ms, grace_ms))
    roots = [(number, info.key) for info in listed if (number := generation_of(prefix, info.key)) is not None]
    unexpired = (number for number, key in roots if key not in expired)
    return sorted({number for number, _ in roots[:1]} | {*islice(unexpired, 1)})


def remove_orphans(store: ObjectStore, mine: Manifest, now_ms: int, grace_ms: int = GRACE_MS) -> int:
    """Deletes the orphans, if the caller's manifest is still the newest after the search; returns how many.

    The order makes it safe against a newer leader: an old, unnamed object of the time when our manifest was the newest
    can never be named again, since leaders name only objects that they have uploaded themselves, and all older leaders
    are fenced.
    """
    orphans = [*find_orphans(store, mine, now_ms, grace_ms)]
    if not orphans or load_newest(store, mine.prefix) != mine:
        return 0
    for orphan in orphans:
        store.delete(orphan.key)
    return len(orphans)


def remove_topic(
    store: ObjectStore, cluster_id: str, topic: str, topic_id: str, partitions: int, logs: LogRanges | None = None
) -> int:
    """Write the topic's marker, then delete every object of the topic. Idempotent. Returns how many were deleted."""
    mark_deleted(store, cluster_id, topic, topic_id, partitions, logs)
    return remove_all(store, store_topic_prefix(cluster_id, topic, topic_id))


def remove_all(store: ObjectStore, prefix: str) -> int:
    """Deletes the objects of a deleted topic or of its partition; returns how many. Foreign ones stay."""
    assert prefix.endswith("/")
    removed = 0
    for info in store.list(prefix):
        if is_own(prefix, info.key):
            store.delete(info.key)
            removed += 1
    return removed


def _add_names(store: ObjectStore, manifest: Manifest, named: set[str]) -> None:
    """Adds the keys that a manifest names. Loads no sub-manifest that is named already: its entries are too."""
    some = [load_sub_manifest(store, ref).entries for ref in manifest.folded if ref.key not in named]
    named |= {ref.key for ref in manifest.folded}
    for entry in chain(*some, manifest.entries):
        named |= {entry.key, entry.aux_key}


class StoreUpkeep:
    """Decides when a shipper collects: old roots after `commits_max` commits, orphans once a day.

    Looks for orphans first after `first_s`. Blocking but for `is_due`.
    """

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
        """Removes old roots, and orphans once a day. `manifest` is the newest. Raises errors of the store."""
        now_ms = self._clock.now_ms()
        remove_expired_roots(self._store, self._prefix, now_ms)
        self._commits = 0
        if self._clock.monotonic() >= self._orphans_due:
            remove_orphans(self._store, manifest, now_ms)
            self._orphans_due = self._clock.monotonic() + DAY_SECONDS
