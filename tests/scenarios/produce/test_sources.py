"""Source positions over HTTP: outputs of an input are stored once, by one worker or two, in any batches."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, Answer, Topic, in_process

SOURCE = "etl/7d1f/3"


async def send(
    topic: Topic, positions: str, body: bytes = b"1", partition: int = 0, source: str = SOURCE, **more
) -> Answer:
    headers = {"Penstock-Source": source, "Penstock-Source-Positions": positions, **more.pop("headers", {})}
    return await topic.post(body, more.pop("content_type", NDJSON), headers, to=partition, **more)


async def position_of(topic: Topic, partition: int = 0, source: str = SOURCE) -> Answer:
    return await topic.gateway.send("GET", f"{topic.path}/partitions/{partition}/source?name={source}")


def assert_stored_before(answer: Answer, position: int) -> None:
    problem = assert_problem(answer, "source_position_stored", retryable=False, no_side_effects=True)
    assert (answer.status, problem["source_position"]) == (409, position)


@pytest.mark.parametrize("partition", [0, 1])
async def test_outputs_of_a_position_are_stored_once(both, partition):
    assert_problem(await position_of(both, partition), "unknown_source", retryable=False, no_side_effects=True)
    assert (await send(both, "0-4", b"1\n2", partition)).json["results"][0]["base_offset"] == 0
    for overlapping in ("0-9", "4-4", "2-3", "4-9"):
        assert_stored_before(await send(both, overlapping, b"9", partition), 4)
    assert (await send(both, "7-9", b"3", partition)).json["results"][0]["base_offset"] == 2
    assert_stored_before(await send(both, "5-6", b"9", partition), 9)
    assert await both.values(partition) == [1, 2, 3]
    found = (await position_of(both, partition)).json
    assert (found["source"], found["source_position"], found["base_offset"], found["count"]) == (SOURCE, 9, 2, 1)
    assert_problem(await position_of(both, 1 - partition), "unknown_source", retryable=False, no_side_effects=True)


async def test_a_retry_gets_the_positions_of_the_first_request(both):
    first = await send(both, "0-4", b"1\n2")
    await send(both, "5-6", b"3")
    again = await send(both, "0-4", b"9")
    assert again.status == 200
    assert again.headers["Penstock-Duplicate"] == "true"
    result = again.json["results"][0]
    assert (result["base_offset"], result["count"], result["duplicate"]) == (0, 2, True)
    assert first.json["results"][0]["base_offset"] == 0
    assert await both.values(0) == [1, 2, 3]


async def test_two_workers_with_other_batches_store_each_position_once(both):
    """Both send inputs 0 to 39, one in threes and one in fives; who is refused drops what is stored."""

    async def work(step: int) -> None:
        at = 0
        while at < 40:
            last = min(at + step - 1, 39)
            answer = await send(both, f"{at}-{last}", b"\n".join(b"%d" % n for n in range(at, last + 1)))
            at = last + 1 if answer.status == 200 else answer.json["source_position"] + 1
            await asyncio.sleep(0)

    await asyncio.gather(work(3), work(5))
    assert await both.values(0) == list(range(40))


async def test_sources_and_partitions_count_apart(both):
    for source in ("a", "b"):
        for partition in (0, 1):
            assert (await send(both, "3-3", b"1", partition, source)).status == 200
    assert (await send(both, "3-3", b"1", 0, "A")).status == 200


async def test_a_source_goes_with_a_fencing_token_and_an_expected_end(both):
    headers = {"Penstock-Expected-End": "5"}
    assert (await send(both, "0-0", headers=headers)).status == 412
    assert (await position_of(both)).status == 404
    assert (await send(both, "0-0", headers={"Penstock-Expected-End": "0"})).status == 200
    assert (await send(both, "0-0", headers={"Penstock-Expected-End": "0"})).status == 200  # a retry
    assert (await send(both, "1-1", headers={"Penstock-Fencing-Token": "x"})).status == 412


MALFORMED: list[dict[str, str]] = [
    {"Penstock-Source": "a"},
    {"Penstock-Source-Positions": "1-2"},
    {"Penstock-Source": "a b", "Penstock-Source-Positions": "1-2"},
    {"Penstock-Source": "a" * 256, "Penstock-Source-Positions": "1-2"},
    *(
        {"Penstock-Source": "a", "Penstock-Source-Positions": positions}
        for positions in ("", "1", "2-1", "-1", "1-", "a-b", "1-9223372036854775808", "1-2-3", "+1-2")
    ),
    {"Penstock-Source": "a", "Penstock-Source-Positions": "1-2", "Idempotency-Key": "k"},
    {"Penstock-Source": "a", "Penstock-Source-Positions": "1-2", "Producer-Id": "0"},
]


async def test_malformed_positions_are_refused(topic):
    for headers in MALFORMED:
        answer = await topic.post(b"1", NDJSON, headers, to=0)
        assert_problem(answer, "invalid_header", retryable=False, no_side_effects=True)
    assert await topic.values(0) == []


async def test_a_request_with_a_source_names_its_partition_and_waits_for_all_replicas(topic):
    headers = {"Penstock-Source": "a", "Penstock-Source-Positions": "1-2"}
    assert_problem(await topic.post(b"1", NDJSON, headers), "invalid_header")
    for acks in ("0", "1"):
        assert_problem(await send(topic, "1-2", acks=acks), "invalid_query")
    assert_problem(await send(topic, "1-2", content_type=RECORD_BATCH), "invalid_header")
    many = orjson.dumps({"records": [{"topic": topic.name, "value": 1}]})
    answer = await topic.gateway.send("POST", "/v1/records", many, {"Content-Type": JSON, **headers})
    assert_problem(answer, "invalid_header")
    for name in ("", "a%20b", "a" * 256):
        assert_problem(await position_of(topic, source=name), "invalid_query")


async def test_positions_survive_a_restart(tmp_path):
    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("t", 1)
        await send(topic, "0-4", b"1\n2")
    async with in_process(tmp_path) as gateway:
        topic = Topic(gateway, "t")
        assert_stored_before(await send(topic, "3-9"), 4)
        assert (await position_of(topic)).json["source_position"] == 4
