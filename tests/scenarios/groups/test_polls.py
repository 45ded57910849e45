"""Polls of members: tokens, lost answers, rebalances between polls, long polls."""

from __future__ import annotations

import asyncio
import time

from msgspec import structs

from gateway.fetch import partition_reads
from gateway.groups.model.token import decode_token, encode_token
from tests.scenarios.gateways import in_process_only
from tests.scenarios.groups.group_client import ok, problem, values
from tests.waiting import until


async def until_members(group, count):
    async with asyncio.timeout(45):
        while len((await group.describe())["members"]) < count:
            await asyncio.sleep(0.01)


async def test_a_token_commits_its_delivery_and_a_repeat_gives_the_same_records(group, new_topic):
    topic = await new_topic(2)
    await topic.post_lines("1", "2", partition=0)
    await topic.post_lines("3", partition=1)
    first = await group.polled("a", topics=[topic.name])
    assert values(first) == [1, 2, 3]
    assert values(await group.polled("a")) == [1, 2, 3]  # nothing was committed
    await topic.post_lines("4", partition=1)
    second = await group.polled("a", token=first["token"])
    assert values(second) == [4]
    assert values(await group.polled("a", token=first["token"])) == [4]
    assert values(await group.polled("a", token=second["token"])) == []
    assert await group.offsets() == {(topic.name, 0): 2, (topic.name, 1): 2}


