"""The chain of a partition's manifests in the store: finds the newest, appends one.

Generation N is the object `manifest/<N as twenty digits>.json`, created if absent, never changed: of any number of
writers exactly one creates a generation, and the others read and decide again. Blocking; callers use threads.

Why a writer may trust its commit:
 - after a lost answer it reads the slot: equal bytes are its own, since they name the writer;
 - a writer that pauses until its slot has been used and removed would find the slot free again. So a commit counts
   only if nothing newer exists afterwards; otherwise the newest is read;
 - a leader of a new epoch first writes a fencing manifest (`take_over`), which takes the slot that an old leader would
   need next; reading again, the old one sees the higher epoch and is Fenced.

The `latest` object is only a hint where a LIST may begin. It can be absent, stale or wrong without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import orjson
from crc32c import crc32c

from engine.errors import Corrupt, EngineError
from engine.format.paths import store_manifest_key, store_manifest_prefix
from engine.tiering.manifest.encoding import decode_manifest, decode_sub_manifest, encode_manifest, encode_sub_manifest
from engine.tiering.manifest.keys import before_generation, generation_of, latest_key, sub_manifest_key
from engine.tiering.manifest.manifest import (
    Manifest,
    ManifestEntry,
    SubManifest,
    SubManifestRef,
    check_leadership,
    first_manifest,
    fold,
    oldest_run,
    reference_to,
    successor,
)
from engine.tiering.store.store import NoSuchObject, ObjectExists, ObjectStore, StoreUnavailable

_LOAD_ATTEMPTS_MAX = 3  # a root can be removed between LIST and GET only a day after it was superseded
_TAKE_OVER_ATTEMPTS_MAX = 10  # each lost one is another writer's progress


class Conflict(EngineError):
    """Another writer committed first. This commit had no effect; load the newest manifest and decide again."""

    retryable = True


class NewestRoot(NamedTuple):
    """A root as a LIST shows it. A generation is never written again, so the same three values are the same root."""

    generation: int
    size_bytes: int
    modified_ms: int


def load_newest(store: ObjectStore, prefix: str) -> Manifest | None:
    """Loads the newest manifest of a partition; None without one. Usually one LIST, two without a usable hint.

    Raises StoreUnavailable, Corrupt, UnsupportedFormat.
    """
    for _ in range(_LOAD_ATTEMPTS_MAX):
        newest = find_newest(store, prefix)
        if newest is None:
            return None
        with suppress(NoSuchObject):
            return load_generation(store, prefix, newest.generation)
    raise StoreUnavailable(f"the manifests below {prefix} were deleted while they were read")


def load_generation(store: ObjectStore, prefix: str, generation: int) -> Manifest:
    """Loads one manifest of the chain. Raises NoSuchObject, Corrupt, or UnsupportedFormat."""
    key = store_manifest_key(prefix, generation)
    manifest = decode_manifest(store.get(key), key)
    if (manifest.prefix, manifest.generation) != (prefix, generation):
        raise Corrupt(f"{key} holds generation {manifest.generation} of {manifest.prefix}: it is a copy of another")
    return manifest


def commit(store: ObjectStore, manifest: Manifest) -> None:
    """Makes a manifest the newest of its chain. Raises Conflict if another writer was first.

    After StoreUnavailable it may or may not be committed; load the newest to find out.
    """
    key = store_manifest_key(manifest.prefix, manifest.generation)
    _create(store, key, encode_manifest(manifest))
    for root in store.list(store_manifest_prefix(manifest.prefix), key):
        if generation_of(manifest.prefix, root.key) is not None:
            raise Conflict(f"{root.key} exists, {key} is not the newest")
    with suppress(StoreUnavailable):
        write_hint(store, manifest.prefix, manifest.generation)


def write_hint(store: ObjectStore, prefix: str, generation: int) -> None:
    """Writes the generation at which readers begin their LIST. A late hint costs a longer LIST."""
    store.put(latest_key(prefix), orjson.dumps({"generation": generation}))


def take_over(store: ObjectStore, prefix: str, leader_epoch: int, writer: str, log_start: int) -> Manifest:
    """Returns the manifest that a new leader continues, after fencing all older leaders.

    Raises Fenced if a newer leader has written, Conflict if other writers won every attempt. `log_start` begins the
    manifest of a partition that has none.
    """
    for _ in range(_TAKE_OVER_ATTEMPTS_MAX):
        newest = load_newest(store, prefix)
        if newest is not None:
            check_leadership(newest, leader_epoch)
            if newest.leader_epoch == leader_epoch:
                return newest
        fence = (
            first_manifest(prefix, leader_epoch, writer, log_start)
            if newest is None
            else successor(newest, leader_epoch, writer)
        )
        with suppress(Conflict):
            commit(store, fence)
            return fence
    raise Conflict(f"{prefix}: other writers created the next generation {_TAKE_OVER_ATTEMPTS_MAX} times")


def fold_if_due(store: ObjectStore, manifest: Manifest, new_id: Callable[[], str]) -> Manifest:
    """Moves the oldest run of a root that is too long to a sub-manifest; returns other roots as is. Does not commit."""
    if not manifest.is_due_to_fold:
        return manifest
    sub = oldest_run(manifest)
    ref = store_sub_manifest(store, sub, new_id)
    return fold(manifest, sub, ref.key, ref.crc32c)


def store_sub_manifest(store: ObjectStore, sub: SubManifest, new_id: Callable[[], str]) -> SubManifestRef:
    """Stores the entries of a sub-manifest under a new name. Returns the reference, which nothing has yet."""
    key = sub_manifest_key(sub.prefix, sub.entries[0].base_offset, new_id())
    data = encode_sub_manifest(sub)
    store.put(key, data, if_absent=True)
    return reference_to(sub, key, crc32c(data))


def load_sub_manifest(store: ObjectStore, ref: SubManifestRef) -> SubManifest:
    """Loads the entries of a reference. Raises NoSuchObject, Corrupt, or UnsupportedFormat."""
    data = store.get(ref.key)
    if crc32c(data) != ref.crc32c:
        raise Corrupt(f"sub-manifest {ref.key} does not have the checksum in the root manifest")
    sub = decode_sub_manifest(data, ref.key)
    if (sub.entries[0].base_offset, sub.entries[-1].end_offset) != (ref.base_offset, ref.end_offset):
        raise Corrupt(f"sub-manifest {ref.key} does not span {ref.base_offset}..{ref.end_offset}")
    return sub


def iter_entries(store: ObjectStore, manifest: Manifest, start_offset: int = 0) -> Iterator[ManifestEntry]:
    """Yields every entry, oldest first, that ends after `start_offset`. Loads a sub-manifest when it reaches it."""
    for ref in manifest.folded:
        if ref.end_offset > start_offset:
            for entry in load_sub_manifest(store, ref).entries:
                if entry.end_offset > start_offset:
                    yield entry
    for entry in manifest.entries:
        if entry.end_offset > start_offset:
            yield entry


def _create(store: ObjectStore, key: str, data: bytes) -> None:
    try:
        store.put(key, data, if_absent=True)
    except ObjectExists as error:
        if store.get(key) != data:
            raise Conflict(f"another writer created {key}") from error
    except StoreUnavailable as error:
        try:
            there = store.get(key)
        except NoSuchObject:
            raise error from None
        if there != data:
            raise Conflict(f"another writer created {key}") from error


def find_newest(store: ObjectStore, prefix: str, hint: int | None = None) -> NewestRoot | None:
    """Find the newest root of a partition, and read none; None without one.

    `hint` is a generation at which the LIST begins, as `latest` is, which is read without it.
    """
    hint = hinted_generation(store, prefix) if hint is None else hint
    for start_after in dict.fromkeys([before_generation(prefix, hint), ""]):
        listed = [
            (generation_of(prefix, info.key), info) for info in store.list(store_manifest_prefix(prefix), start_after)
        ]
        roots = [NewestRoot(number, info.size_bytes, info.modified_ms) for number, info in listed if number is not None]
        if roots:
            return max(roots)
    return None


def hinted_generation(store: ObjectStore, prefix: str) -> int:
    """Returns the generation that the hint names; 0 if there is no usable hint."""
    try:
        hint = orjson.loads(store.get(latest_key(prefix)))
    except (NoSuchObject, orjson.JSONDecodeError):
        return 0
    generation = hint.get("generation") if isinstance(hint, dict) else None
    return generation if type(generation) is int and 0 <= generation < 10**20 else 0
