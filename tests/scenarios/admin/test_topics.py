"""The life of a topic: created, described, altered, rolled, deleted, created again."""

import asyncio
import json

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, Topic


async def put(gateway, name, **fields):
    body = json.dumps(fields).encode() if fields else b""
    return await gateway.send("PUT", f"/v1/topics/{name}", body, {"Content-Type": JSON})


async def test_one_of_many_who_create_at_once_creates_it(gateway, new_name):
    name = new_name()
    answers = await asyncio.gather(*(put(gateway, name, partitions=2) for _ in range(10)))
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201]
    assert len({answer.json["topic_id"] for answer in answers}) == 1


async def test_rolled_segments_reach_the_store(topic):
    await topic.post_lines("1", "2")
    sealed_end = (await topic.roll()).json["partitions"][0]["sealed_end"]
    async with asyncio.timeout(60):
        while True:
            (partition,) = (await topic.gateway.send("GET", f"{topic.path}/tier")).json["partitions"]
            if partition["tiered_end"] == sealed_end:
                break
            await asyncio.sleep(0.05)
    assert (partition["objects"], partition["pending_segments"], partition["last_error"]) == (1, 0, None)


async def test_a_topic_created_again_serves_nothing_of_the_old_one(topic):
    await topic.post_lines('"old"', '"older"')
    await topic.roll()
    await topic.post_lines('"old too"')
    old_id = (await topic.describe())["topic_id"]
    await topic.gateway.send("DELETE", topic.path)
    await topic.gateway.create(topic.name)
    described = await topic.describe()
    assert described["topic_id"] != old_id
    assert described["partitions"][0]["log_end"] == 0
    assert await topic.records() == []
    assert_problem(await topic.fetch(offset=1), "offset_above_high_watermark", high_watermark=0)
    await topic.post_lines('"new"')
    assert await topic.values() == ["new"]


async def test_deleting_and_creating_under_load_never_mixes_lives(topic):
    """Writers continue throughout. Each record carries the generation it is meant for, as the create before it returned
    it.
    """
    life = 0
    answered = {}  # the generation at the time of the answer, by record

    async def write(writer):
        for number in range(150):
            record = f"{life}.{writer}.{number}"
            answer = await topic.post_lines(f'"{record}"')
            assert answer.status == 200 or answer.json["code"] == "unknown_topic", answer.body
            answered[record] = life

    async def recreate():
        nonlocal life
        for _ in range(8):
            await asyncio.sleep(0.02)
            assert (await topic.gateway.send("DELETE", topic.path)).status == 204
            life += 1
            await topic.gateway.create(topic.name)

    await asyncio.gather(write("a"), write("b"), recreate())
    # A request may carry the generation before the one that accepts it, but no record of an older one may reappear.
    assert {answered[record] for record in await topic.values()} <= {life}


async def test_a_produce_creates_topics_with_auto_create_topics(start_gateway):
    gateway = await start_gateway(auto_create_topics=True, default_partitions=3)
    topic = Topic(gateway, "on-the-spot")
    answers = await asyncio.gather(*(topic.post_lines("1") for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert len((await topic.describe())["partitions"]) == 3
    assert_problem(await Topic(gateway, "__penstock-x").post_lines("1"), "invalid_topic_name")
    assert_problem(await gateway.send("GET", "/v1/topics/never-produced-to"), "unknown_topic")


async def test_the_longest_name_and_one_of_kafkas_own_do_all_that_a_topic_does(gateway, new_name):
    for name in (new_name().ljust(249, "x"), f"__debezium-heartbeat.{new_name()}"):
        topic = Topic(gateway, name)
        assert (await put(gateway, name)).status == 201
        assert (await topic.post_lines("1")).status == 200
        await topic.roll()
        assert await topic.values() == [1]
        moved = {"topics_priority": name, "dead_letter_topic": name, "deliveries_max": 2}
        group, headers = f"/v1/groups/{new_name()}", {"Content-Type": JSON}
        assert (await gateway.send("PUT", group, json.dumps({"config": moved}).encode(), headers)).status == 201
        position = {"offsets": [{"topic": name, "partition": 0, "offset": 1}]}
        assert (await gateway.send("PUT", f"{group}/offsets", json.dumps(position).encode(), headers)).status == 200
        assert name in [one["topic"] for one in (await gateway.send("GET", "/v1/topics")).json["topics"]]
        assert (await gateway.send("DELETE", topic.path)).status in (200, 204)
    for name in ("x" * 250, "__groups", "__deleted", "__jobs", "__accepted", "__penstock-1"):
        assert_problem(await put(gateway, name), "invalid_topic_name")
