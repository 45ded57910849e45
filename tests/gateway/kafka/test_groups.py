"""Groups by single messages, and by two real clients: one set of positions for both doors, and members of one door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.groups.core import classic
from gateway.groups.hosting.calls import HEARTBEAT
from gateway.groups.model.errors import WrongGroupKind
from gateway.groups.model.values import HeartbeatCall, Membership, PushCall
from gateway.http.problems import Problem
from gateway.kafka.errors import Error
from gateway.kafka.groups import coordinator_error
from gateway.subscriptions.bodies import GivenDelivery
from gateway.subscriptions.calls import DESCRIBE, PUT, View
from gateway.subscriptions.core.definition import Definition, encode
from node.node import Node
from tests.gateway.kafka.served import Connection, batch, connected, kafka_node, produce, request

aiokafka = pytest.importorskip("aiokafka")


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(classic, "INITIAL_DELAY_MS", 200)
    async with kafka_node(tmp_path) as (node, _):
        await node.shard.create_topic("t", 4, 1, {})
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


async def commit(
    client: Connection, offset: int, generation: int = -1, member: str = "", group: str = "g", **fields: Any
) -> int:
    one = request("OffsetCommit", "topics.partitions", partition_index=0, committed_offset=offset, **fields)
    topics = [request("OffsetCommit", "topics", name="t", partitions=[one])]
    answer = await client.ask(
        "OffsetCommit", 8, group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
    )
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def committed(client: Connection, group: str = "g") -> tuple[int, int, str | None]:
    topics = [request("OffsetFetch", "groups.topics", name="t", partition_indexes=[0])]
    groups = [request("OffsetFetch", "groups", group_id=group, topics=topics)]
    row = (await client.ask("OffsetFetch", 8, groups=groups)).groups[0].topics[0].partitions[0]
    return row.committed_offset, row.committed_leader_epoch, row.metadata


async def join(client: Connection, version: int = 9, member_id: str = "", group: str = "g", **fields: Any) -> Any:
    protocols = [request("JoinGroup", "protocols", name="range", metadata=b"bytes")]
    return await client.ask(
        "JoinGroup",
        version,
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
        **fields,
    )


async def http_heartbeat(node: Node, group: str = "g") -> Membership:
    call = HeartbeatCall(group, "over-http", 0, ("t",))
    return await node.server.groups.coordinators.call(HEARTBEAT, Membership, group, call, creates=True)


async def test_positions_are_set_in_any_direction(client: Connection) -> None:
    assert await committed(client) == (-1, -1, "")
    assert await commit(client, 5, committed_leader_epoch=3, committed_metadata="note") == 0
    assert await committed(client) == (5, 3, "note")
    assert await commit(client, 2) == 0
    assert await committed(client) == (2, -1, "")
    assert await commit(client, 2, committed_metadata="x" * 5000) == Error.OFFSET_METADATA_TOO_LARGE
    assert await commit(client, 2, group="") == Error.INVALID_GROUP_ID


async def test_one_member_joins_commits_and_leaves(client: Connection, node: Node) -> None:
    first = await join(client)
    assert (first.error_code, first.generation_id) == (Error.MEMBER_ID_REQUIRED, -1)
    member = first.member_id
    joined = await join(client, member_id=member)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member)
    assert [(one.member_id, one.metadata) for one in joined.members] == [(member, b"bytes")]
    given = [request("SyncGroup", "assignments", member_id=member, assignment=b"mine")]
    synced = await client.ask("SyncGroup", 5, group_id="g", generation_id=1, member_id=member, assignments=given)
    assert (synced.error_code, synced.assignment, synced.protocol_name) == (0, b"mine", "range")
    beat = await client.ask("Heartbeat", 4, group_id="g", generation_id=1, member_id=member)
    assert beat.error_code == 0
    assert await commit(client, 7, 1, member) == 0
    assert await commit(client, 8, 2, member) == Error.ILLEGAL_GENERATION
    assert await commit(client, 8, 1, "other") == Error.UNKNOWN_MEMBER_ID
    assert await commit(client, 8) == Error.UNKNOWN_MEMBER_ID  # not as a member
    with pytest.raises(WrongGroupKind, match="classic protocol"):
        await http_heartbeat(node)
    described = (await client.ask("DescribeGroups", 5, groups=["g"])).groups[0]
    assert (described.group_state, described.protocol_data, len(described.members)) == ("Stable", "range", 1)
    assert (described.members[0].member_assignment, described.members[0].client_host) == (b"mine", "/127.0.0.1")
    listed = (await client.ask("ListGroups", 5, states_filter=["stable"], types_filter=["classic"])).groups
    assert [(one.group_id, one.group_type, one.protocol_type) for one in listed] == [("g", "classic", "consumer")]
    assert (await client.ask("DeleteGroups", 2, groups_names=["g"])).results[0].error_code == Error.NON_EMPTY_GROUP
    left = await client.ask("LeaveGroup", 5, group_id="g", members=[request("LeaveGroup", "members", member_id=member)])
    assert (left.error_code, left.members[0].error_code) == (0, 0)
    assert (await http_heartbeat(node)).assignment[0].offset == 7  # the other door goes on from there
    assert (await join(client, member_id="", version=0)).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    described = (await client.ask("DescribeGroups", 5, groups=["g"])).groups[0]
    assert (described.group_state, len(described.members)) == ("Stable", 1)
    assert described.members[0].member_assignment == (
        b"\0\0\0\0\0\1\0\1t\0\0\0\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3\xff\xff\xff\xff"
    )


async def test_a_parked_call_ends_when_its_instance_has_another_member(client: Connection, node: Node) -> None:
    """Not by its next look, which is seconds later."""
    await join(client, version=3)
    async with connected(node) as old, connected(node) as new:
        parked = asyncio.create_task(join(old, group_instance_id="i"))  # the other member has not joined again
        hosted = node.server.groups.coordinators.present("g")
        assert hosted is not None
        async with asyncio.timeout(10):
            while not hosted._watching:
                await asyncio.sleep(0.001)
        replacing = asyncio.create_task(join(new, group_instance_id="i"))
        assert (await asyncio.wait_for(parked, 5)).error_code == Error.FENCED_INSTANCE_ID
        replacing.cancel()


async def test_unknown_groups_are_dead_or_not_found(client: Connection) -> None:
    assert (await client.ask("DescribeGroups", 5, groups=["no"])).groups[0].group_state == "Dead"
    assert (await client.ask("DescribeGroups", 6, groups=["no"])).groups[0].error_code == Error.GROUP_ID_NOT_FOUND
    assert (await client.ask("DeleteGroups", 2, groups_names=["no"])).results[0].error_code == Error.GROUP_ID_NOT_FOUND
    beat = await client.ask("Heartbeat", 4, group_id="no", generation_id=1, member_id="m")
    assert beat.error_code == Error.UNKNOWN_MEMBER_ID
    assert await commit(client, 3) == 0
    assert (await client.ask("DeleteGroups", 2, groups_names=["g"])).results[0].error_code == 0
    assert await committed(client) == (-1, -1, "")


async def test_the_group_of_a_subscription_is_not_a_client_s(client: Connection, node: Node) -> None:
    """A right to groups is none to subscriptions."""
    name, delivery = "push:s", GivenDelivery().to_delivery()
    definition = encode(Definition("http://localhost/", ("t",), delivery, (), ())).decode()
    coordinators = node.server.groups.coordinators
    await coordinators.call(PUT, None, name, PushCall(name, definition, (), None, is_new=True), creates=True)
    deleted = await client.ask("DeleteGroups", 2, groups_names=[name])
    assert deleted.results[0].error_code == Error.INVALID_GROUP_ID
    assert await commit(client, 3, group=name) == Error.INVALID_GROUP_ID
    assert (await join(client, group=name)).error_code == Error.INVALID_GROUP_ID
    assert (await client.ask("DescribeGroups", 5, groups=[name])).groups[0].error_code == Error.INVALID_GROUP_ID
    assert (await client.ask("ListGroups", 4)).groups == []
    assert (await coordinators.call(DESCRIBE, View, name, name)).definition == definition


async def test_positions_are_forgotten(client: Connection) -> None:
    await commit(client, 3)
    one = request("OffsetDelete", "topics.partitions", partition_index=0)
    topics = [request("OffsetDelete", "topics", name="t", partitions=[one])]
    answer = await client.ask("OffsetDelete", 0, group_id="g", topics=topics)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert await committed(client) == (-1, -1, "")


async def test_a_member_whose_session_is_over_does_not_keep_its_group(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the coordinator has looked at its sessions since, or not yet."""
    assert (await join(client, version=3)).error_code == 0
    assert (await client.ask("DeleteGroups", 2, groups_names=["g"])).results[0].error_code == Error.NON_EMPTY_GROUP
    monkeypatch.setattr(classic, "_is_gone", lambda *_: True)
    assert (await client.ask("DeleteGroups", 2, groups_names=["g"])).results[0].error_code == 0


