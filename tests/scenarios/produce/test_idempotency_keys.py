"""`Idempotency-Key`: a repeated request is stored once, and gets the answer of the first."""

import asyncio

import orjson
import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, in_process_only

WINDOW = "Penstock-Idempotency-Window"
CLOUD_EVENT = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1}'


def records(*values, **fields):
    return orjson.dumps({"records": [{"value": value, **fields} for value in values]})


async def post(topic, body, key, content_type=JSON, /, **more):
    return await topic.post(body, content_type, {"Idempotency-Key": key}, **more)


def positions(answer):
    assert answer.status == 200, answer.body
    return [
        (result["partition"], result["base_offset"], result["count"], result["timestamp"])
        for result in answer.json["results"]
    ]


async def stored(topic, partitions=1):
    return sorted([value for number in range(partitions) for value in await topic.values(number)], key=str)


BODIES = {
    "json": (records(1, 2), JSON),
    "values": (b"1\n2\n", NDJSON),
    "keyed-json": (records(1, key="k", headers={"a": "b"}), JSON),
    "raw": (b"bytes", "application/octet-stream"),
    "event": (CLOUD_EVENT, "application/cloudevents+json"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_a_repeat_has_the_positions_of_the_first_and_stores_nothing(new_topic, body, compression):
    topic = await new_topic(3, compression=compression)
    first = await post(topic, body[0], "one", body[1])
    before = await stored(topic, 3)
    assert "Penstock-Duplicate" not in first.headers
    again = await post(topic, body[0], "one", body[1])
    assert again.headers["Penstock-Duplicate"] == "true"
    assert positions(again) == positions(first)
    assert all(result["duplicate"] for result in again.json["results"])
    assert await stored(topic, 3) == before
    assert 890 <= int(again.headers[WINDOW]) <= int(first.headers[WINDOW]) <= 900


async def test_many_partitions_in_one_request_are_all_found_again(new_topic):
    topic = await new_topic(6)
    body = orjson.dumps({"records": [{"key": f"k{n}", "value": n} for n in range(40)]})
    first = await post(topic, body, "one")
    assert len(first.json["results"]) == 6
    again = await post(topic, body, "one")
    assert positions(again) == positions(first)
    assert again.headers["Penstock-Duplicate"] == "true"
    assert await stored(topic, 6) == sorted(range(40), key=str)


@pytest.mark.parametrize(
    ("body", "content_type", "query"),
    [
        (records(3), JSON, {}),
        (b"1\n2\n", NDJSON, {}),
        (records(1, 2), JSON, {"partition": 1}),
        (records(1, 2), JSON, {"key": "k"}),
    ],
    ids=["body", "form", "partition", "key"],
)
async def test_another_request_with_the_key_is_refused_wherever_it_would_go(new_topic, body, content_type, query):
    topic = await new_topic(4)
    await post(topic, records(1, 2), "one")
    refused = await post(topic, body, "one", content_type, **query)
    assert_problem(refused, "idempotency_key_reused", no_side_effects=True, retryable=False)
    assert 0 < int(refused.headers[WINDOW]) <= 900
    assert await stored(topic, 4) == [1, 2]


async def test_a_key_belongs_to_its_topic(new_topic):
    for topic in (await new_topic(), await new_topic()):
        await post(topic, records(topic.name), "one")
        assert await topic.values() == [topic.name]


async def test_repeats_that_come_while_the_first_is_under_way_join_it(new_topic):
    topic = await new_topic(3)
    body = orjson.dumps({"records": [{"key": f"k{n}", "value": n} for n in range(9)]})
    answers = await asyncio.gather(*(post(topic, body, "one") for _ in range(12)))
    assert len({str(positions(answer)) for answer in answers}) == 1
    assert sum("Penstock-Duplicate" not in answer.headers for answer in answers) <= 1
    assert await stored(topic, 3) == list(range(9))


@in_process_only
async def test_of_different_requests_at_once_with_one_key_one_is_stored(new_topic):
    topic = await new_topic(4)
    answers = await asyncio.gather(*(post(topic, records(n), "one") for n in range(8)))
    (winner,) = [n for n, answer in enumerate(answers) if answer.status == 200]
    assert await stored(topic, 4) == [winner]
    for n, answer in enumerate(answers):
        if n != winner:
            assert_problem(answer, "idempotency_key_reused")


async def test_a_repeat_after_the_topic_grew_finds_what_was_stored_before(new_topic):
    topic = await new_topic(2)
    mixed = orjson.dumps({"records": [{"key": f"k{n}", "value": n} for n in range(30)] + [{"value": "none"}]})
    first = await post(topic, mixed, "one")
    bare = await post(topic, records("bare"), "two")
    await topic.gateway.send("PATCH", topic.path, b'{"partitions":7}', {"Content-Type": JSON})
    again = await post(topic, mixed, "one")
    assert again.headers["Penstock-Duplicate"] == "true"
    assert positions(again) == positions(first)
    assert positions(await post(topic, records("bare"), "two")) == positions(bare)
    assert len(await stored(topic, 7)) == 32
    assert_problem(await post(topic, records("other"), "two"), "idempotency_key_reused")


async def test_records_without_a_key_go_to_the_partition_of_the_requests(new_topic):
    topic = await new_topic(5)
    used = {positions(await post(topic, records(n), f"key-{n}"))[0][0] for n in range(30)}
    assert len(used) > 1


@in_process_only
async def test_a_key_is_free_again_after_the_window(new_topic):
    topic = await new_topic(idempotency_window_ms=1000)
    assert (await post(topic, records(1), "one")).headers[WINDOW] in ("0", "1")
    async with asyncio.timeout(60):
        while (await post(topic, records(2), "one")).status == 422:
            await asyncio.sleep(0.2)
    assert await topic.values() == [1, 2]


@in_process_only
async def test_keys_beyond_the_limit_are_dropped_and_the_window_shrinks(new_topic):
    topic = await new_topic(idempotency_keys_max=8)
    windows = [int((await post(topic, records(n), f"k{n}")).headers[WINDOW]) for n in range(30)]
    assert windows[0] >= 899
    assert windows[-1] < 60
    assert "Penstock-Duplicate" not in (await post(topic, records(0), "k0")).headers
    assert (await post(topic, records(29), "k29")).headers["Penstock-Duplicate"] == "true"


@in_process_only
async def test_metrics_count_keys_and_their_outcomes(start_gateway):
    topic = await (await start_gateway()).create("t")
    for body in (records(1), records(1), records(2)):
        await post(topic, body, "one")
    for name, expected in {"keys": 1, "duplicates_total": 1, "keys_reused_total": 1, "keys_dropped_total": 0}.items():
        assert await topic.gateway.metric(f"penstock_idempotency_{name}") == expected, name
