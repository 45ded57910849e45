"""Removes roots that were superseded a day ago, and unnamed objects; never an object that a reader needs."""

from engine.format.paths import store_manifest_key, store_manifest_prefix
from engine.runtime.clock import SystemClock
from engine.tiering.manifest.chain import commit, fold_if_due, load_newest, take_over
from engine.tiering.manifest.keys import latest_key
from engine.tiering.manifest.manifest import ENTRIES_MAX, Manifest, append, raise_log_start, successor
from engine.tiering.shipping.garbage_collection import (
    GRACE_MS,
    expired_roots,
    find_orphans,
    remove_all,
    remove_expired_roots,
    remove_orphans,
)
from engine.tiering.store.store import ObjectInfo, ObjectStore
from tests.engine.tiering.making import PREFIX, entry


def roots(*modified_ms: int) -> list[ObjectInfo]:
    listed = [ObjectInfo(store_manifest_key(PREFIX, at), 1, ms) for at, ms in enumerate(modified_ms, start=1)]
    return [*listed, ObjectInfo(latest_key(PREFIX), 1, 0)]


def expired(listed: list[ObjectInfo], now_ms: int) -> list[int]:
    found = [*expired_roots(PREFIX, listed, now_ms)]
    return [int(key.removeprefix(store_manifest_prefix(PREFIX)).removesuffix(".json")) for key in found]


def test_a_root_expires_a_day_after_it_was_superseded():
    listed = roots(0, 1_000, 2_000)
    assert expired(listed, GRACE_MS + 1_000) == []
    assert expired(listed, GRACE_MS + 1_001) == [1]
    assert expired(listed, GRACE_MS + 2_001) == [1, 2]


def test_the_newest_root_never_expires():
    assert expired(roots(0), 100 * GRACE_MS) == []
    assert expired(roots(), 100 * GRACE_MS) == []
    assert expired(roots(0, 0, 0), 100 * GRACE_MS) == [1, 2]


def test_removing_expired_roots_keeps_the_chain(store):
    manifest = take_over(store, PREFIX, 1, "writer", 0)
    for at in range(4):
        manifest = append(successor(manifest, 1, "writer"), entry(at * 10, at * 10 + 10))
        commit(store, manifest)
    now_ms = SystemClock().now_ms()
    assert remove_expired_roots(store, PREFIX, now_ms) == 0
    assert remove_expired_roots(store, PREFIX, now_ms + 2 * GRACE_MS, limit=3) == 3
    assert remove_expired_roots(store, PREFIX, now_ms + 2 * GRACE_MS) == 1
    assert load_newest(store, PREFIX) == manifest


def test_orphans_are_old_objects_that_nothing_names(file_store, new_id):
    manifest = take_over(file_store, PREFIX, 1, "writer", 0)
    for at in range(ENTRIES_MAX + 1):
        one = entry(at * 10, at * 10 + 10)
        if at in (0, ENTRIES_MAX):
            file_store.put(one.key, b"data")
            file_store.put(one.aux_key, b"aux")
        manifest = append(manifest, one)
    manifest = fold_if_due(file_store, successor(manifest, 1, "writer"), new_id)
    commit(file_store, manifest)
    left = [PREFIX + "00000000000000000000-1-left.log", PREFIX + "folded/00000000000000000000-left.json"]
    end = f"{manifest.end_offset:020d}"
    foreign = [PREFIX + name for name in ("notes.log", "backup/00000000000000000000-1-left.log", "folded/notes.json")]
    of_a_lost_root = [PREFIX + f"{end}-1-named.log", PREFIX + f"{end}-1-named.aux", PREFIX + f"folded/{end}-named.json"]
    for key in [*left, *foreign, *of_a_lost_root]:
        file_store.put(key, b"")
    file_store.put("cluster/topic/0123456789abcdef0123456789abcdef/00/other.log", b"another partition's")

    now_ms = SystemClock().now_ms()
    assert [*find_orphans(file_store, manifest, now_ms)] == []
    later = now_ms + 2 * GRACE_MS
    assert [found.key for found in find_orphans(file_store, manifest, later)] == left

    given_up = raise_log_start(manifest, manifest.end_offset)
    orphans = {found.key for found in find_orphans(file_store, given_up, later)}
    assert orphans >= {entry(0, 10).key, entry(0, 10).aux_key, manifest.folded[0].key}


def shipped(store: ObjectStore, manifest: Manifest, width: int = 10) -> Manifest:
    """Ship one more segment with its objects."""
    one = entry(manifest.end_offset, manifest.end_offset + width)
    store.put(one.key, b"data")
    store.put(one.aux_key, b"aux")
    grown = append(successor(manifest, manifest.leader_epoch, "writer"), one)
    commit(store, grown)
    return grown


def test_what_a_kept_root_names_stays_for_its_readers(file_store):
    """Month-old objects lose their name: a reader that has just read the manifest may read them for one more day."""
    manifest = shipped(file_store, shipped(file_store, take_over(file_store, PREFIX, 1, "writer", 0)))
    given_up = raise_log_start(successor(manifest, 1, "writer"), 10)
    commit(file_store, given_up)
    for generation in (1, 2):
        file_store.delete(store_manifest_key(PREFIX, generation))
    later = SystemClock().now_ms() + 2 * GRACE_MS
    assert remove_orphans(file_store, given_up, later) == 0
    assert remove_expired_roots(file_store, PREFIX, later) == 1
    assert remove_orphans(file_store, given_up, later) == 2
    assert file_store.head(entry(0, 10).key) is None
    assert file_store.head(entry(10, 20).key) is not None


def test_an_older_leader_removes_nothing_that_a_newer_one_has_named(file_store):
    mine = shipped(file_store, take_over(file_store, PREFIX, 1, "old", 0))
    newest = shipped(file_store, take_over(file_store, PREFIX, 2, "new", 0))
    folded = PREFIX + "folded/00000000000000000000-new.json"
    file_store.put(folded, b"")
    later = SystemClock().now_ms() + 2 * GRACE_MS
    found = [one.key for one in find_orphans(file_store, mine, later)]
    assert found == [folded], "it looks like an orphan to the older leader"
    assert remove_orphans(file_store, mine, later) == 0
    assert file_store.head(folded)
    assert all(file_store.head(one.key) for one in newest.entries)


def test_a_deleted_topic_leaves_nothing(store):
    take_over(store, PREFIX, 1, "writer", 0)
    foreign = ["cluster/topic/another/0/x", PREFIX + "notes.txt"]
    for key in foreign:
        store.put(key, b"")
    assert remove_all(store, PREFIX) == 2
    assert [one.key for one in store.list("")] == sorted(foreign)
