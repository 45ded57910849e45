"""A repair changes only what is certain, at any number of crashes, and never removes what it does not understand."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from engine.format.paths import store_manifest_key
from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.audit.examination import Depth
from engine.tiering.manifest.chain import Conflict, commit, iter_entries, load_newest
from engine.tiering.manifest.keys import latest_key
from engine.tiering.manifest.manifest import Manifest, successor
from engine.tiering.store.store import ObjectStore, StoreUnavailable, UnfinishedUpload
from tests.engine.tiering.audit.stored import LATER_MS, PREFIX, WIDTH, actions, examine, found, repair, stored, upload
from tests.engine.tiering.stores import FAILS, LOSES, Watched

SUB = f"{PREFIX}folded/{0:020d}-a.json"


def name(number: int, suffix: str = ".log") -> str:
    return f"{PREFIX}{number * WIDTH:020d}-1-a{suffix}"


def newest(store: MemoryStore) -> Manifest:
    manifest = load_newest(store, PREFIX)
    assert manifest is not None
    return manifest


def lose_aux(store: MemoryStore, directory: Path) -> None:
    del store.objects[name(1, ".aux")]
    store.objects[name(3, ".aux")] = b"{}"


def lose_sub_manifest(store: MemoryStore, directory: Path) -> None:
    del store.objects[SUB]


def lose_segments_with_copies(store: MemoryStore, directory: Path) -> None:
    for number in (1, 3):
        upload(store, directory, number, name="copy")
        del store.objects[name(number)]


def damage_root(store: MemoryStore, directory: Path) -> None:
    store.objects[store_manifest_key(PREFIX, 5)] = b"{}"


def damage_hint(store: MemoryStore, directory: Path) -> None:
    store.objects[latest_key(PREFIX)] = b"{}"


CASES: list[tuple[Callable[[MemoryStore, Path], None], list[str]]] = [
    (lose_aux, ["rebuild_aux", "rebuild_aux"]),
    (lose_sub_manifest, ["rebuild_sub_manifest"]),
    (lose_segments_with_copies, ["replace_object", "replace_object"]),
    (damage_root, ["rebuild_manifest", "name_orphan"]),
    (damage_hint, ["write_hint"]),
]


@pytest.mark.parametrize(("damage", "steps"), CASES)
def test_what_is_certain_is_repaired(damage, steps, tmp_path):
    store = stored(tmp_path, folded=2)
    expected = [(one.base_offset, one.crc32c) for one in iter_entries(store, newest(store))]
    damage(store, tmp_path)
    before = dict(store.objects)
    assert actions(repair(store, is_dry=True)) == steps
    assert store.objects == before
    assert actions(repair(store)) == steps
    assert examine(store).damage == []
    assert [(one.base_offset, one.crc32c) for one in iter_entries(store, newest(store))] == expected
    assert repair(store) == []


@pytest.mark.parametrize("verdict", [FAILS, LOSES])
@pytest.mark.parametrize(("damage", "steps"), CASES)
def test_a_repair_may_end_at_every_operation(damage, steps, verdict, tmp_path):
    template = stored(tmp_path, folded=2)
    damage(template, tmp_path)
    at = 0
    while True:
        store = MemoryStore()
        store.objects = dict(template.objects)
        watched = Watched(store, lambda number, method, key, at=at: verdict if number == at else None)  # type: ignore[misc]
        with suppress(StoreUnavailable, Conflict):
            repair(watched)  # type: ignore[arg-type]
        if len(watched.calls) <= at:
            break
        repair(store)
        assert examine(store).damage == [], (verdict, at, watched.calls[at])
        assert newest(store).end_offset == 4 * WIDTH
        at += 1
    assert at > 10


def test_a_lost_segment_without_a_copy_stays_named_and_nothing_is_removed(tmp_path):
    store = stored(tmp_path)
    upload(store, tmp_path, 2, name="orphan")
    del store.objects[name(1)]
    before = dict(store.objects)
    assert repair(store, now_ms=LATER_MS, names_orphans=True) == []
    assert store.objects == before
    assert "object_missing" in found(store, Depth.AUX)


def test_a_copy_with_other_bytes_replaces_nothing(tmp_path):
    store = stored(tmp_path)
    upload(store, tmp_path, 1, epoch=2, name="other")  # of an unclean election: the same size
    del store.objects[name(1)]
    assert repair(store, names_orphans=True) == []


def test_orphans_and_old_manifests_are_removed_after_the_grace_age(tmp_path):
    store = stored(tmp_path)
    expected = {key for key in store.objects if "/manifest/" not in key}
    store.put(f"{PREFIX}note", b"foreign")
    upload(store, tmp_path, 2, name="orphan")
    assert repair(store) == []
    assert sorted(set(actions(repair(store, now_ms=LATER_MS)))) == ["remove_old_manifest", "remove_orphan"]
    assert set(store.objects) == expected | {f"{PREFIX}note", store_manifest_key(PREFIX, 5), latest_key(PREFIX)}
    assert found(store, now_ms=LATER_MS) == ["foreign"]


class _WithUploads(StoreProxy):
    """A store with uploads in parts that were not completed."""

    def __init__(self, inner: ObjectStore, *uploads: UnfinishedUpload) -> None:
        super().__init__(inner)
        self.uploads = [*uploads]

    def unfinished(self, prefix: str) -> list[UnfinishedUpload]:
        return [one for one in self.uploads if one.key.startswith(prefix)]

    def abort(self, upload: UnfinishedUpload) -> None:
        self.uploads.remove(upload)


def test_unfinished_uploads_of_segments_are_aborted_after_the_grace_age(tmp_path):
    inner = stored(tmp_path)
    repair(inner, now_ms=LATER_MS)
    old, young = UnfinishedUpload(name(9), "old", 0), UnfinishedUpload(name(9), "young", LATER_MS - 1000)
    foreign = UnfinishedUpload(f"{PREFIX}note", "foreign", 0)
    store = _WithUploads(inner, old, young, foreign)
    assert actions(repair(store, now_ms=LATER_MS, is_dry=True)) == ["abort_upload"]
    assert store.uploads == [old, young, foreign]
    repair(store, now_ms=LATER_MS)
    assert store.uploads == [young, foreign]


def test_objects_that_continue_the_manifest_are_named_only_on_demand(tmp_path):
    store = stored(tmp_path)
    upload(store, tmp_path, 4)
    upload(store, tmp_path, 5, epoch=2)  # of a leader that this manifest does not know
    assert repair(store) == []
    assert actions(repair(store, names_orphans=True)) == ["name_orphan"]
    assert newest(store).end_offset == 5 * WIDTH


def test_two_different_objects_at_one_offset_are_not_named(tmp_path):
    store = stored(tmp_path)
    upload(store, tmp_path, 4, name="one")
    store.objects[store_manifest_key(PREFIX, 6)] = b"{}"
    upload(store, tmp_path, 4, epoch=2, name="two")
    assert actions(repair(store)) == ["rebuild_manifest"]
    assert newest(store).end_offset == 4 * WIDTH


def test_a_partition_without_manifests_is_rebuilt_from_contiguous_objects_on_demand(tmp_path):
    store = stored(tmp_path)
    for key in [*store.objects]:
        if "/manifest/" in key:
            del store.objects[key]
    assert repair(store) == []
    assert actions(repair(store, names_orphans=True)) == ["rebuild_manifest"]
    assert (newest(store).log_start, newest(store).end_offset, found(store)) == (0, 4 * WIDTH, [])
    for key in [*store.objects]:
        if "/manifest/" in key or key == name(2):
            del store.objects[key]
    assert repair(store, names_orphans=True) == []


def test_a_commit_of_a_node_meanwhile_is_a_conflict(tmp_path):
    store = stored(tmp_path)
    del store.objects[latest_key(PREFIX)]
    upload(store, tmp_path, 4)

    def decide(number: int, method: str, key: str) -> None:
        if method == "put" and key == store_manifest_key(PREFIX, 6) and key not in store.objects:
            commit(store, successor(newest(store), 2, "node"))

    with pytest.raises(Conflict):
        repair(Watched(store, decide), names_orphans=True)  # type: ignore[arg-type]
    assert newest(store).writer == "node"
    assert repair(store, names_orphans=True)[0].action.value == "name_orphan"
