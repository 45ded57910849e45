"""A node that may not join a cluster prints one line that names the setting, and changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.cluster.zookeeper import Zookeeper
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import described, produce, until, values
from tests.e2e.lifecycle.test_refused_starts import assert_refused, snapshot
from tests.e2e.node_process import running_process
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]


class Place:
    """One ZooKeeper, with a new cluster for each test."""

    def __init__(self, zookeeper: Zookeeper, directory: Path) -> None:
        self.directory = directory
        (directory / "store").mkdir()
        self.settings: dict[str, object] = {
            "port": 0,
            "coordination": f"zookeeper://127.0.0.1:{zookeeper.port}/{directory.name}",
            "session_timeout_ms": 1000,
            "store": (directory / "store").as_uri(),
        }


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zookeeper]:
    with zookeeper_process(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


@pytest.fixture
def place(zookeeper: Zookeeper, tmp_path: Path) -> Place:
    return Place(zookeeper, tmp_path)


def test_coordination_settings_are_checked_before_zookeeper_is_called(tmp_path: Path) -> None:
    away = {"port": 0, "data_dir": tmp_path / "data", "store": (tmp_path / "store").as_uri()}
    assert_refused(**away, coordination="etcd://x", says=["etcd://x", "zookeeper://host:2181"])
    away["coordination"] = "zookeeper://127.0.0.1:1/p"
    assert_refused(**away, host="0.0.0.0", insecure=True, says=["--host 0.0.0.0", "--advertised-url"])
    assert not (tmp_path / "data").exists()


def test_zookeeper_that_does_not_answer(tmp_path: Path) -> None:
    settings = {"coordination": "zookeeper://127.0.0.1:1/p", "store": (tmp_path / "store").as_uri()}
    assert_refused(port=0, data_dir=tmp_path / "data", **settings, says=["127.0.0.1:1", "--coordination"])
    assert not (tmp_path / "data").exists()


def test_another_cluster_a_node_id_that_is_taken_and_the_directory_of_another_cluster(place: Place) -> None:
    with running_process(place.directory / "alone", cluster_id="blue") as alone:
        assert alone.stop() == 0
    strange = place.directory / "alone" / "data"
    before = snapshot(strange)
    with running_process(place.directory / "one", cluster_id="red", **place.settings) as node:
        other = place.directory / "two"
        assert_refused(data_dir=other, cluster_id="green", node_id=2, **place.settings, says=["red", "not green"])
        assert not other.exists()
        assert_refused(data_dir=strange, **place.settings, says=["cluster blue", "not red"])
        assert_refused(data_dir=other, **place.settings, says=["node id 1 is taken", node.url, "--node-id"])
        assert call(f"{node.url}/v1/cluster")["cluster_id"] == "red"
        assert node.stop() == 0
    assert snapshot(strange) == before


@pytest.mark.long
def test_a_node_that_was_alone_begins_a_cluster_with_its_topics_and_others_copy_them(place: Place) -> None:
    one, two = place.directory / "one", place.directory / "two"
    with running_process(one) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 1, "config": {"segment_bytes": 1 << 20}})
        assert [produce(node.url, "t", value) for value in range(3)] == [0, 1, 2]
        call(f"{node.url}/v1/topics/t/roll", "POST")
        until(lambda: call(f"{node.url}/v1/topics/t/tier")["partitions"][0]["tiered_end"] == 3)
        taken = call(f"{node.url}/v1/producers", "POST")["producer_id"]
        assert node.stop() == 0
    before = snapshot(one / "data")
    assert_refused(data_dir=one / "data", **place.settings, says=["records of topic 't'", "copy all objects"])
    assert snapshot(one / "data").items() >= before.items()
    shutil.copytree(one / "data" / "store", place.directory / "store", dirs_exist_ok=True)
    with running_process(one, **place.settings) as node, running_process(two, node_id=2, **place.settings) as other:
        until(lambda: call(f"{other.url}/v1/topics/t", "PATCH", {"replication_factor": 2}) is not None)
        until(lambda: described(node.url, "t")[0]["in_sync"] == [1, 2])
        assert produce(other.url, "t", 3) == 3
        assert values(other.url, "t") == values(node.url, "t") == [0, 1, 2, 3]
        assert call(f"{other.url}/v1/producers", "POST")["producer_id"] > taken
        assert node.stop() == 0
        until(lambda: values(other.url, "t") == [0, 1, 2, 3])
        assert other.stop() == 0
    for directory in (one, two):
        assert_refused(port=0, data_dir=directory / "data", node_id=1 + (directory is two), says=["--coordination"])
    embedded = {"port": 0, "coordination": "embedded"}
    assert_refused(data_dir=one / "data", **embedded, says=["the coordination store has no cluster", "--coordination"])


@pytest.mark.long
def test_zookeeper_that_was_brought_back_from_an_old_backup(place: Place, tmp_path_factory) -> None:
    home = tmp_path_factory.mktemp("restored")
    with zookeeper_process(home) as own:
        settings = {**place.settings, "coordination": f"zookeeper://127.0.0.1:{own.port}/p"}
        with running_process(place.directory, **settings) as node:
            wish = {"partitions": 1, "replication_factor": 1}
            until(lambda: call(f"{node.url}/v1/topics/t", "PUT", wish))
            assert node.stop() == 0
        own.kill()
        shutil.copytree(home / "data", home / "backup")
        own.start()
        for _ in range(2):  # each start leads in a new epoch
            with running_process(place.directory, **settings) as node:
                until(lambda url=node.url: call(f"{url}/v1/topics/t/records", "POST", {"records": [{"value": 1}]}))
                assert node.stop() == 0
        own.kill()
        shutil.rmtree(home / "data")
        (home / "backup").rename(home / "data")
        own.start()
        assert_refused(data_dir=place.directory / "data", **settings, says=["old data", "--coordination"])
