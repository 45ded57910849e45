"""Share groups (KIP-932) by single messages: locks of both doors, outcomes by member, sessions, and positions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.format import batch as record_batch
from gateway.groups.hosting.calls import ACQUIRE, CONFIGURE, DESCRIBE
from gateway.groups.model.values import ConfigCall, GroupView
from gateway.groups.share.values import AcquireCall, Acquired, Bound
from gateway.kafka import share_sessions
from gateway.kafka.errors import Error
from node.node import Node
from tests.gateway.kafka.served import Connection, batch, connected, kafka_node, produce, request

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with kafka_node(tmp_path) as (node, _):
        await node.shard.create_topic("t", 1, 1, {})
        call = ConfigCall("g", {"kind": "share", "redelivery_delay_ms": 0})
        await node.server.groups.coordinators.call(CONFIGURE, bool, "g", call, creates=True)
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


async def append(client: Connection, count: int, size_bytes: int = 0) -> None:
    values = [b"%d" % number + bytes(size_bytes) for number in range(count)]
    client.send("Produce", 9, produce("t", {0: batch(*values)}))
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0


class Member:
    """A member of group g, which keeps the epoch of its session. Batches of outcomes are (first, last, types)."""

    def __init__(self, client: Connection, node: Node, member_id: str) -> None:
        self._client = client
        self._topic_id = bytes.fromhex(node.shard.topic("t").record.topic_id)
        self.member_id = member_id
        self.epoch = 0

    async def beat(self, epoch: int, *topics: str) -> Any:
        return await self._client.ask(
            "ShareGroupHeartbeat",
            1,
            group_id="g",
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics or None,
        )

    def _topics(self, api: str, batches: Any, number: int) -> list[Any]:
        given = [
            request(f"{api}", "topics.partitions.acknowledgement_batches", first_offset=first, last_offset=last,
                    acknowledge_types=types)
            for first, last, types in batches
        ]  # fmt: skip
        rows = [request(api, "topics.partitions", partition_index=number, acknowledgement_batches=given)]
        return [request(api, "topics", topic_id=self._topic_id, partitions=rows)]

    async def fetch(self, *batches: Any, epoch: int | None = None, number: int = 0, **fields: Any) -> Any:
        """Returns the row of the partition, or the whole answer if it has none."""
        epoch = self.epoch if epoch is None else epoch
        given = {"max_wait_ms": 0, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100} | fields
        topics = self._topics("ShareFetch", batches, number)
        answer = await self._client.ask(
            "ShareFetch", 2, group_id="g", member_id=self.member_id, share_session_epoch=epoch, topics=topics, **given
        )
        self.epoch = self.epoch if answer.error_code else epoch + 1
        return answer.responses[0].partitions[0] if answer.responses else answer

    async def acquired(self, *batches: Any, **fields: Any) -> list[tuple[int, int, int]]:
        row = await self.fetch(*batches, **fields)
        return [(one.first_offset, one.last_offset, one.delivery_count) for one in getattr(row, "acquired_records", ())]

    async def acknowledge(self, *batches: Any, epoch: int | None = None, version: int = 2) -> int:
        """Returns the error of the partition, or of the whole."""
        epoch = self.epoch if epoch is None else epoch
        topics = self._topics("ShareAcknowledge", batches, 0) if batches else []
        answer = await self._client.ask(
            "ShareAcknowledge",
            version,
            group_id="g",
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=topics,
        )
        self.epoch = self.epoch if answer.error_code else epoch + 1
        code: int = answer.responses[0].partitions[0].error_code if answer.responses else answer.error_code
        return code


async def over_http(node: Node, count: int, end: int) -> Acquired:
    record = node.shard.topic("t").record
    call = AcquireCall("g", f"lock-{end}-{count}", ("t",), (Bound("t", record.topic_id, 0, 0, end),), count)
    return await node.server.groups.coordinators.call(ACQUIRE, Acquired, "g", call)


async def view_of(node: Node) -> GroupView:
    return await node.server.groups.coordinators.call(DESCRIBE, GroupView, "g", "g")


async def test_members_of_both_doors_share_records(client: Connection, node: Node) -> None:
    await append(client, 10)
    member = Member(client, node, "m")
    row = await member.fetch(max_records=4)
    assert [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records] == [(0, 3, 1)]
    assert [record.value for record in record_batch.decode(bytes(row.records))] == [b"%d" % n for n in range(10)]
    assert [(one.first, one.last) for one in (await over_http(node, 2, 10)).granted] == [(4, 5)]
    assert await member.acquired() == [(6, 9, 1)]
    # Outcomes of two locks, and of a record that the other door has
    assert await member.acknowledge((0, 3, [ACCEPT]), (6, 9, [ACCEPT, RELEASE, REJECT, GAP])) == 0
    assert await member.acknowledge((4, 4, [ACCEPT])) == Error.INVALID_RECORD_STATE
    assert await member.acknowledge((0, 0, [ACCEPT])) == Error.INVALID_RECORD_STATE
    assert await member.acquired() == [(7, 7, 2)]
    assert await member.acknowledge((7, 7, [RENEW])) == 0
    share = (await view_of(node)).shares[0]
    assert (share.in_flight, share.dropped, share.start) == (3, 1, 4)


async def test_outcomes_come_with_a_fetch_and_the_end_of_a_session_releases_the_rest(
    client: Connection, node: Node
) -> None:
    await append(client, 3)
    member = Member(client, node, "m")
    assert await member.acquired() == [(0, 2, 1)]
    row = await member.fetch((0, 0, [ACCEPT]), (9, 9, [ACCEPT]))
    assert (row.acknowledge_error_code, row.error_code) == (Error.INVALID_RECORD_STATE, 0), "one of both"
    row = await member.fetch((1, 1, [ACCEPT]), epoch=-1)
    assert (row.acknowledge_error_code, row.acquired_records) == (0, [])
    assert await member.acknowledge(epoch=3) == Error.SHARE_SESSION_NOT_FOUND
    assert await Member(client, node, "n").acquired() == [(2, 2, 2)]


async def test_a_session_of_another_epoch_is_refused(client: Connection, node: Node) -> None:
    await append(client, 1)
    member = Member(client, node, "m")
    assert (await member.fetch(epoch=1)).error_code == Error.SHARE_SESSION_NOT_FOUND
    assert await member.acquired(epoch=0) == [(0, 0, 1)]
    assert (await member.fetch(epoch=2)).error_code == Error.INVALID_SHARE_SESSION_EPOCH
    assert await member.acknowledge((0, 0, [ACCEPT]), epoch=0) == Error.INVALID_SHARE_SESSION_EPOCH
    assert await member.acknowledge((0, 0, [ACCEPT]), epoch=1) == 0


@pytest.mark.parametrize(
    "batches",
    [
        [(0, 2, [ACCEPT, ACCEPT])],
        [(2, 1, [ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 0, [])],
    ],
)
async def test_outcomes_that_make_no_sense_change_nothing(client: Connection, node: Node, batches: Any) -> None:
    await append(client, 3)
    member = Member(client, node, "m")
    assert await member.acquired() == [(0, 2, 1)]
    assert await member.acknowledge(*batches) == Error.INVALID_REQUEST
    assert (await view_of(node)).shares[0].in_flight == 3
    assert await member.acknowledge((0, 0, [RENEW]), version=1) == Error.INVALID_REQUEST, "of version 2"


async def test_partitions_that_cannot_be_read(client: Connection, node: Node) -> None:
    member = Member(client, node, "m")
    assert (await member.fetch(number=7)).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    member._topic_id = b"x" * 16
    assert (await member.fetch(epoch=0)).error_code == Error.UNKNOWN_TOPIC_ID
    await node.shard.delete_topic("t")


async def test_what_does_not_fit_is_given_back(client: Connection, node: Node) -> None:
    for _ in range(3):
        await append(client, 2, 300_000)
    member = Member(client, node, "m")
    assert await member.acquired(max_bytes=1) == [(0, 1, 1)], "one batch at least"
    assert await member.acquired(max_bytes=1) == [(2, 3, 1)]


async def test_members_join_with_all_partitions_and_are_shown(client: Connection, node: Node) -> None:
    member = Member(client, node, "m")
    assert (await member.beat(3)).error_code == Error.UNKNOWN_MEMBER_ID
    joined = await member.beat(0, "t")
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 5000)
    assert [one.partitions for one in joined.assignment.topic_partitions] == [[0]]
    assert (await member.beat(1)).assignment is None
    await node.shard.alter_topic("t", {}, 2)
    grown = await member.beat(1)
    assert (grown.member_epoch, grown.assignment.topic_partitions[0].partitions) == (2, [0, 1])
    assert (await member.beat(1)).assignment is not None, "an answer was lost"
    assert (await member.beat(9)).error_code == Error.FENCED_MEMBER_EPOCH
    [group] = (await client.ask("ShareGroupDescribe", 1, group_ids=["g"])).groups
    assert (group.group_state, [one.member_id for one in group.members]) == ("Stable", ["m"])
    view = await view_of(node)
    assert (view.state, view.members[0].topics) == ("stable", ("t",))
    [row] = (await client.ask("ListGroups", 5, types_filter=["share"])).groups
    assert (row.group_id, row.group_state) == ("g", "Stable")
    assert (await client.ask("DeleteGroups", 2, groups_names=["g"])).results[0].error_code == Error.NON_EMPTY_GROUP
    assert (await member.beat(-1)).member_epoch == -1
    assert (await view_of(node)).state == "empty"


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "error"),
    [
        ("", 0, ["t"], Error.INVALID_REQUEST),
        ("m", -2, ["t"], Error.INVALID_REQUEST),
        ("m", 0, [], Error.INVALID_REQUEST),
        ("m", 0, ["__groups"], Error.INVALID_TOPIC),
    ],
)
async def test_what_a_member_may_not_say(
    client: Connection, node: Node, member_id: str, epoch: int, topics: list[str], error: Error
) -> None:
    assert (await Member(client, node, member_id).beat(epoch, *topics)).error_code == error


async def test_groups_of_other_kinds_are_refused(client: Connection, node: Node) -> None:
    await node.server.groups.coordinators.call(CONFIGURE, bool, "c", ConfigCall("c", {"kind": "consumer"}))
    beat = await client.ask(
        "ShareGroupHeartbeat", 1, group_id="c", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    assert (beat.error_code, "consumer" in beat.error_message) == (Error.GROUP_ID_NOT_FOUND, True)
    [group] = (await client.ask("ShareGroupDescribe", 1, group_ids=["c"])).groups
    assert group.error_code == Error.GROUP_ID_NOT_FOUND
    [group] = (await client.ask("ConsumerGroupDescribe", 1, group_ids=["g"])).groups
    assert group.error_code == Error.GROUP_ID_NOT_FOUND
    joins = {"rebalance_timeout_ms": 1000, "topic_partitions": [], "subscribed_topic_names": ["t"]}
    beat = await client.ask("ConsumerGroupHeartbeat", 1, group_id="g", member_id="m", member_epoch=0, **joins)
    assert beat.error_code == Error.GROUP_ID_NOT_FOUND


async def test_positions_are_shown_set_and_forgotten(client: Connection, node: Node) -> None:
    await append(client, 5)
    member = Member(client, node, "m")
    await member.acquired(max_records=2)
    await member.acknowledge((0, 0, [ACCEPT]))

    async def shown(topics: Any = None) -> list[tuple[int, int, int]]:
        groups = [request("DescribeShareGroupOffsets", "groups", group_id="g", topics=topics)]
        [group] = (await client.ask("DescribeShareGroupOffsets", 1, groups=groups)).groups
        assert group.error_code == 0
        return [(one.partition_index, one.start_offset, one.lag) for of in group.topics for one in of.partitions]

    assert await shown() == [(0, 1, 4)]
    assert await shown([request("DescribeShareGroupOffsets", "groups.topics", topic_name="t", partitions=[0, 1])]) == [
        (0, 1, 4),
        (1, -1, -1),
    ]
    one = request("AlterShareGroupOffsets", "topics.partitions", partition_index=0, start_offset=3)
    topics = [request("AlterShareGroupOffsets", "topics", topic_name="t", partitions=[one])]
    altered = await client.ask("AlterShareGroupOffsets", 0, group_id="g", topics=topics)
    assert altered.error_code == Error.NON_EMPTY_GROUP, "the member has a record"
    await member.acknowledge(epoch=-1)
    altered = await client.ask("AlterShareGroupOffsets", 0, group_id="g", topics=topics)
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)
    assert await shown() == [(0, 3, 2)]
    topics = [request("DeleteShareGroupOffsets", "topics", topic_name=name) for name in ("t", "u")]
    deleted = await client.ask("DeleteShareGroupOffsets", 0, group_id="g", topics=topics)
    assert [one.error_code for one in deleted.responses] == [0, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert await shown() == []
    assert (await client.ask("AlterShareGroupOffsets", 0, group_id="no", topics=[])).error_code == 0


async def test_sessions_and_their_partitions_are_bounded(
    client: Connection, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_sessions, "SESSIONS_MAX", 2)
    monkeypatch.setattr(share_sessions, "PARTITIONS_MAX", 2)
    first, second, third = (Member(client, node, name) for name in "abc")
    assert (await first.fetch()).error_code == 0
    assert (await second.fetch()).error_code == 0
    assert (await third.fetch()).error_code == Error.SHARE_SESSION_LIMIT_REACHED
    assert (await second.fetch(number=1)).error_code == Error.SHARE_SESSION_LIMIT_REACHED
    await first.acknowledge(epoch=-1)
    assert (await third.fetch()).error_code == 0


def test_an_owner_of_most_sessions_gives_way_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_sessions, "SESSIONS_MAX", 4)
    monkeypatch.setattr(share_sessions, "PARTITIONS_MAX", 8)
    sessions = share_sessions.ShareSessions()

    def use(owner: str, member: str, partitions: int, epoch: int = 0) -> Error:
        session = sessions.use("g", member, epoch, owner, 1.0)
        if isinstance(session, Error):
            return session
        rows = [request("ShareFetch", "topics.partitions", partition_index=number) for number in range(partitions)]
        return sessions.update(session, [request("ShareFetch", "topics", topic_id=bytes(16), partitions=rows)], [])

    full, gone = Error.SHARE_SESSION_LIMIT_REACHED, Error.SHARE_SESSION_NOT_FOUND
    assert [use("a", f"a{number}", 2) for number in range(5)] == [0, 0, 0, 0, full]
    assert [use("b", f"b{number}", 2) for number in range(3)] == [0, 0, full]
    assert [use("a", f"a{number}", 0, 1) for number in range(4)] == [gone, gone, 0, 0]
    assert use("a", "a9", 0) == full
