"""What may be removed from the store: manifests long superseded, and objects that no manifest names.

Age is the store's own clock (`modified_ms` of objects), compared with another object's of the same store, or with a
time that the caller takes from a Clock; a day's grace covers any skew between the two.

Only the leader that holds the manifest (`take_over`, then `commit`) may remove what `find_orphans` gives: an older
leader that was about to name such an object is fenced by then, and its commit fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.paths import store_manifest_prefix
from engine.tiering.keys import generation_of
from engine.tiering.manifest import Manifest
from engine.tiering.manifest_chain import iter_entries
from engine.tiering.store import ObjectInfo, ObjectStore

GRACE_MS = 24 * 3600 * 1000  # longer than any reader keeps a manifest, and than any upload takes


def expired_roots(prefix: str, listed: Iterable[ObjectInfo], now_ms: int, grace_ms: int = GRACE_MS) -> Iterator[str]:
    """The keys of roots that were superseded more than `grace_ms` ago, oldest first.

    `listed` is a LIST of the manifests in key order, and is read no further than needed. A root's age counts from its
    successor's creation: until then it was the newest, and somebody may have read it a moment before. The newest root
    never expires.
    """
    older: str | None = None
    for found in listed:
        if generation_of(prefix, found.key) is None:
            continue
        if older is not None:
            if now_ms - found.modified_ms <= grace_ms:
                return
            yield older
        older = found.key


def remove_expired_roots(store: ObjectStore, prefix: str, now_ms: int, limit: int = 1000) -> int:
    """Delete expired roots, at most `limit`; returns how many."""
    listed = store.list(store_manifest_prefix(prefix))
    expired = [key for key, _ in zip(expired_roots(prefix, listed, now_ms), range(limit), strict=False)]
    for key in expired:
        store.delete(key)
    return len(expired)


def find_orphans(store: ObjectStore, manifest: Manifest, now_ms: int, grace_ms: int = GRACE_MS) -> Iterator[ObjectInfo]:
    """Objects of a partition that its newest manifest does not name, and older than `grace_ms`.

    Left by crashes between upload and commit, by lost races, and by a raised log_start. Manifest roots and the hint
    are no orphans.
    """
    named = {ref.key for ref in manifest.folded}
    for entry in iter_entries(store, manifest):
        named |= {entry.key, entry.aux_key}
    manifests = store_manifest_prefix(manifest.prefix)
    for found in store.list(manifest.prefix):
        is_old = now_ms - found.modified_ms > grace_ms
        if is_old and found.key not in named and not found.key.startswith(manifests):
            yield found


def remove_all(store: ObjectStore, prefix: str) -> int:
    """Delete every object below a partition's or a topic's prefix, after the topic was deleted; returns how many."""
    assert prefix.endswith("/")
    removed = 0
    for found in store.list(prefix):
        store.delete(found.key)
        removed += 1
    return removed
