"""A node syncs its topics with the cluster's state, and removes only those that were deleted or moved away."""

import asyncio
import errno
import itertools
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.directory.catalog import Catalog
from engine.directory.log_directories import open_data_directories
from engine.errors import StorageFull
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from gateway.links.link import Busy, Link
from node.cluster import topic_sync
from node.cluster.topic_sync import TopicSync
from replication.cluster.values import TopicEntry
from replication.cluster.view import ClusterView
from replication.cores.partition_state import Member, PartitionState, VersionedState
from replication.errors import ChangeWaitsForRoom

OWN, OTHER = 1, 2
TOPIC = TopicEntry("t", "id-1", 3, 2, {"flush_ms": 7}, 5)
EVERYWHERE = ((OWN, OTHER),) * 3


class Processes:
    """The processes of the node; records their messages."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.refused: list[str] = []
        self.error: Exception = Busy("a busy shard")

    async def call_shards(self, change: str, arguments: Any) -> None:
        self.calls.append(("shards", change, arguments))
        if change in self.refused:
            self.refused.remove(change)
            raise copy(self.error)  # each attempt has an error of its own

    async def call_worker(self, change: str, arguments: Any) -> None:
        self.calls.append(("worker", change, arguments))

    def shard_links(self) -> list[Link]:
        return []

    def taken(self) -> list[tuple[str, str]]:
        calls, self.calls = self.calls, []
        return [(receiver, change) for receiver, change, _ in calls]


class Life:
    """One run of a node that receives the view of the cluster."""

    def __init__(self, catalog: Catalog, view: ClusterView, deleted: set[str]) -> None:
        async def is_deleted(topic_id: str) -> bool:
            return topic_id in deleted

        self.processes = Processes()
        self.catalog = catalog
        self.topics = TopicSync(catalog, view, OWN, self.processes, is_deleted)

    async def settled(self) -> list[tuple[str, str]]:
        await self.topics.until(lambda: self.topics.is_up_to_date)
        return self.processes.taken()


class Cluster:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.further_directories: list[Path] = []
        self.view = ClusterView()
        self.deleted: set[str] = set()
        self.disk = FaultyDisk(RealDisk(), ())

    def put(self, topic: TopicEntry, replicas: tuple[tuple[int, ...], ...], epoch: int = 0) -> None:
        self.view.put_topic(topic)
        states = enumerate(PartitionState(nodes, None, 1, (Member(nodes[0], 1),)[:0]) for nodes in replicas)
        self.view.put_states((topic.topic_id, number, VersionedState(state, epoch)) for number, state in states)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Life]:
        ids = (f"new-{n}" for n in itertools.count())
        directories = open_data_directories(
            self.disk,
            [str(self.path), *map(str, self.further_directories)],
            node_id=OWN,
            cluster_id="c",
            boot_id="b",
            new_id=ids.__next__,
        )
        with ThreadPoolExecutor(1) as executor:
            catalog = Catalog(self.disk, directories, SystemClock(), executor, ids.__next__)
            await catalog.load()
            life = Life(catalog, self.view, self.deleted)
            life.topics.start()
            try:
                yield life
            finally:
                life.topics.stop()
                await asyncio.sleep(0)
                directories.release()

    def directories(self, topic_id: str = "id-1") -> list[str]:
        return sorted(path.name for path in self.path.glob(f"topics/t/{topic_id}/*") if path.is_dir())


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    return Cluster(tmp_path / "data")


OPENED = [("shards", "open_topic"), ("worker", "open_topic")]
ALTERED = [("shards", "altered"), ("worker", "altered")]


async def test_what_the_cluster_has_is_opened_and_a_restart_finds_it_so(cluster):
    cluster.put(TOPIC, ((OWN, OTHER), (OTHER, 3), (3, OWN)))
    async with cluster.life() as life:
        assert await life.settled() == OPENED
        assert (cluster.directories(), life.catalog.records["t"].hosted) == (["0", "2"], (0, 2))
        assert life.topics.has(TOPIC)
    async with cluster.life() as life:
        assert await life.settled() == [], "nothing has changed"


async def test_a_topic_of_which_nothing_lies_here_is_known_to_every_process(cluster):
    cluster.put(TOPIC, ((OTHER,),) * 3)
    async with cluster.life() as life:
        assert await life.settled() == OPENED
        assert life.catalog.records["t"].hosted == ()


async def test_what_changes_while_the_node_runs_or_is_away_is_followed(cluster):
    cluster.put(TOPIC, ((OWN,), (OTHER,), (OTHER,)))
    async with cluster.life() as life:
        await life.settled()
        cluster.put(TOPIC, ((OTHER,), (OWN,), (OTHER,)), epoch=1)
        life.topics.on_states_changed((*key, found) for key, found in cluster.view.states.items())
        calls = await life.settled()
        assert calls == [("shards", "open_added"), *ALTERED, ("shards", "close_partitions")]
        assert cluster.directories() == ["1"]
    grown = replace(TOPIC, partitions=4, config={})
    cluster.put(grown, (*EVERYWHERE, (OTHER,)), epoch=2)
    async with cluster.life() as life:
        assert await life.settled() == [("shards", "open_added"), *ALTERED]
        record = life.catalog.records["t"]
        assert (record.partitions, record.overrides, record.hosted) == (4, {}, (0, 1, 2))


async def test_states_that_change_nothing_here_cost_nothing(cluster):
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        await life.settled()
        cluster.put(TOPIC, EVERYWHERE, epoch=1)
        life.topics.on_states_changed((*key, found) for key, found in cluster.view.states.items())
        assert life.topics.is_up_to_date


async def test_a_partition_without_a_known_state_stays(cluster):
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        await life.settled()
        cluster.view.states.clear()
        life.topics.queue(["t"])
        assert await life.settled() == []
    assert cluster.directories() == ["0", "1", "2"]


async def test_a_topic_that_was_deleted_while_the_node_was_away_goes_by_its_tombstone(cluster):
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        await life.settled()
    cluster.view.remove_topic(TOPIC)
    cluster.deleted.add("id-1")
    async with cluster.life() as life:
        assert await life.settled() == [("shards", "close_topic"), ("worker", "removed")]
        assert not life.topics.has_any(TOPIC)
    assert cluster.directories() == []


async def test_a_topic_that_nobody_knows_is_set_aside_and_its_files_stay(cluster, caplog):
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        await life.settled()
    cluster.view.remove_topic(TOPIC)
    with caplog.at_level(logging.ERROR):
        async with cluster.life() as life:
            assert await life.settled() == [("shards", "close_topic"), ("worker", "set_aside")], "no object goes"
            assert list(life.catalog.set_aside) == ["id-1"]
            life.topics.queue(["t"])
            assert await life.settled() == []
    assert len([one for one in caplog.records if "quarantined" in one.message]) == 1
    assert cluster.directories() == ["0", "1", "2"]
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        assert await life.settled() == [], "the store has it again"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_topic_that_was_set_aside_comes_back_to_where_it_lies(cluster, tmp_path, is_restarted):
    cluster.further_directories = [tmp_path / "further"]

    def lying() -> list[str]:
        return sorted(str(one.relative_to(tmp_path)) for one in tmp_path.glob("*/topics/*/*/*") if one.is_dir())

    topics = [replace(TOPIC, name=name, topic_id=f"id-of-{name}", partitions=1) for name in ("t", "u", "v")]
    async with cluster.life() as life:
        for topic in topics:
            cluster.put(topic, ((OWN,),))
            life.topics.queue([topic.name])
            await life.settled()
        records, places = dict(life.catalog.records), lying()
        assert len({one.split("/")[0] for one in places}) == 2
        for topic in topics:
            cluster.view.remove_topic(topic)
            life.topics.queue([topic.name])
        await life.settled()
        assert (life.catalog.records, len(life.catalog.set_aside)) == ({}, 3)
        back = [topics[1], topics[0], topics[2]]  # the first one would be placed in the first directory
        for topic in [] if is_restarted else back:
            cluster.put(topic, ((OWN,),), 1)
            life.topics.queue([topic.name])
            assert await life.settled() == OPENED
        if not is_restarted:
            assert (life.catalog.records, life.catalog.set_aside) == (records, {})
    for topic in back:
        cluster.put(topic, ((OWN,),), 1)
    async with cluster.life() as life:
        await life.settled()
        assert (life.catalog.records, lying()) == (records, places)


async def test_a_topic_that_was_set_aside_outlives_starts_beside_a_new_one_of_its_name(cluster):
    cluster.put(TOPIC, EVERYWHERE)
    newer = replace(TOPIC, topic_id="id-2", created_ms=6)
    async with cluster.life() as life:
        await life.settled()
        cluster.put(newer, EVERYWHERE)
        life.topics.queue(["t"])
        assert await life.settled() == [("shards", "close_topic"), ("worker", "set_aside"), *OPENED]
    async with cluster.life() as life:
        assert await life.settled() == []
        assert (life.catalog.records["t"].topic_id, list(life.catalog.set_aside)) == ("id-2", ["id-1"])
    cluster.put(TOPIC, EVERYWHERE, 1)  # a store with old data
    async with cluster.life() as life:
        assert await life.settled() == [("shards", "close_topic"), ("worker", "set_aside"), *OPENED]
        assert (life.catalog.records["t"].topic_id, list(life.catalog.set_aside)) == ("id-1", ["id-2"])
    cluster.put(newer, EVERYWHERE, 2)
    cluster.deleted.add("id-1")
    async with cluster.life() as life:
        assert await life.settled() == [("worker", "removed")]
    assert (cluster.directories("id-1"), cluster.directories("id-2")) == ([], ["0", "1", "2"])


async def test_a_topic_made_again_under_its_name_takes_the_place_of_the_old_one(cluster):
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        await life.settled()
        cluster.deleted.add("id-1")
        cluster.put(replace(TOPIC, topic_id="id-2"), EVERYWHERE)
        life.topics.queue(["t"])
        assert await life.settled() == [("shards", "close_topic"), ("worker", "removed"), *OPENED]
    assert (cluster.directories(), cluster.directories("id-2")) == ([], ["0", "1", "2"])


async def test_what_a_disk_refuses_is_tried_again(cluster, monkeypatch):
    monkeypatch.setattr(topic_sync, "RETRY_S", 0.01)
    refusal = Rule("mkdir", "topics/t", error=errno.ENOSPC)
    cluster.disk = FaultyDisk(RealDisk(), (refusal,))
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        async with asyncio.timeout(60):
            await life.topics.until(lambda: life.topics.has(TOPIC))
    assert refusal.applied == 1
    assert cluster.directories() == ["0", "1", "2"]


async def test_a_change_on_a_full_disk_is_refused_at_once_logged_once_and_applied_once_there_is_room(
    cluster, monkeypatch, caplog
):
    monkeypatch.setattr(topic_sync, "RETRY_S", 0.01)
    async with cluster.life() as life:
        life.processes.error = StorageFull("no space is left on the disk")
        life.processes.refused = ["open_topic"] * 3
        cluster.put(TOPIC, EVERYWHERE)
        life.topics.queue([TOPIC.name])
        async with asyncio.timeout(60):
            for _ in range(2):  # a failure of an earlier call is not the answer to this one
                with pytest.raises(ChangeWaitsForRoom, match="'t' has changed, and the disk") as refused:
                    await life.topics.wait_applied(TOPIC.name, lambda: life.topics.has(TOPIC))
                assert (refused.value.code, refused.value.no_side_effects) == ("storage_full", False)
            await life.topics.until(lambda: life.topics.has(TOPIC))
            await life.topics.wait_applied(TOPIC.name, lambda: life.topics.has(TOPIC))
    assert life.processes.refused == []
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == [
        "a topic's change could not be applied"
    ]


async def test_a_topic_is_here_once_the_processes_have_it(cluster):
    """A request that waits for it goes to the processes next, and would get "no such topic"."""
    cluster.put(TOPIC, EVERYWHERE)
    async with cluster.life() as life:
        seen = []
        notify = life.processes.call_shards

        async def notify_slowly(change: str, arguments: Any) -> None:
            seen.append((life.topics.has(TOPIC), TOPIC.name in life.catalog.records))
            await notify(change, arguments)

        life.processes.call_shards = notify_slowly  # type: ignore[method-assign]
        assert await life.settled() == OPENED
        assert seen == [(False, True)]
        assert life.topics.has(TOPIC)


@pytest.mark.parametrize("error", [Busy("a busy shard"), KeyError("a bug")])
async def test_a_change_that_a_process_rejected_is_sent_again(cluster, monkeypatch, error):
    monkeypatch.setattr(topic_sync, "RETRY_S", 0.01)
    cluster.put(TOPIC, ((OWN,), (OTHER,), (OTHER,)))
    async with cluster.life() as life, asyncio.timeout(60):

        async def sent_twice(refused: str, *last: tuple[str, str]) -> None:
            calls: list[tuple[str, str]] = []
            while calls.count(("shards", refused)) < 2 or calls[-len(last) :] != list(last):
                await asyncio.sleep(0.01)
                calls += life.processes.taken()

        life.processes.error = error
        life.processes.refused = ["open_topic"]
        await sent_twice("open_topic", *OPENED)
        for epoch, refused in enumerate(("open_added", "close_partitions"), 1):
            cluster.put(TOPIC, ((OTHER,), (OWN,), (OTHER,)) if epoch == 1 else ((OWN,), (OTHER,), (OTHER,)), epoch)
            life.processes.refused = [refused]
            life.topics.queue(["t"])
            await sent_twice(refused, ("shards", "open_added"), *ALTERED, ("shards", "close_partitions"))
            while cluster.directories() != [str(epoch % 2)]:
                await asyncio.sleep(0.01)
