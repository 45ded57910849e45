"""The inventory of a stopped node: complete, refused where it could mislead, and the directories stay as they are."""

from pathlib import Path

import pytest

from engine.directory.high_watermark_checkpoint import save_high_watermarks
from engine.directory.log_directories import open_data_directories
from engine.directory.topics import TopicRecord, save_topic
from engine.errors import StartRefused
from engine.format import paths
from engine.runtime.disk import RealDisk
from replication.cluster.registration_state import RegistrationState, save_registration_state
from replication.cluster.start_counter import StartCounter, save_start_counter
from replication.rebuild.directories import read_inventory
from replication.rebuild.inventory import StartInventory

DISK = RealDisk()
TOPIC = TopicRecord("t", "id-1", 3, 2, {"flush_ms": 7}, 5, {"1": "more"}, (0, 1))


def made(path: Path, node_id: int = 1, *, is_clustered: bool = True) -> list[str]:
    """Make the two directories of a node, with partition 0 in the first and 1 in the second."""
    directories = [str(path / "first"), str(path / "second")]
    opened = open_data_directories(
        DISK, directories, node_id=node_id, cluster_id="c", boot_id="b", new_id=lambda: "more"
    )
    save_topic(DISK, directories[0], TOPIC)
    DISK.mkdir(paths.partition_dir(directories[1], "t", "id-1", 1))
    save_high_watermarks(DISK, directories[0], None, {"id-1/0": 4})
    if is_clustered:
        save_registration_state(DISK, directories[0], RegistrationState(8, 8, "d"))
        save_start_counter(DISK, directories[0], StartCounter(3, ("n", "earlier"), 0))
    for one in opened:
        one.close_clean()
    return directories


def content(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_all_directories_of_a_node_are_one_inventory(tmp_path):
    directories = made(tmp_path)
    before = content(tmp_path)
    found = read_inventory(DISK, directories[::-1])
    assert content(tmp_path) == before
    assert (found.cluster_id, found.node_id, found.directory_id) == ("c", 1, "d")
    assert found.starts == {"d": StartInventory(number=3, nonce="n")}
    (topic,) = found.topics
    assert (topic.name, topic.topic_id, topic.partitions, topic.hosted) == ("t", "id-1", 3, (0, 1))
    assert (topic.config, topic.replication_factor, topic.created_ms) == ({"flush_ms": 7}, 2, 5)
    assert {number: log.problem for number, log in topic.logs.items()} == {0: "", 1: ""}
    assert topic.logs[0].high_watermark == 4


def test_partitions_of_a_directory_that_is_not_given_are_a_problem(tmp_path):
    first, second = made(tmp_path)
    found = read_inventory(DISK, [first])
    assert found.absent_directories == (second,)
    assert found.topics[0].logs[1].problem


def test_a_damaged_description_is_named_and_ends_nothing(tmp_path):
    directories = made(tmp_path)
    Path(f"{directories[0]}/topics/t/id-1/topic.json").write_text("{")
    found = read_inventory(DISK, directories)
    assert (found.topics, found.unreadable) == ((), ("id-1",))


def test_directories_that_could_mislead_are_refused(tmp_path):
    one, two = made(tmp_path / "1"), made(tmp_path / "2", 2)
    alone = made(tmp_path / "3", 3, is_clustered=False)
    for given, reason in (
        ([str(tmp_path)], "is not the data directory of a node"),
        ([one[1]], "0 of"),
        ([one[0], two[0]], "2 of"),
        ([one[0], two[1]], "is of cluster c, node 2"),
        (alone, "was never the directory of a node in a cluster"),
    ):
        with pytest.raises(StartRefused, match=reason):
            read_inventory(DISK, given)
    with_lock = DISK.lock(f"{one[1]}/{paths.LOCK}")
    with pytest.raises(StartRefused, match="in use by another process"):
        read_inventory(DISK, one)
    DISK.close(with_lock)
    assert read_inventory(DISK, one).node_id == 1