async def test_positions_of_a_group_with_members_are_not_forgotten(client: Connection) -> None:
    admitted = await join(client, version=3)
    assert await commit(client, 5, admitted.generation_id, admitted.member_id) == Error.REBALANCE_IN_PROGRESS
    one = request("OffsetDelete", "topics.partitions", partition_index=0)
    topics = [request("OffsetDelete", "topics", name="t", partitions=[one])]
    answer = await client.ask("OffsetDelete", 0, group_id="g", topics=topics)
    assert answer.topics[0].partitions[0].error_code == Error.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("version", range(1, 10))
async def test_positions_are_read_in_every_version(client: Connection, version: int) -> None:
    await commit(client, 3)
    if version >= 8:
        groups = [request("OffsetFetch", "groups", group_id="g", topics=None)]
        [found] = (await client.ask("OffsetFetch", version, groups=groups)).groups
    else:
        topics = [request("OffsetFetch", "topics", name="t", partition_indexes=[0, 1])]
        found = await client.ask("OffsetFetch", version, group_id="g", topics=topics)
        assert found.topics[0].partitions[1].committed_offset == -1
    assert (found.error_code, found.topics[0].partitions[0].committed_offset) == (0, 3)


async def test_members_of_a_real_client_share_the_partitions(client: Connection, node: Node) -> None:
    for number in range(4):
        client.send("Produce", 9, produce("t", {number: batch(*(b"%d-%d" % (number, i) for i in range(10)))}))
        await client.receive()

    def consumer() -> Any:
        return aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=node.settings.kafka_advertised,
            group_id="real",
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
        )

    first, second = consumer(), consumer()
    await asyncio.gather(first.start(), second.start())
    try:
        async with asyncio.timeout(30):
            while not (len(first.assignment()) == len(second.assignment()) == 2):
                await asyncio.sleep(0.1)
        assert not first.assignment() & second.assignment()
        found: list[bytes] = []
        async with asyncio.timeout(30):
            while len(found) < 40:
                for one in (first, second):
                    for records in (await one.getmany(timeout_ms=100)).values():
                        found += [record.value for record in records]
        assert sorted(found) == sorted(b"%d-%d" % (number, i) for number in range(4) for i in range(10))
        await second.stop()
        async with asyncio.timeout(30):
            while len(first.assignment()) < 4:
                await asyncio.sleep(0.1)
    finally:
        await first.stop()
    assert (await committed(client, "real"))[0] == 10


def test_a_right_to_a_group_that_has_ended_is_not_one_to_a_topic() -> None:
    assert coordinator_error(Problem("forbidden", "the right has ended")) is Error.GROUP_AUTHORIZATION_FAILED
