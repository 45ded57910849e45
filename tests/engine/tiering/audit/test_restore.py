"""A restored log has the bytes of the store at their offsets; an interrupted restore continues."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.directory.topics import TopicRecord
from engine.errors import Corrupt, EngineError, StartRefused
from engine.format.paths import topic_dir
from engine.log.epochs import EpochStart
from engine.log.recovery import LastShutdown, open_log
from engine.runtime.disk import RealDisk
from engine.tiering.audit.inventory import partitions_of
from engine.tiering.audit.restore import RestoredPartition, restore_partition
from engine.tiering.audit.restored_directory import RestoreTarget, restore_directory
from engine.tiering.manifest.deleted_topic import mark_deleted
from engine.tiering.manifest.stored_topic import TopicDescription, description_key
from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.store.store import NoSuchObject, ObjectStore
from tests.engine.tiering.audit.stored import PARTITION, PREFIX, WIDTH, stored
from tests.engine.tiering.making import segment_bytes
from tests.engine.tiering.stores import FAILS, Watched

RECORD = TopicRecord("topic", PARTITION.topic_id, 3, 3, {"retention_ms": 7_200_000}, 5)


def restored(store: ObjectStore, directory: Path, until_ms: int | None = None) -> RestoredPartition:
    return restore_partition(store, RealDisk(), PARTITION, str(directory), until_ms=until_ms)


def files(directory: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in directory.glob("*.log")}


def target(path: Path) -> RestoreTarget:
    return RestoreTarget(RealDisk(), str(path), 1, "boot", lambda: "another")


def describe(store: ObjectStore, record: TopicRecord = RECORD) -> TopicDescription:
    description = TopicDescription(store, "cluster", lambda: record)
    description.write()
    return description


def test_a_restored_log_has_the_bytes_of_the_store_and_goes_on_behind_them(tmp_path):
    store = stored(tmp_path, folded=2)
    found = restored(store, tmp_path / "log")
    assert (found.log_start, found.end_offset, found.segments, found.is_cut) == (0, 4 * WIDTH, 4, False)
    expected = {number * WIDTH: segment_bytes(number * WIDTH) for number in range(4)}
    assert files(tmp_path / "log") == {**expected, 4 * WIDTH: b""}
    log, _ = open_log(RealDisk(), str(tmp_path / "log"), found.checkpoint, LastShutdown.CLEAN, now_ms=1)
    assert (log.log_start, log.log_end, log.leader_epoch) == (0, 4 * WIDTH, 2)
    assert log.epochs == [EpochStart(1, 0), EpochStart(2, 4 * WIDTH)], "it leads in a newer epoch than the store has"


@pytest.mark.parametrize(
    ("until_ms", "end_offset"),
    [(0, 0), (2, 0), (122, 12), (123, 15), (152, 15), (10_000, 48)],
)
def test_a_restore_to_a_time_ends_before_the_first_batch_that_reaches_it(until_ms, end_offset, tmp_path):
    found = restored(stored(tmp_path), tmp_path / "log", until_ms)
    assert (found.end_offset, found.is_cut) == (end_offset, end_offset < 48)
    complete = b"".join(segment_bytes(number * WIDTH) for number in range(4))
    kept = b"".join(data for _, data in sorted(files(tmp_path / "log").items()))
    assert complete.startswith(kept)
    assert len(kept) == found.size_bytes


def test_a_restore_may_end_at_every_operation_and_continues(tmp_path):
    template = stored(tmp_path, folded=2)
    expected = files_of_a_restore(template, tmp_path / "expected")
    for at in range(100):
        watched = Watched(template, lambda number, method, key, at=at: FAILS if number == at else None)  # type: ignore[misc]
        directory = tmp_path / "log"
        with suppress(EngineError):
            restored(watched, directory)
        if len(watched.calls) <= at:
            break
        assert files_of_a_restore(template, directory) == expected
    else:
        raise AssertionError("never done")


def files_of_a_restore(store: ObjectStore, directory: Path) -> dict[int, bytes]:
    restored(store, directory)
    return files(directory)


def test_a_call_for_another_time_removes_later_segments(tmp_path):
    store = stored(tmp_path)
    restored(store, tmp_path / "log")
    restored(store, tmp_path / "log", 152)
    assert sorted(files(tmp_path / "log")) == [0, 12, 15]


def test_damage_ends_a_restore(tmp_path):
    store = stored(tmp_path)
    key = f"{PREFIX}{WIDTH:020d}-1-a.log"
    data = store.objects[key]
    store.objects[key] = data[:-1] + b"?"
    with pytest.raises(Corrupt, match="verify --deep"):
        restored(store, tmp_path / "log")
    del store.objects[key]
    with pytest.raises(NoSuchObject):
        restored(store, tmp_path / "log")


def test_a_directory_appears_when_it_is_complete(tmp_path):
    store = stored(tmp_path)
    describe(store)
    key = f"{PREFIX}{WIDTH:020d}-1-a.log"
    data = store.objects.pop(key)
    with pytest.raises(NoSuchObject):
        restore_directory(store, target(tmp_path / "data"), "cluster", ["topic"])
    assert not (tmp_path / "data").exists()
    store.objects[key] = data
    cluster_id, (topic,) = restore_directory(store, target(tmp_path / "data"), "cluster", ["topic"])
    assert (cluster_id, topic.record, topic.has_description) == ("cluster", replace(RECORD, replication_factor=1), True)
    made = Path(topic_dir(str(tmp_path / "data"), "topic", PARTITION.topic_id))
    assert {path.name for path in made.iterdir()} == {"topic.json", "0", "1", "2"}
    with pytest.raises(StartRefused, match="not empty"):
        restore_directory(store, target(tmp_path / "data"), "cluster", ["topic"])


def test_a_restore_to_a_time_is_another_cluster(tmp_path):
    cluster_id, (topic,) = restore_directory(
        stored(tmp_path), target(tmp_path / "data"), "cluster", ["topic"], until_ms=153
    )
    assert (cluster_id, topic.has_description, topic.record.partitions) == ("another", False, 1)


def test_a_deleted_topic_is_not_restored(tmp_path):
    store = stored(tmp_path)
    mark_deleted(store, "cluster", "topic", PARTITION.topic_id, 1)
    assert restore_directory(store, target(tmp_path / "data"), "cluster", ["topic"])[1] == []


def test_a_description_is_written_once_for_each_change_and_goes_with_its_topic(tmp_path):
    store = Watched(stored(tmp_path))
    records = [RECORD]
    description = TopicDescription(store, "cluster", lambda: records[0])
    assert description.is_due()
    for _ in range(2):
        description.write()
    assert (description.is_due(), store.count("put")) == (False, 1)
    records[0] = replace(RECORD, partitions=4)
    assert description.is_due()
    description.write()
    assert store.count("put") == 2
    describe(store, records[0])  # of another partition's leader
    assert store.count("put") == 2
    assert [place for place, _ in partitions_of(store, "cluster", "topic")] == [PARTITION]
    remove_topic(store, "cluster", "topic", PARTITION.topic_id, 1)
    left = [found.key for found in store.list("")]
    assert description_key("cluster", "topic", PARTITION.topic_id) not in left
    assert len(left) == 1  # the marker
