"""A topic gains partitions: old records stay, new ones go to all partitions, and stream readers miss none."""

import asyncio
import json

from gateway.produce.partitioner import kafka_hash
from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import JSON, NDJSON, in_process_only


async def patch(topic, **fields):
    return await topic.gateway.send("PATCH", topic.path, json.dumps(fields).encode(), {"Content-Type": JSON})


async def test_a_topic_that_grew_has_its_records_and_takes_more_in_every_partition(new_topic):
    topic = await new_topic(2)
    await topic.post_lines("1", to=1)
    grown = await patch(topic, partitions=5, config={"flush_ms": 70})
    assert grown.status == 200
    assert [partition["partition"] for partition in grown.json["partitions"]] == [0, 1, 2, 3, 4]
    assert grown.json["config"]["flush_ms"] == 70
    assert await topic.values(1) == [1]
    for number in range(5):
        assert (await topic.post_lines("2", to=number)).status == 200
        assert (await topic.values(number))[-1] == 2
    assert_problem(await topic.post_lines("2", to=5), "unknown_partition")


async def test_keys_go_where_kafka_would_put_them_among_the_new_number(new_topic):
    topic = await new_topic(2)
    keys = [f"k{n}" for n in range(20)]
    await topic.post_records({"key": "k0", "value": 0})
    await patch(topic, partitions=6)
    await topic.post_records(*({"key": key, "value": 1} for key in keys))
    for number in range(6):
        keys_there = [record["key"] for record in await topic.records(number) if record["value"] == 1]
        assert keys_there == [key for key in keys if kafka_hash(key.encode()) % 6 == number]


async def test_what_is_without_a_key_finds_the_new_partitions_too(new_topic):
    topic = await new_topic(1)
    await topic.post_lines("1")
    await patch(topic, partitions=4)  # two for each of two shards: a shard prefers its own partitions
    used = set()
    async with asyncio.timeout(60):
        while len(used) < 2:
            answer = await topic.post_lines("2")
            used.add(answer.json["results"][0]["partition"])
            await asyncio.sleep(0.011)  # a batch keeps filling its partition for this long


async def test_records_of_a_new_partition_reach_the_store(new_topic):
    topic = await new_topic(1)
    await patch(topic, partitions=3)
    for number in range(3):
        await topic.post_lines("1", "2", to=number)
    await topic.roll()
    async with asyncio.timeout(60):
        while True:
            status = (await topic.gateway.send("GET", f"{topic.path}/tier")).json
            if [partition["tiered_end"] for partition in status["partitions"]] == [2, 2, 2]:
                return
            await asyncio.sleep(0.05)


@in_process_only
async def test_a_node_holds_so_many_partitions_and_no_more(start_gateway):
    gateway = await start_gateway(partitions_max=4, topic_partitions_max=3)
    first, _ = await gateway.create("a", 1), await gateway.create("b", 1)
    assert_problem(await patch(first, partitions=4), "invalid_config", limit=3)
    assert (await patch(first, partitions=3)).status == 200
    assert_problem(await gateway.send("PUT", "/v1/topics/c"), "too_many_topics")


async def test_who_follows_the_topic_comes_back_and_misses_nothing_of_a_new_partition(start_gateway):
    topic = await (await start_gateway(stream_heartbeat_ms=1000)).create("t", 1)
    path = f"{topic.path}/records"
    async with event_source(topic.gateway.port, path) as stream:
        await topic.post_lines("1")
        (first,) = await stream.take(1)
        await patch(topic, partitions=3)
        await topic.post_lines("2", to=2)
        await topic.post_lines("3", to=0)
        seen = [first]
        while (event := await stream.next()) is not None:
            seen.append(event)
        assert stream.retry_ms is not None
        last_id = stream.last_id
    missing = 3 - len(seen)
    async with event_source(topic.gateway.port, path, {"Last-Event-ID": last_id}) as again:
        seen += await again.take(missing)
    assert sorted(event.json["value"] for event in seen) == [1, 2, 3]


async def test_produces_continue_while_the_topic_grows(new_topic):
    topic = await new_topic(1)
    answers = []

    async def produce() -> None:
        for n in range(60):
            answers.append(await topic.post(b'{"n":%d}\n' % n, NDJSON, key=f"k{n}"))

    async def grow() -> None:
        for partitions in range(2, 8):
            assert (await patch(topic, partitions=partitions)).status == 200

    await asyncio.gather(produce(), grow())
    assert [answer.status for answer in answers] == [200] * 60
    stored = [value["n"] for number in range(7) for value in await topic.values(number)]
    assert sorted(stored) == list(range(60))
