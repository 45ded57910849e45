"""Groups whose coordinator and partitions are led by other nodes than the one that takes the request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from engine.directory.topics import TopicRecord
from engine.format.paths import GROUPS_TOPIC
from engine.shard.served_topics import Topic
from gateway.groups.hosting.coordinators import TOPIC_CONFIG
from gateway.groups.share_reads import SHARE_STORED, KeysRead
from gateway.routing.topic_finder import TopicFinder
from replication.cluster.values import TopicEntry
from tests.gateway.several_nodes import Cluster, several_nodes
from tests.scenarios.groups.group_client import GroupClient, problem, values


async def with_groups(cluster: Cluster, leader: int) -> None:
    """Create the topic of the groups and let a node lead it."""
    record = TopicRecord(GROUPS_TOPIC, "id-of-groups", 1, 2, TOPIC_CONFIG, 1_000)
    cluster.world.topic_id = record.topic_id
    cluster.world.view.put_topic(TopicEntry(GROUPS_TOPIC, record.topic_id, 1, 2))
    cluster.world.lead(0, leader)
    for member in cluster.members.values():
        await member.open(record)


async def test_any_node_takes_the_polls_of_a_group(tmp_path: Path) -> None:
    async with several_nodes(tmp_path, groups_partitions=1) as cluster:
        topics = await cluster.create("t", 2, leader=1)
        await with_groups(cluster, leader=2)
        await topics[1].post_lines("1", partition=0)
        one, two = (GroupClient(cluster.members[number].gateway, "g") for number in (1, 2))
        first = await one.polled("a", topics=["t"])
        assert values(first) == [1]
        await topics[1].post_lines("2", partition=1)
        second = await two.polled("a", token=first["token"])
        assert values(second) == [2]
        assert values(await one.polled("a", token=second["token"])) == []
        assert await two.offsets() == {("t", 0): 1, ("t", 1): 1}


async def test_members_get_the_partitions_that_are_led_in_their_racks(tmp_path: Path) -> None:
    async with several_nodes(tmp_path, groups_partitions=1) as cluster:
        await cluster.create("t", 2, leader=1)
        cluster.world.lead(1, 2)
        await with_groups(cluster, leader=2)
        far, near = (
            GroupClient(cluster.members[1].gateway, "g", {"Penstock-Rack": rack}) for rack in ("rack 2", "rack 1")
        )
        assert (await near.send("PUT", "", {"config": {"assignor": "rack_aware"}})).status == 201
        token = (await far.polled("a", topics=["t"]))["token"]
        await near.polled("b", topics=["t"])
        await far.polled("a", token=token)
        members = (await near.describe())["members"]
        assert [(one["rack"], one["assignment"]) for one in members] == [
            ("rack 2", [{"topic": "t", "partition": 1}]),
            ("rack 1", [{"topic": "t", "partition": 0}]),
        ]
        bad = GroupClient(cluster.members[1].gateway, "g", {"Penstock-Rack": "x" * 201})
        assert problem(await bad.poll("c", topics=["t"])) == (400, "invalid_header")


async def test_any_node_takes_the_calls_of_a_share_group(tmp_path: Path) -> None:
    """The topic is led by one node, its group is coordinated by another."""
    async with several_nodes(tmp_path, groups_partitions=1) as cluster:
        topics = await cluster.create("t", 2, leader=1)
        await with_groups(cluster, leader=2)
        one, two = (GroupClient(cluster.members[number].gateway, "g") for number in (1, 2))
        waiting = asyncio.ensure_future(two.send("POST", "/acquire", {"topics": ["t"], "wait_ms": 60_000}))
        while (await one.send("GET")).status != 200:
            await asyncio.sleep(0.01)
        await topics[1].post_lines("1", partition=0)
        found = (await waiting).json
        assert [record["value"] for record in found["records"]] == [1]
        waiting = asyncio.ensure_future(one.send("POST", "/acquire", {"wait_ms": 60_000}))
        released = await two.send("POST", "/acknowledge", {"lock": found["lock"], "outcome": "release"})
        assert released.json["acknowledged"] == 1
        again = (await waiting).json
        assert [record["delivery_count"] for record in again["records"]] == [2]
        accepted = await two.send("POST", "/acknowledge", {"lock": again["lock"]})
        assert accepted.json["acknowledged"] == 1
        assert (await one.send("POST", "/acquire", {})).json["records"] == []


async def test_a_poll_that_waits_at_another_node_takes_over_an_assignment(tmp_path: Path) -> None:
    async with several_nodes(tmp_path, groups_partitions=1) as cluster:
        topics = await cluster.create("t", 2, leader=1)
        await with_groups(cluster, leader=2)
        one, two = (GroupClient(cluster.members[number].gateway, "g") for number in (1, 2))
        await one.polled("a", topics=["t"])
        waiting = asyncio.ensure_future(one.polled("a", wait_ms=60_000))
        await asyncio.sleep(0.05)
        joining = asyncio.ensure_future(two.polled("b", topics=["t"], wait_ms=60_000))
        async with asyncio.timeout(45):
            while {one["member_id"] for one in (await two.describe())["partitions"]} != {"a", "b"}:
                await asyncio.sleep(0.01)
            for partition in range(2):
                await topics[1].post_lines("1", partition=partition)
            assert [one["assigned"] for one in await asyncio.gather(waiting, joining)] == [1, 1]


async def test_a_coordinator_that_was_replaced_answers_nothing_from_its_memory(tmp_path: Path) -> None:
    """Nothing is copied between these nodes: the new leader has an empty log, and so no group."""
    async with several_nodes(tmp_path, groups_partitions=1) as cluster:
        await cluster.create("t", 1, leader=1)
        await with_groups(cluster, leader=2)
        one = GroupClient(cluster.members[1].gateway, "g")
        await one.polled("a", topics=["t"])
        waiting = asyncio.ensure_future(one.poll("a", wait_ms=60_000))
        await asyncio.sleep(0.05)
        cluster.world.lead(0, 1)
        assert problem(await one.send("GET")) == (404, "unknown_group")
        assert problem(await waiting) == (404, "unknown_group")


async def test_a_dead_letter_is_not_absent_because_a_new_leader_does_not_know_what_is_committed(tmp_path: Path) -> None:
    async with several_nodes(tmp_path, groups_partitions=1) as cluster:
        topics = await cluster.create("t", 1, leader=2)
        leader = cluster.members[2].leader("t")
        leader.is_new = True
        reading = asyncio.ensure_future(cluster.members[1].node.router.call(SHARE_STORED, "t", 0, KeysRead(0, 1)))
        await asyncio.sleep(0.05)
        assert not reading.done()
        await topics[2].post_lines("1")
        leader.is_new = False
        end, data = await reading
        assert (end, len(data) > 0) == (1, True)


async def test_a_coordinator_with_an_old_list_of_topics_keeps_the_positions_of_a_new_one(tmp_path: Path) -> None:
    """The topic was deleted and created again, and the next coordinator does not know it yet."""
    async with several_nodes(tmp_path, groups_partitions=1) as cluster:
        topics = await cluster.create("t", 1, leader=1)
        await with_groups(cluster, leader=2)
        await topics[1].post_lines("1")
        group = GroupClient(cluster.members[1].gateway, "g")
        first = await group.polled("a", topics=["t"])
        await group.polled("a", token=first["token"])
        node = cluster.members[2].node
        newest = node.shard.topics["t"]
        node.shard.topics.serve({"t": Topic(replace(newest.record, topic_id="of-the-deleted-one"), newest.settings)})

        async def is_there(name: str) -> bool:
            node.shard.topics.serve({name: newest})
            return True

        node.topics._finder = TopicFinder(is_there)
        await node.shard.start_epoch(node.shard.partition(GROUPS_TOPIC, 0), 2)
        assert await group.offsets() == {("t", 0): 1}
