"""Verify, repair and restore of a partition whose small objects were merged."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from engine.cleaning.segment_check import SealedFile
from engine.errors import Corrupt
from engine.format.paths import store_manifest_key
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.testing.memory_store import MemoryStore
from engine.tiering.audit.examination import disagreement
from engine.tiering.audit.restore import restore_partition
from engine.tiering.manifest.chain import commit, iter_entries
from engine.tiering.manifest.manifest import Manifest, append, replace_runs, successor
from engine.tiering.reading.repair import restore_segment
from engine.tiering.shipping.merging import PartitionMerger
from tests.engine.tiering.audit.stored import (
    LATER_MS,
    PARTITION,
    PREFIX,
    WIDTH,
    actions,
    examine,
    found,
    repair,
    stored,
    upload,
)
from tests.engine.tiering.making import local_log, segment_bytes
from tests.engine.tiering.shipping_scene import merge_lane, newest

_IDS = count()


def merge(store: MemoryStore, objects: int) -> Manifest:
    """Merge the first run of this number of objects. Returns the manifest from before."""
    before = newest(store)
    lane = merge_lane(count_min=objects, target_bytes=objects * len(segment_bytes(0)) + 100)
    merger = PartitionMerger(store, PREFIX, lane, SystemClock(), lambda: f"merged{next(_IDS)}")
    run = merger.merge(before, local_log([]), 1, lambda: store.now_ms)
    assert run is not None
    commit(store, replace_runs(successor(before, 1, "writer"), run))
    return before


@pytest.mark.parametrize("folded", [0, 4])
def test_a_merged_partition_is_sound_and_its_sources_become_orphans(tmp_path, folded):
    store = stored(tmp_path, segments=5, folded=folded)
    merge(store, 4)
    assert [(one.base_offset, one.end_offset) for one in iter_entries(store, newest(store))] == [
        (0, 4 * WIDTH),
        (4 * WIDTH, 5 * WIDTH),
    ]
    assert not {*found(store)} - {"orphan_young"}
    assert not examine(store, now_ms=LATER_MS).damage
    assert actions(repair(store, now_ms=LATER_MS)).count("remove_orphan") == 8 + (1 if folded else 0)
    assert found(store, now_ms=LATER_MS) == []


def test_a_later_manifest_with_other_records_in_place_of_the_merged_ones_is_reported(tmp_path):
    store = stored(tmp_path)
    before = merge(store, 4)
    after = newest(store)
    assert disagreement(before, after) is None
    [merged] = after.entries
    for change in ({"record_count": 5}, {"size_bytes": 5}, {"stored_ms": None}, {"end_offset": 4 * WIDTH - 1}):
        wrong = replace(after, entries=(replace(merged, **change),))  # type: ignore[arg-type]
        assert disagreement(before, wrong) is not None, change


def test_a_manifest_is_rebuilt_though_sources_and_results_begin_at_one_offset(tmp_path):
    store = stored(tmp_path)
    merge(store, 4)
    commit(store, append(successor(newest(store), 1, "writer"), upload(store, tmp_path, 4)))
    for generation in range(3, 8):  # all but the one with the first segment
        store.put(store_manifest_key(PREFIX, generation), b"{")
    assert "rebuild_manifest" in actions(repair(store))
    assert (newest(store).end_offset, newest(store).record_count) == (5 * WIDTH, 5 * WIDTH)
    assert not examine(store).damage


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_lost_list_of_merged_or_unmerged_objects_is_rebuilt_from_their_facts(tmp_path, is_merged):
    store = stored(tmp_path, segments=5, folded=4)
    before = merge(store, 4)
    if not is_merged:  # the objects are there, and no manifest names the merged one
        commit(store, replace(before, generation=before.generation + 2))
    wanted = [(one.base_offset, one.end_offset) for one in iter_entries(store, newest(store))]
    store.delete(newest(store).folded[0].key)
    assert "rebuild_sub_manifest" in actions(repair(store))
    assert [(one.base_offset, one.end_offset) for one in iter_entries(store, newest(store))] == wanted


@pytest.mark.parametrize("until_ms", [None, 2 * WIDTH * 10])
def test_a_merged_partition_is_restored_also_to_a_time_before_the_merge(tmp_path, until_ms):
    store = stored(tmp_path, segments=5)
    merge(store, 4)
    repair(store, now_ms=LATER_MS)
    restored = restore_partition(store, RealDisk(), PARTITION, str(tmp_path / "log"), until_ms=until_ms)
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "log").glob("*.log")))
    count = 5 if until_ms is None else 2
    assert restored.end_offset == count * WIDTH
    assert data == b"".join(segment_bytes(number * WIDTH) for number in range(count))


def sealed_file(directory: Path, first: int, count: int) -> SealedFile:
    path = directory / f"{first * WIDTH:020d}.log"
    path.write_bytes(b"damaged")
    size_bytes = sum(len(segment_bytes((first + at) * WIDTH)) for at in range(count))
    return SealedFile(str(path), first * WIDTH, (first + count) * WIDTH, size_bytes)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 1), (1, 2), (3, 1), (3, 2), (0, 5)])
def test_a_damaged_segment_is_restored_from_its_part_of_a_merged_object(tmp_path, first, count):
    store = stored(tmp_path, segments=5)
    merge(store, 4)
    restored = restore_segment(store, RealDisk(), PREFIX, sealed_file(tmp_path, first, count))
    assert restored is not None
    assert Path(restored).read_bytes() == b"".join(segment_bytes((first + at) * WIDTH) for at in range(count))


def test_a_damaged_merged_object_restores_nothing(tmp_path):
    store = stored(tmp_path, segments=5)
    merge(store, 4)
    key = newest(store).entries[0].key
    store.put(key, store.get(key)[:-1] + b"x")
    with pytest.raises(Corrupt):
        restore_segment(store, RealDisk(), PREFIX, sealed_file(tmp_path, 1, 1))
