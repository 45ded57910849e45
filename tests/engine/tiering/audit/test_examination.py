"""An examination finds every object that is missing, damaged, contradictory or named by nothing."""

from collections.abc import Callable

import pytest

from engine.format.paths import store_manifest_key
from engine.testing.memory_store import MemoryStore
from engine.tiering.audit.examination import Depth, disagreement
from engine.tiering.audit.inventory import clusters_of, partitions_of, topics_of
from engine.tiering.manifest.chain import commit, load_newest, write_hint
from engine.tiering.manifest.keys import latest_key
from engine.tiering.manifest.manifest import Manifest, successor
from tests.engine.tiering.audit.stored import LATER_MS, PARTITION, PREFIX, WIDTH, examine, found, stored, upload
from tests.engine.tiering.making import manifest_of
from tests.engine.tiering.stores import Watched

SEGMENT = f"{PREFIX}{WIDTH:020d}-1-a.log"
AUX = f"{PREFIX}{WIDTH:020d}-1-a.aux"
SUB = f"{PREFIX}folded/{0:020d}-a.json"


def test_a_sound_partition_has_no_findings(tmp_path):
    report = examine(stored(tmp_path, folded=2))
    assert report.findings == ()
    assert (report.manifest.entry_count, report.manifest.end_offset, report.sub_manifests) == (4, 4 * WIDTH, 1)
    assert report.roots == report.generation == 5


def flip(store: MemoryStore, key: str) -> None:
    data = bytearray(store.objects[key])
    data[-1] ^= 1
    store.objects[key] = bytes(data)


def remove(store: MemoryStore, key: str) -> None:
    del store.objects[key]


def shorten(store: MemoryStore, key: str) -> None:
    store.objects[key] = store.objects[key][:-1]


NEWEST = store_manifest_key(PREFIX, 5)
DAMAGE: list[tuple[Callable[[MemoryStore, str], None], str, Depth, list[str]]] = [
    (remove, SEGMENT, Depth.MANIFESTS, ["object_missing"]),
    (shorten, SEGMENT, Depth.MANIFESTS, ["object_damaged"]),
    (flip, SEGMENT, Depth.AUX, []),
    (flip, SEGMENT, Depth.BYTES, ["object_damaged"]),
    (remove, AUX, Depth.MANIFESTS, ["aux_missing"]),
    (remove, AUX, Depth.AUX, ["aux_missing"]),
    (flip, AUX, Depth.AUX, ["aux_damaged"]),
    (remove, SUB, Depth.AUX, ["sub_manifest_missing", *["orphan_ahead"] * 4]),
    (flip, SUB, Depth.AUX, ["sub_manifest_damaged", *["orphan_ahead"] * 4]),
    (flip, NEWEST, Depth.AUX, ["manifest_unreadable", *["orphan_ahead"] * 2]),
    (flip, store_manifest_key(PREFIX, 4), Depth.AUX, ["old_manifest_unreadable"]),
]


@pytest.mark.parametrize(("damage", "key", "depth", "kinds"), DAMAGE)
def test_damage_is_found(damage, key, depth, kinds, tmp_path):
    store = stored(tmp_path, folded=2)
    damage(store, key)
    assert found(store, depth) == kinds


def test_segments_without_a_manifest_are_damage(tmp_path):
    store = stored(tmp_path)
    for key in [*store.objects]:
        if "/manifest/" in key:
            remove(store, key)
    assert found(store) == ["manifest_missing"]


def test_objects_that_nothing_names_are_sorted_by_age_and_place(tmp_path):
    store = stored(tmp_path)
    upload(store, tmp_path, 1, name="b")
    upload(store, tmp_path, 4, name="b")
    assert found(store) == ["orphan_young", "orphan_ahead"] * 2
    assert found(store, now_ms=LATER_MS) == [*["old_manifest"] * 4, *["orphan", "orphan_ahead"] * 2]


def test_foreign_objects_are_named(tmp_path):
    store = stored(tmp_path)
    store.put(f"{PREFIX}README.txt", b"foreign")
    store.put("cluster/topic/note", b"foreign")
    assert found(store) == ["foreign"]
    places = [(place, [one.key for one in objects]) for place, objects in partitions_of(store, "cluster", "topic")]
    assert [place for place, _ in places] == [PARTITION, None]
    assert places[1] == (None, ["cluster/topic/note"])
    assert (clusters_of(store), topics_of(store, "cluster")) == (["cluster"], ["topic"])


@pytest.mark.parametrize("data", [b"x", b"[]", b'{"generation":99}'])
def test_a_hint_that_misleads_is_found(data, tmp_path):
    store = stored(tmp_path)
    store.put(latest_key(PREFIX), data)
    assert found(store) == ["hint_wrong"]
    write_hint(store, PREFIX, 1)  # behind: readers only list a little more
    assert found(store) == []


def test_a_commit_during_the_examination_is_no_damage(tmp_path):
    store = stored(tmp_path)
    is_done = False

    def decide(number: int, method: str, key: str) -> None:
        nonlocal is_done
        if method == "head" and not is_done:  # after the manifest was read
            is_done = True
            manifest = load_newest(store, PREFIX)
            commit(store, Manifest(PREFIX, 6, 1, "writer", WIDTH, entries=manifest.entries[1:]))

    remove(store, f"{PREFIX}{0:020d}-1-a.log")
    assert examine(Watched(store, decide), Depth.AUX).damage == []
    assert is_done


def test_manifests_of_one_chain_only_grow():
    before = manifest_of(3)
    after = successor(before, 1, "writer")
    assert disagreement(before, after) is None
    assert disagreement(before, successor(manifest_of(2), 1, "writer")) == "it ends at 30, a later one at 20"
    assert disagreement(successor(before, 2, "writer"), before) == "leader epoch 2, later 1"
