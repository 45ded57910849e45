"""`Idempotency-Key`: a repeated request is stored once, and gets the answer of the first."""

import asyncio
import gzip

import orjson
import pytest

from engine.format import batch as record_batch
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, in_process_only

WINDOW = "Penstock-Idempotency-Window"
CLOUD_EVENT = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1}'


def records(*values, **fields):
    return orjson.dumps({"records": [{"value": value, **fields} for value in values]})


async def post(topic, body, key, content_type=JSON, /, **more):
    return await topic.post(body, content_type, {"Idempotency-Key": key}, **more)


def positions(answer):
    assert answer.status == 200, answer.body
    return [(one["partition"], one["base_offset"], one["count"], one["timestamp"]) for one in answer.json["results"]]


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
    assert all(one["duplicate"] for one in again.json["results"])
    assert await stored(topic, 3) == before
    assert 890 <= int(again.headers[WINDOW]) <= int(first.headers[WINDOW]) <= 900


async def test_a_repeat_with_other_acks_and_another_packing_is_the_same_request(topic):
    body = records(1, 2)
    first = await post(topic, body, "one", acks="1")
    packed = {"Idempotency-Key": "one", "Content-Encoding": "gzip"}
    again = await topic.post(gzip.compress(body), JSON, packed, acks="all", timeout_ms=20_000)
    assert positions(again) == positions(first)
    assert await topic.values() == [1, 2]


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


async def test_the_partition_of_the_path_belongs_to_the_request(new_topic):
    topic = await new_topic(4)
    first = await post(topic, records(1), "one", to=2)
    assert_problem(await post(topic, records(1), "one", to=3), "idempotency_key_reused")
    assert positions(await post(topic, records(1), "one", to=2)) == positions(first)


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


async def test_consumers_do_not_see_idempotency_keys(new_topic):
    topic = await new_topic(compression="gzip")
    plain = await new_topic(compression="gzip")
    for _ in range(2):
        await post(topic, records(1, 2, headers={"a": "b"}), "one")
    await plain.post(records(1, 2, headers={"a": "b"}), JSON)
    for accept in (JSON, NDJSON, "application/cloudevents-batch+json"):
        assert b"__penstock" not in (await topic.fetch(accept=accept)).body
    assert [one["headers"] for one in await topic.records()] == [{"a": "b"}] * 2
    many = orjson.dumps({"partitions": [{"topic": topic.name, "partition": 0, "offset": 0}]})
    answer = await topic.gateway.send("POST", "/v1/fetch", many, {"Content-Type": JSON})
    assert b"__penstock" not in answer.body
    batch = (await topic.fetch(accept=RECORD_BATCH)).body
    assert record_batch.read_header(batch).producer_id == -1
    assert [record.headers for record in record_batch.decode(batch)] == [[("a", b"b")]] * 2
    assert (await plain.post(batch, RECORD_BATCH)).status == 200


async def test_many_topics_in_one_request(gateway, new_name):
    first, second = await gateway.create(new_name(), 3), await gateway.create(new_name(), 3)
    body = orjson.dumps(
        {"records": [{"topic": topic.name, "key": f"k{n}", "value": n} for topic in (first, second) for n in range(9)]}
    )
    headers = {"Content-Type": JSON, "Idempotency-Key": "one"}
    stored_first = await gateway.send("POST", "/v1/records", body, headers)
    again = await gateway.send("POST", "/v1/records", body, headers)
    assert again.headers["Penstock-Duplicate"] == "true"
    assert positions(again) == positions(stored_first)
    assert 890 <= int(again.headers[WINDOW]) <= 900
    assert await stored(first, 3) == await stored(second, 3) == list(range(9))


async def test_of_a_request_that_was_stored_in_part_the_rest_is_stored(gateway, new_name):
    there, name = await gateway.create(new_name()), new_name()
    body = orjson.dumps({"records": [{"topic": there.name, "value": 1}, {"topic": name, "value": 2}]})
    headers = {"Content-Type": JSON, "Idempotency-Key": "one"}
    partly = await gateway.send("POST", "/v1/records", body, headers)
    assert partly.status == 207
    missing = await gateway.create(name)
    whole = await gateway.send("POST", "/v1/records", body, headers)
    assert whole.status == 200
    assert "Penstock-Duplicate" not in whole.headers
    assert [one.get("duplicate", False) for one in whole.json["results"]] == [
        one["topic"] == there.name for one in whole.json["results"]
    ]
    assert await there.values() == [1]
    assert await missing.values() == [2]


async def test_of_many_topics_one_whose_key_is_taken_refuses_its_own_records_only(gateway, new_name):
    taken, free = await gateway.create(new_name()), await gateway.create(new_name())
    await post(taken, records("first"), "one")
    body = orjson.dumps({"records": [{"topic": taken.name, "value": 1}, {"topic": free.name, "value": 2}]})
    answer = await gateway.send("POST", "/v1/records", body, {"Content-Type": JSON, "Idempotency-Key": "one"})
    assert answer.status == 207
    codes = {one["topic"]: one.get("problem", {}).get("code") for one in answer.json["results"]}
    assert codes == {taken.name: "idempotency_key_reused", free.name: None}


async def test_a_repeat_of_a_compare_and_append_is_a_repeat_and_no_mismatch(topic):
    headers = {"Idempotency-Key": "one", "Penstock-Expected-End": "0"}
    first = await topic.post(records(1), JSON, headers, to=0)
    again = await topic.post(records(1), JSON, headers, to=0)
    assert positions(again) == positions(first)
    assert_problem(await topic.post(records(2), JSON, {**headers, "Idempotency-Key": "2"}, to=0), "log_end_mismatch")


async def test_nobody_waits_and_a_repeat_is_recognised_all_the_same(topic):
    first = await post(topic, records(1), "one", acks="0")
    assert first.status == 202
    assert first.headers[WINDOW]
    again = await post(topic, records(1), "one")
    assert positions(again)[0][:3] == (0, 0, 1)
    assert again.headers["Penstock-Duplicate"] == "true"
    assert await topic.values() == [1]


@in_process_only
@pytest.mark.parametrize("key", ["", "two words", "x" * 256, "ümlaut"])
async def test_what_is_no_key_is_refused(topic, key):
    answer = await topic.post(records(1), JSON, {"Idempotency-Key": key.encode("utf-8").decode("latin-1")})
    assert_problem(answer, "invalid_header")
    assert await topic.records() == []


@in_process_only
async def test_stored_batches_and_sequences_take_no_key(topic):
    batch = bytes(record_batch.encode_values([b"1"], 5))
    assert_problem(await post(topic, batch, "one", RECORD_BATCH), "invalid_header")
    sequence = {"Producer-Id": "1", "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert_problem(await topic.post(records(1), JSON, {**sequence, "Idempotency-Key": "k"}, to=0), "invalid_header")
    assert await topic.records() == []


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
