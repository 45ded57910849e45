"""A topic is deleted and created again under every kind of consumer: no position of the old one is used in the new one.

Push is in tests/scenarios/push, the Python client in tests/penstock/consumer, ingestion and Spark are in
tests/spark_ingest.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.scenarios.event_source import Event, EventSource, event_source
from tests.scenarios.gateways import JSON, Topic, in_process_only
from tests.scenarios.groups.group_client import ok, problem, values

MISMATCH = (409, "topic_id_mismatch")
JSON_BODY = {"Content-Type": JSON}


async def create_again(topic: Topic, *lines: str, partitions: int = 1, **config: Any) -> str:
    """Delete a topic, create another one of its name, and return its id."""
    assert (await topic.gateway.send("DELETE", topic.path)).status == 204
    await topic.gateway.create(topic.name, partitions=partitions, **config)
    if lines:
        ok(await topic.post_lines(*lines, partition=0))
    return str((await topic.describe())["topic_id"])


@pytest.fixture
async def topic(new_topic) -> Topic:
    made: Topic = await new_topic(1)
    ok(await made.post_lines(*map(str, range(5))))
    return made


async def test_a_fetch_that_names_the_topic_id_gets_409_if_the_topic_is_another(topic):
    before = await topic.positions()
    assert (before["topic_id"], before["high_watermark"]) == ((await topic.describe())["topic_id"], 5)
    mine = {"topic_id": before["topic_id"]}
    assert len((await topic.fetch(3, **mine)).json["records"]) == 2
    waiting = asyncio.ensure_future(topic.fetch(5, wait_ms=60_000, **mine))
    await asyncio.sleep(0.05)
    new_id = await create_again(topic, "10", "11")
    ended = await asyncio.wait_for(waiting, 45)
    assert problem(ended) in (MISMATCH, (404, "unknown_topic")), "never records of the new topic"
    for offset in (0, 1, 3):
        refused = await topic.fetch(offset, **mine)
        assert (problem(refused), refused.json["topic_id"]) == (MISMATCH, new_id)
    assert len((await topic.fetch(1)).json["records"]) == 1, "an offset alone goes on as before"
    assert len((await topic.fetch(0, topic_id=new_id)).json["records"]) == 2


async def test_one_entry_of_many_may_be_of_another_topic(topic, new_topic):
    other = await new_topic(1)
    await other.post_lines("1")
    old_id = (await topic.describe())["topic_id"]
    await create_again(topic, "10")
    entries = [
        {"topic": topic.name, "partition": 0, "offset": 0, "topic_id": old_id},
        {"topic": other.name, "partition": 0, "offset": 0, "topic_id": (await other.describe())["topic_id"]},
    ]
    answer = await topic.gateway.send("POST", "/v1/fetch", orjson.dumps({"partitions": entries}), JSON_BODY)
    assert answer.status == 207
    refused, read = answer.json["partitions"]
    assert (refused["problem"]["code"], len(read["records"])) == ("topic_id_mismatch", 1)


@pytest.mark.parametrize("partition", [None, 0])
async def test_an_event_stream_that_reconnects_gets_the_new_topic_from_its_start(topic, partition):
    where = topic.path if partition is None else f"{topic.path}/partitions/0"
    async with event_source(topic.gateway.port, f"{where}/records?from=earliest", {}) as stream:
        last = (await stream.take(5))[-1]
    new_id = await create_again(topic, "10", "11", partitions=2)
    async with event_source(topic.gateway.port, f"{where}/records?from=latest", {"Last-Event-ID": last.id}) as again:
        assert again.status == 200
        notice, first, second = await again.take(3)
        assert (notice.kind, notice.json) == ("topic_recreated", {"topic": topic.name, "topic_id": new_id})
        assert (first.json["value"], second.json["value"]) == (10, 11)
    async with event_source(topic.gateway.port, f"{where}/records", {"Last-Event-ID": second.id}) as third:
        ok(await topic.post_lines("12", partition=0))
        assert [event.json["value"] for event in await third.take(1)] == [12], "and goes on from there"
    old = {"Last-Event-ID": "1-0" if partition is None else "1"}
    async with event_source(topic.gateway.port, f"{where}/records", old) as of_before:
        assert [event.json["value"] for event in await of_before.take(2)] == [11, 12], "an id of an earlier release"


async def test_an_event_stream_of_a_topic_that_has_fewer_partitions_now_begins_again(topic):
    many = await topic.gateway.create(f"{topic.name}.many", partitions=4)
    async with event_source(topic.gateway.port, f"{many.path}/records?from=earliest", {}) as stream:
        ok(await many.post_lines("1", partition=3))
        [event] = await stream.take(1)
    await create_again(many, "10", partitions=1)
    async with event_source(topic.gateway.port, f"{many.path}/records?positions={event.id}", {}) as again:
        notice, first = await again.take(2)
        assert (notice.kind, first.json["value"]) == ("topic_recreated", 10)


async def test_a_table_says_that_its_rows_are_of_a_deleted_topic(topic):
    table = await topic.gateway.create(f"{topic.name}.table", partitions=2, cleanup_policy="compact")
    path = f"/v1/topics/{table.name}/table"
    ok(await table.post_records(*({"key": f"k{n}", "value": n} for n in range(20))))
    positions = (await topic.gateway.send("GET", path)).json["positions"]
    async with event_source(topic.gateway.port, f"{path}?follow=false", {}) as stream:
        last_id = (await to_end(stream))[-1].id
    new_id = await create_again(table, partitions=2, cleanup_policy="compact")
    ok(await table.post_records({"key": "new", "value": 1}))
    for name in ("positions", "as_of"):
        refused = await topic.gateway.send("GET", path, **{name: positions})
        assert (problem(refused), refused.json["topic_id"]) == (MISMATCH, new_id)
    async with event_source(topic.gateway.port, f"{path}?follow=false", {"Last-Event-ID": last_id}) as again:
        events = await to_end(again)
    assert [event.kind for event in events] == ["topic_recreated", "message", "table"]
    assert (events[0].json["topic_id"], events[1].json["key"]) == (new_id, "new")


async def test_a_member_gets_the_new_topic_from_its_start_by_token_and_by_commit(group, topic):
    first = await group.polled("a", topics=[topic.name])
    ok(await group.send("PUT", "/offsets", {"offsets": [offset(topic, 2)], "force": True}))
    new_id = await create_again(topic, "10", "11")
    answer = await poll_until(group, "a", first["token"], 2)
    assert (answer["topic_ids"][topic.name], values(answer)) == (new_id, [10, 11])
    await group.polled("a", token=answer["token"])
    assert await group.offsets() == {(topic.name, 0): 2}


async def test_a_commit_or_reset_that_names_the_topic_id_never_moves_another_topic(group, topic):
    [row] = ok(await group.send("PUT", "/offsets", {"offsets": [offset(topic, 4)]}))["offsets"]
    old_id = (await topic.describe())["topic_id"]
    assert row["topic_id"] == old_id
    new_id = await create_again(topic, *map(str, range(10)))
    for method, path in (("PUT", "/offsets"), ("POST", "/reset")):
        refused = await group.send(method, path, {"offsets": [{**offset(topic, 4), "topic_id": old_id}]})
        assert (problem(refused), refused.json["topic_id"]) == (MISMATCH, new_id)
    shifted = ok(await group.send("POST", "/reset", {"shift": 1, "topics": [topic.name]}))
    assert [offset["offset"] for offset in shifted["offsets"]] == [1], "not from the old position"
    ok(await group.send("PUT", "/offsets", {"offsets": [{**offset(topic, 3), "topic_id": new_id}]}))


async def test_a_member_as_an_event_stream_gets_the_new_topic_from_its_start(group, topic):
    path = f"{group.path}/members/a/events?topics={topic.name}"
    async with event_source(topic.gateway.port, path, {}) as stream:
        last = (await stream.take(5))[-1]
    await create_again(topic, "10", "11")
    got: list[Any] = []
    async with asyncio.timeout(45):
        while len(got) < 2:
            async with event_source(topic.gateway.port, path, {"Last-Event-ID": last.id}) as again:
                while len(got) < 2 and (event := await again.next()) is not None:
                    got += [event.json["value"]] if event.kind == "message" else []
                last.id = again.last_id or last.id
    assert got == [10, 11]


async def test_a_share_group_hands_out_the_new_topic_from_its_start(group, topic):
    request = {"topics": [topic.name], "max_records": 3}
    ok(await group.send("PUT", "", {"config": {"kind": "share", "redelivery_delay_ms": 0}}))
    first = ok(await group.send("POST", "/acquire", request))
    await create_again(topic, "10", "11")
    late = await group.send("POST", "/acknowledge", {"lock": first["lock"]})
    answer = ok(await group.send("POST", "/acquire", request))
    assert [(record["offset"], record["value"], record["delivery_count"]) for record in answer["records"]] == [
        (0, 10, 1),
        (1, 11, 1),
    ]
    after = await group.send("POST", "/acknowledge", {"lock": first["lock"]})
    assert late.status in (200, 409)
    assert after.status in (200, 409)
    [part] = (await group.describe())["partitions"]
    assert (part["offset"], part["in_flight"]) == (0, 2), "an outcome of the old records changes none of the new ones"


@in_process_only
@pytest.mark.parametrize("is_made_again", [True, False])
async def test_dead_letters_of_a_deleted_topic_are_not_copied_and_others_are(group, topic, new_topic, is_made_again):
    other, dead = await new_topic(1), await new_topic(1)
    ok(await other.post_lines('"other"'))
    ok(await group.send("PUT", "", {"config": {"kind": "share", "dead_letter_topic": dead.name}}))
    locks = [ok(await group.send("POST", "/acquire", {"topics": [one.name]}))["lock"] for one in (topic, other)]
    assert (await dead.gateway.send("DELETE", dead.path)).status == 204
    for lock in locks:
        ok(await group.send("POST", "/acknowledge", {"lock": lock, "outcome": "reject"}))
    if is_made_again:
        await create_again(topic, "10", "11", "12", "13", "14")
    else:
        assert (await topic.gateway.send("DELETE", topic.path)).status == 204
    await dead.gateway.create(dead.name, partitions=1)
    async with asyncio.timeout(60):
        while True:
            parts = {part["topic"]: part for part in (await group.describe())["partitions"]}
            is_over = not is_made_again or parts[topic.name]["dropped"] == 5
            if is_over and parts[other.name]["dead_letters"] == 1:
                break
            await asyncio.sleep(0.05)
    assert [record["value"] for record in await dead.records()] == ["other"]


async def test_a_source_begins_again_in_the_new_topic(topic):
    async def send(positions: str) -> int:
        headers = {"Penstock-Source": "job", "Penstock-Source-Positions": positions}
        return (await topic.post(b'"x"\n', "application/x-ndjson", headers, 0)).status

    assert [await send("0-4"), await send("0-4"), await send("5-9")] == [200, 200, 200]
    await create_again(topic)
    assert await send("10-14") == 200, "the position of the old topic is not asked for"
    assert [record["offset"] for record in await topic.records()] == [0]


def offset(topic: Topic, at: int) -> dict[str, Any]:
    return {"topic": topic.name, "partition": 0, "offset": at}


async def to_end(stream: EventSource) -> list[Event]:
    events = []
    while (event := await stream.next()) is not None:
        events.append(event)
    return events


async def poll_until(group: Any, member: str, token: str, count: int) -> dict[str, Any]:
    """Poll until there are records: the coordinator learns of the new topic within a sweep."""
    async with asyncio.timeout(45):
        while True:
            answer = await group.poll(member, token=token, wait_ms=500)
            if answer.status == 200 and len(values(answer.json)) >= count:
                return dict(answer.json)
            token = answer.json.get("token", token)