async def test_a_repeat_of_a_poll_with_a_limit_gives_the_same_records_and_no_partition_waits(group, new_topic):
    topic = await new_topic(4)
    for partition in range(4):
        await topic.post_lines(*(str(10 * partition + number) for number in range(4)), partition=partition)
    token: str | None = None
    seen: list[list[int]] = []
    for _ in range(8):
        limited = {"topics": [topic.name], "token": token, "max_records": 2}
        given = [await group.polled("a", **limited) for _ in range(3)]
        assert [values(answer) for answer in given] == [values(given[0])] * 3
        seen.append(values(given[0]))
        token = given[-1]["token"]
    assert sorted(value for some in seen for value in some) == [
        10 * partition + number for partition in range(4) for number in range(4)
    ]
    assert {values[0] // 10 for values in seen[:5]} == {0, 1, 2, 3}, seen


async def test_a_poll_waits_for_records(group, topic):
    waiting = asyncio.ensure_future(group.polled("a", topics=[topic.name], wait_ms=20_000))
    await asyncio.sleep(0.05)
    await topic.post_lines("1")
    assert values(await waiting) == [1]


@in_process_only
async def test_a_poll_without_records_reads_nothing_at_its_deadline(group, new_topic, monkeypatch):
    topic = await new_topic(2)
    await topic.post_lines("1", partition=1)
    reads, read = [], partition_reads.read_many

    async def counted(*arguments):
        reads.append(arguments)
        return await read(*arguments)

    monkeypatch.setattr(partition_reads, "read_many", counted)
    first = await group.polled("a", topics=[topic.name])
    assert (values(first), len(reads)) == ([1], 1)
    empty = await group.polled("a", token=first["token"], wait_ms=50)
    assert (values(empty), len(reads)) == ([], 1)
    assert await group.offsets() == {(topic.name, 0): 0, (topic.name, 1): 1}
    await topic.post_lines("2")
    assert values(await group.polled("a", token=empty["token"])) == [2]


async def test_a_poll_that_waits_takes_over_a_new_assignment(group, new_topic):
    topic = await new_topic(2)
    first = await group.polled("a", topics=[topic.name])
    waiting = asyncio.ensure_future(group.polled("b", topics=[topic.name], wait_ms=60_000))
    await until_members(group, 2)
    await group.polled("a", token=first["token"])  # gives one up
    [number] = [
        partition["partition"] for partition in (await group.describe())["partitions"] if partition["member_id"] == "b"
    ]
    await topic.post_lines("1", partition=number)
    assert values(await waiting) == [1]


async def test_a_poll_that_waits_gives_up_a_partition_at_once(group, new_topic):
    topic = await new_topic(2)
    await group.polled("a", topics=[topic.name])
    waiting = asyncio.ensure_future(group.polled("a", wait_ms=60_000))
    await asyncio.sleep(0.05)
    joining = asyncio.ensure_future(group.polled("b", topics=[topic.name], wait_ms=60_000))
    async with asyncio.timeout(45):
        while {partition["member_id"] for partition in (await group.describe())["partitions"]} != {"a", "b"}:
            await asyncio.sleep(0.01)
        for partition in range(2):
            await topic.post_lines("1", partition=partition)
        assert [answer["assigned"] for answer in await asyncio.gather(waiting, joining)] == [1, 1]


async def test_a_poll_without_partitions_waits_to_its_deadline(group, topic):
    await group.polled("a", topics=[topic.name])
    began = time.monotonic()
    assert (await group.polled("b", topics=[topic.name], wait_ms=150))["assigned"] == 0
    assert time.monotonic() - began >= 0.14


@in_process_only
async def test_a_node_that_stops_answers_open_polls(group, topic):
    """One poll has a partition, the other has none."""
    for member in "aba":  # until the assignment is settled
        await group.polled(member, topics=[topic.name])
    waiting = [asyncio.ensure_future(group.polled(member, topics=[topic.name], wait_ms=60_000)) for member in "ab"]
    await until(lambda: topic.gateway.node.long_polls.open == 2)
    await group.send("PATCH", "", {"config": {"retention_ms": 60_000}})  # stored behind what the polls have changed
    await topic.gateway.node.drain()
    assert [answer["assigned"] for answer in await asyncio.wait_for(asyncio.gather(*waiting), 45)] == [1, 0]


async def test_a_member_goes_on_without_a_topic_that_was_deleted(group, new_topic):
    remaining, gone = await new_topic(1), await new_topic(1)
    await remaining.post_lines("1")
    names = [remaining.name, gone.name]
    first = await group.polled("a", topics=names)
    joined = ok(await group.heartbeat(member_id="b", topics=names))
    assert (await group.gateway.send("DELETE", f"/v1/topics/{gone.name}")).status == 204
    await group.polled("a", topics=names, token=first["token"])
    ok(await group.heartbeat(member_id="b", member_epoch=joined["member_epoch"], topics=names))
    assert problem(await group.poll("c", topics=names)) == (404, "unknown_topic")


async def test_a_member_that_is_removed_during_its_first_poll_stays_away(group, topic):
    waiting = asyncio.ensure_future(group.poll("a", topics=[topic.name], wait_ms=20_000))
    while not (shown := await group.send("GET")).json.get("members"):
        assert shown.status in (200, 404)
    assert (await group.leave("a")).status == 204
    assert problem(await waiting) == (404, "unknown_member")
    assert (await group.describe())["state"] == "empty"


async def test_a_group_begins_where_its_setting_says(group, topic):
    await topic.post_lines("1")
    assert (await group.send("PUT", "", {"config": {"start": "latest"}})).status == 201
    first = await group.polled("a", topics=[topic.name])
    assert values(first) == []
    await topic.post_lines("2")
    assert values(await group.polled("a")) == [2]  # the start is kept, with or without a token


async def test_a_group_that_must_have_a_position_says_that_it_has_none(group, topic):
    await group.send("PUT", "", {"config": {"start": "error"}})
    assert problem(await group.poll("a", topics=[topic.name])) == (409, "no_committed_offset")


async def test_a_position_below_the_log_start_moves_to_the_first_record(group, topic):
    await topic.post_lines("1", "2")
    first = await group.polled("a", topics=[topic.name], max_records=1)
    await topic.gateway.send("DELETE", f"{topic.path}/partitions/0/records", before=2)
    await topic.post_lines("3")
    assert values(await group.polled("a", token=first["token"])) == [3]


async def test_after_a_log_became_shorter_the_records_that_follow_are_delivered(group, topic):
    await topic.post_lines("1")
    first = await group.polled("a", topics=[topic.name])
    token = decode_token(first["token"])
    [end] = token.positions
    ahead = structs.replace(token, positions=(structs.replace(end, offset=100),))
    moved = await group.polled("a", token=encode_token(ahead))
    assert await group.offsets() == {(topic.name, 0): 1}
    await topic.post_lines("2")
    assert values(await group.polled("a", token=moved["token"])) == [2]
    assert problem(await group.poll("a", token=first["token"])) == (409, "stale_token")


async def test_a_filter_passes_over_records_and_the_token_commits_past_them(group, topic):
    await topic.post_lines("1", "2", "3", "4")
    first = await group.polled("a", topics=[topic.name], filter=["value=2"])
    assert values(first) == [2]
    last = await group.polled("a", token=first["token"], filter=["value=9"])
    assert values(last) == []
    await group.polled("a", token=last["token"])
    assert await group.offsets() == {(topic.name, 0): 4}


async def test_a_poll_with_a_filter_waits_for_a_record_that_passes(group, new_topic):
    topic = await new_topic(2)
    await topic.post_lines("1", partition=0)
    waiting = asyncio.ensure_future(group.polled("a", topics=[topic.name], wait_ms=20_000, filter=["value=3"]))
    await asyncio.sleep(0.05)
    await topic.post_lines("2", partition=1)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await topic.post_lines("3", partition=0)
    delivery = await waiting
    assert values(delivery) == [3]
    await group.polled("a", token=delivery["token"])
    assert await group.offsets() == {(topic.name, 0): 2, (topic.name, 1): 1}


async def test_a_poll_waits_for_min_bytes_or_its_time(group, topic):
    await topic.post_lines("1")
    token = (await group.polled("a", topics=[topic.name]))["token"]
    waiting = asyncio.ensure_future(group.polled("a", token=token, min_bytes=100_000, wait_ms=60_000))
    await topic.post_lines("2")
    await topic.post_lines('"' + "x" * 100_000 + '"')
    assert [len(str(part)) for part in values_of_parts(await waiting)] == [1, 100_000]
    again = await group.polled("a", token=token, min_bytes=2**31 - 1, wait_ms=10)
    assert len(values_of_parts(again)) == 2


def values_of_parts(delivery):
    return [record["value"] for part in delivery["partitions"] for record in part["records"]]
