"""Groups of the consumer protocol (KIP-848) by single messages: members of both doors in one, and instances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.groups.core import classic
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.calls import COMMIT, CONFIGURE, DESCRIBE, HEARTBEAT, RESET
from gateway.groups.model.values import (
    CommitCall,
    ConfigCall,
    GroupView,
    HeartbeatCall,
    Membership,
    Position,
    ResetCall,
)
from gateway.kafka.errors import Error
from node.node import Node
from tests.gateway.kafka.served import Connection, connected, kafka_node, request
from tests.gateway.kafka.test_groups import join

JOIN = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}


class Member:
    """A member of group g, which sends heartbeats and remembers its answers."""

    def __init__(self, client: Connection, node: Node, member_id: str, **fields: Any) -> None:
        self._client = client
        self._node = node
        self.member_id = member_id
        self.epoch = 0
        self.assigned: set[int] = set()
        self._fields = {"group_id": "g", "subscribed_topic_names": ["t"], **fields}

    async def beat(self, epoch: int | None = None, **fields: Any) -> Any:
        """Sends a heartbeat, as it is given. Returns the answer."""
        epoch = self.epoch if epoch is None else epoch
        whole = self._fields | JOIN if epoch == 0 else {"group_id": "g", "instance_id": self._fields.get("instance_id")}
        answer = await self._client.ask(
            "ConsumerGroupHeartbeat", 1, member_id=self.member_id, member_epoch=epoch, **whole | fields
        )
        if answer.error_code == 0 and epoch >= 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {number for one in answer.assignment.topic_partitions for number in one.partitions}
        return answer

    async def own(self) -> Any:
        """Says that it has what it was assigned, and no more."""
        topic_id = bytes.fromhex(self._node.shard.topic("t").record.topic_id)
        owned = [request("ConsumerGroupHeartbeat", "topic_partitions", topic_id=topic_id, partitions=[*self.assigned])]
        return await self.beat(topic_partitions=owned)

    async def commit(self, offset: int, partition: int = 0, epoch: int | None = None, version: int = 9) -> int:
        """Commits a position. Returns the error."""
        topic_id = bytes.fromhex(self._node.shard.topic("t").record.topic_id)
        one = request("OffsetCommit", "topics.partitions", partition_index=partition, committed_offset=offset)
        topics = [request("OffsetCommit", "topics", name="t", topic_id=topic_id, partitions=[one])]
        answer = await self._client.ask(
            "OffsetCommit",
            version,
            group_id="g",
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id,
            topics=topics,
        )
        code: int = answer.topics[0].partitions[0].error_code
        return code


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(classic, "INITIAL_DELAY_MS", 0)
    async with kafka_node(tmp_path) as (node, _):
        await node.shard.create_topic("t", 4, 1, {})
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


async def over_http(node: Node, epoch: int = 0, owned: Any = None) -> Membership:
    call = HeartbeatCall("g", "over-http", epoch, ("t",), owned)
    return await node.server.groups.coordinators.call(HEARTBEAT, Membership, "g", call, creates=True)


async def view_of(node: Node) -> GroupView:
    return await node.server.groups.coordinators.call(DESCRIBE, GroupView, "g", "g")


async def fetched(client: Connection, version: int = 9, **fields: Any) -> Any:
    groups = [request("OffsetFetch", "groups", group_id="g", topics=None, **fields)]
    return (await client.ask("OffsetFetch", version, groups=groups)).groups[0]


async def describe(client: Connection, version: int = 1) -> Any:
    return (await client.ask("ConsumerGroupDescribe", version, group_ids=["g"])).groups[0]


async def test_members_of_both_doors_share_a_group_by_revoking_before_assigning(client: Connection, node: Node) -> None:
    member = Member(client, node, "m")
    joined = await member.beat()
    assert (joined.error_code, member.assigned, joined.heartbeat_interval_ms) == (0, {0, 1, 2, 3}, 5000)
    assert (await member.beat()).assignment is None, "it is the one that the member knows"
    other = await over_http(node)
    assert other.assignment == ()
    answer = await member.beat()
    assert (len(member.assigned), answer.member_epoch > joined.member_epoch) == (2, True)
    assert (await over_http(node, other.member_epoch)).assignment == ()
    given_up = ({0, 1, 2, 3} - member.assigned).pop()
    assert await member.commit(5, given_up) == 0, "it may still commit what it has not given up"
    assert await member.commit(6, given_up, joined.member_epoch) == 0, "also with the epoch in which it read that"
    assert (await describe(client)).group_state == "Reconciling"
    assert await member.commit(7, given_up) == 0
    await member.own()
    grown = await over_http(node, (await over_http(node)).member_epoch)
    assert {one.partition for one in grown.assignment} == {0, 1, 2, 3} - member.assigned
    assert {one.partition: one.offset for one in grown.assignment}[given_up] == 7
    assert await member.commit(8, given_up) == Error.STALE_MEMBER_EPOCH
    described = await describe(client)
    assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
    assert [
        (one.member_id, one.subscribed_topic_names, set(one.assignment.topic_partitions[0].partitions), one.member_type)
        for one in described.members
    ] == [("m", ["t"], member.assigned, 1), ("over-http", ["t"], {0, 1, 2, 3} - member.assigned, 1)]
    assert described.members[0].assignment.topic_partitions[0].topic_name == "t"
    view = await view_of(node)
    assert (view.state, [one.member_id for one in view.members]) == ("stable", ["m", "over-http"])
    [row] = (await client.ask("ListGroups", 5, types_filter=["Consumer"])).groups
    assert (row.group_state, row.group_type, row.protocol_type) == ("Stable", "consumer", "consumer")
    assert (await member.beat(-1)).member_epoch == -1
    assert len((await over_http(node, grown.member_epoch)).assignment) == 4


async def test_epochs_and_ids_that_are_not_of_the_group_are_refused(client: Connection, node: Node) -> None:
    member = Member(client, node, "m")
    assert (await member.beat(5)).error_code == Error.UNKNOWN_MEMBER_ID, "without a group it joins again"
    assert (await member.beat(-1)).error_code == 0
    await member.beat()
    assert (await member.beat(member.epoch + 1)).error_code == Error.FENCED_MEMBER_EPOCH
    assert (await Member(client, node, "n").beat(member.epoch)).error_code == Error.UNKNOWN_MEMBER_ID
    for epoch, expected in ((member.epoch + 1, Error.STALE_MEMBER_EPOCH), (member.epoch, Error.NONE)):
        assert await member.commit(3, epoch=epoch) == expected
        assert (await fetched(client, member_id="m", member_epoch=epoch)).error_code == expected
    assert await Member(client, node, "n").commit(3) == Error.UNKNOWN_MEMBER_ID
    assert (await fetched(client, member_id="n", member_epoch=1)).error_code == Error.UNKNOWN_MEMBER_ID
    assert await Member(client, node, "").commit(3, epoch=-1) == Error.UNKNOWN_MEMBER_ID, "the group has members"


async def test_positions_by_topic_id(client: Connection, node: Node) -> None:
    member = Member(client, node, "m")
    await member.beat()
    assert await member.commit(9, version=10) == 0
    [topic] = (await fetched(client, 10)).topics
    assert (topic.topic_id.hex(), topic.partitions[0].committed_offset) == (
        node.shard.topic("t").record.topic_id,
        9,
    )
    unknown = [request("OffsetFetch", "groups.topics", topic_id=b"x" * 16, partition_indexes=[0])]
    groups = [request("OffsetFetch", "groups", group_id="g", topics=unknown)]
    [found] = (await client.ask("OffsetFetch", 10, groups=groups)).groups
    assert (found.error_code, found.topics[0].partitions[0].error_code) == (0, Error.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, Error.INVALID_REQUEST),
        ({"member_id": "a\nb"}, Error.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, Error.INVALID_REQUEST),
        ({"topic_partitions": None}, Error.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Error.INVALID_REQUEST),
        ({"subscribed_topic_names": [f"t{n}" for n in range(1001)]}, Error.INVALID_REQUEST),
        ({"instance_id": ""}, Error.INVALID_REQUEST),
        ({"member_epoch": -3}, Error.INVALID_REQUEST),
        ({"member_epoch": -2}, Error.INVALID_REQUEST),
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
        ({"server_assignor": "own"}, Error.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_names": ["__groups"]}, Error.INVALID_TOPIC),
        ({"subscribed_topic_regex": "t("}, Error.INVALID_REGULAR_EXPRESSION),
    ],
)
async def test_what_a_member_may_not_say(client: Connection, node: Node, fields: Any, error: Error) -> None:
    given = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"], **JOIN} | fields
    answer = await client.ask("ConsumerGroupHeartbeat", 1, **given)
    assert (answer.error_code, answer.assignment) == (error, None)
    assert (await describe(client)).error_code == Error.GROUP_ID_NOT_FOUND, "nothing was made"


async def test_a_member_of_version_0_gets_an_id(client: Connection) -> None:
    given = {"group_id": "g", "member_epoch": 0, "subscribed_topic_names": ["t"], **JOIN}
    first = await client.ask("ConsumerGroupHeartbeat", 0, **given)
    assert (first.error_code, bool(first.member_id), first.assignment is not None) == (0, True, True)
    answer = await client.ask(
        "ConsumerGroupHeartbeat", 0, group_id="g", member_id=first.member_id, member_epoch=first.member_epoch
    )
    assert answer.error_code == 0


async def test_an_expression_takes_in_topics_that_come_later(client: Connection, node: Node) -> None:
    pytest.importorskip("re2")
    member = Member(client, node, "m", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    answer = await member.beat()
    assert (answer.error_code, len(answer.assignment.topic_partitions)) == (0, 1)
    await node.shard.create_topic("t2", 1, 1, {})
    hosted = node.server.groups.coordinators.present("g")
    assert hosted is not None
    hosted.decide(Coordinator.sweep)
    answer = await member.beat()
    assert len(answer.assignment.topic_partitions) == 2
    assert (await describe(client)).members[0].subscribed_topic_regex == "t.*"
    answer = await member.beat(subscribed_topic_regex="", subscribed_topic_names=["t2"])
    assert [len(one.partitions) for one in answer.assignment.topic_partitions] == [1]


async def test_an_instance_keeps_its_partitions_over_a_restart(client: Connection, node: Node) -> None:
    former, other = Member(client, node, "a", instance_id="i"), Member(client, node, "b")
    await former.beat()
    await other.beat()
    await former.beat()
    await former.own()
    await other.beat()
    before = set(former.assigned)
    assert (len(before), len(other.assigned)) == (2, 2)
    successor = Member(client, node, "a2", instance_id="i")
    assert (await successor.beat()).error_code == Error.UNRELEASED_INSTANCE_ID
    assert (await former.beat(-2)).member_epoch == -2
    assert await former.commit(1, min(before)) == 0
    answer = await successor.beat()
    assert (answer.error_code, successor.assigned) == (0, before)
    assert (await other.beat()).assignment is None, "nothing has moved"
    assert (await former.beat(0)).error_code == Error.UNRELEASED_INSTANCE_ID
    assert (await former.beat(former.epoch)).error_code == Error.FENCED_INSTANCE_ID
    assert await former.commit(2, min(before)) == Error.UNKNOWN_MEMBER_ID
    assert await successor.commit(2, min(before)) == 0
    described = await describe(client)
    assert [(one.member_id, one.instance_id) for one in described.members] == [("a2", "i"), ("b", None)]
    hosted = node.server.groups.coordinators.present("g")
    assert hosted is not None
    await hosted.wait_stored(hosted._sequence)
    hosted.close(hosted.error or Exception("replaced"))  # type: ignore[arg-type]
    assert (await successor.beat()).assignment is not None, "another coordinator does not know what was sent"
    assert successor.assigned == before
    assert (await successor.beat(-1)).member_epoch == -1
    await other.beat()
    assert len(other.assigned) == 4


async def test_members_of_the_classic_protocol_and_of_this_one_exclude_each_other(
    client: Connection, node: Node
) -> None:
    member = Member(client, node, "m")
    classic_member = (await join(client, version=3)).member_id
    answer = await member.beat()
    assert (answer.error_code, "classic protocol" in answer.error_message) == (Error.GROUP_ID_NOT_FOUND, True)
    assert (await describe(client)).error_code == Error.GROUP_ID_NOT_FOUND, "tools then ask for a classic group"
    await client.ask("LeaveGroup", 2, group_id="g", member_id=classic_member)
    assert (await member.beat()).error_code == 0
    assert (await join(client, version=3)).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    [row] = (await client.ask("ListGroups", 5)).groups
    assert (row.group_state, row.group_type) == ("Stable", "consumer")


async def test_the_assignor_that_most_members_name_assigns(client: Connection, node: Node) -> None:
    first, second = (Member(client, node, name, server_assignor="range") for name in "ab")
    await first.beat()
    assert (await describe(client)).assignor_name == "range"
    await second.beat()
    await first.beat()
    await first.own()
    await second.beat()
    assert (first.assigned, second.assigned) == ({0, 1}, {2, 3})
    call = ConfigCall("g", {"assignor": "round_robin"})
    await node.server.groups.coordinators.call(CONFIGURE, bool, "g", call)
    assert (await describe(client)).assignor_name == "round_robin", "a setting of the group is above them"


async def test_after_a_forced_reset_members_join_again_and_read_from_there(client: Connection, node: Node) -> None:
    member, coordinators = Member(client, node, "m"), node.server.groups.coordinators
    await member.beat()
    position = Position("t", node.shard.topic("t").record.topic_id, 0, 3)
    await coordinators.call(RESET, None, "g", ResetCall("g", (position,), force=True))
    assert await member.commit(50) == Error.STALE_MEMBER_EPOCH
    assert (await member.beat()).error_code == Error.FENCED_MEMBER_EPOCH
    assert (await member.beat(0)).error_code == 0
    assert (await fetched(client)).topics[0].partitions[0].committed_offset == 3
    assert await member.commit(4) == 0
    call = CommitCall("g", None, 0, (position,), force=True)
    await coordinators.call(COMMIT, None, "g", call)
    assert (await member.beat()).error_code == 0


async def test_a_late_heartbeat_of_a_member_that_was_away_is_its_own(client: Connection, node: Node) -> None:
    """An instance that comes back with its own id goes on."""
    member = Member(client, node, "m", instance_id="i")
    await member.beat()
    await member.beat(-2)
    await asyncio.sleep(0)
    answer = await member.beat(0)
    assert (answer.error_code, member.assigned) == (0, {0, 1, 2, 3})
    assert (await Member(client, node, "n", instance_id="i").beat()).error_code == Error.UNRELEASED_INSTANCE_ID
