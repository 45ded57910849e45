"""`POST /v1/records`: records for many topics in one request. Each topic and partition succeeds or fails
independently.
"""

import orjson

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, Gateway, in_process_only

PATH = "/v1/records"


async def post(gateway: Gateway, *records: dict, **query: object):
    return await gateway.send("POST", PATH, orjson.dumps({"records": records}), {"Content-Type": JSON}, **query)


def entries(answer) -> list[tuple]:
    """Return topic, partition, count, and the status or the problem's code."""
    return [
        (
            result["topic"],
            result["partition"],
            result["count"],
            result.get("problem", {}).get("code", result.get("status")),
        )
        for result in answer.json["results"]
    ]


async def test_records_reach_the_topic_and_partition_that_they_name(gateway, new_topic):
    first, second = await new_topic(3), await new_topic(2)
    records = [{"topic": topic.name, "partition": n % 2, "value": n} for n in range(6) for topic in (second, first)]
    answer = await post(gateway, *records)
    assert answer.status == 200
    names = sorted([first.name, second.name])
    assert entries(answer) == [(name, partition, 3, None) for name in names for partition in (0, 1)]
    for topic in (first, second):
        assert [await topic.values(partition) for partition in (0, 1)] == [[0, 2, 4], [1, 3, 5]]


@in_process_only
async def test_a_produce_to_many_topics_creates_them_with_auto_create_topics(start_gateway):
    gateway = await start_gateway(auto_create_topics=True)
    assert (await post(gateway, {"topic": "new", "value": 1})).status == 200
    refused = await post(gateway, {"topic": "new", "value": 2}, {"topic": "no name!", "value": 3})
    assert entries(refused) == [("new", 0, 1, 200), ("no name!", None, 1, "invalid_topic_name")]


@in_process_only
async def test_records_and_partitions_of_a_request_are_bounded(start_gateway):
    gateway = await start_gateway(records_per_request_max=5, produce_partitions_max=3)
    topic = await gateway.create("wide", 9)
    too_many = [{"topic": "wide", "value": n, "partition": 0} for n in range(6)]
    assert_problem(await post(gateway, *too_many), "body_too_large", limit=5)
    too_wide = [{"topic": "wide", "value": n, "partition": n} for n in range(4)]
    assert_problem(await post(gateway, *too_wide), "body_too_large", limit=3)
    too_many_topics = [{"topic": f"unknown{n}", "value": n} for n in range(4)]
    assert_problem(await post(gateway, *too_many_topics), "body_too_large", limit=3)
    assert (await post(gateway, *too_wide[:3])).status == 200
    assert await topic.values(3) == []


async def test_a_large_request_over_many_topics_is_whole(gateway, new_topic):
    topics = [await new_topic(4) for _ in range(5)]
    records = [{"topic": topics[n % 5].name, "key": f"k{n}", "value": n} for n in range(20_000)]
    answer = await post(gateway, *records)
    assert sum(result["count"] for result in answer.json["results"]) == 20_000
    stored = [value for topic in topics for partition in range(4) for value in await topic.values(partition)]
    assert sorted(stored) == list(range(20_000))
