"""Compare and append: `Penstock-Expected-End` accepts records only if the log ends at the expected offset."""

import asyncio

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON
from tests.scenarios.produce.bodies import ONE_RECORD


def expecting(end: object) -> dict[str, str]:
    return {"Penstock-Expected-End": str(end)}


async def append(topic, end: object, body: bytes = b"1", partition: int = 0, content_type: str = NDJSON, **query):
    return await topic.post(body, content_type, expecting(end), to=partition, **query)


@pytest.mark.parametrize("partition", [0, 1])
async def test_records_go_in_where_the_log_ends_as_expected(both, partition):
    assert (await append(both, 0, b"1\n2", partition)).json["results"][0]["base_offset"] == 0
    mismatch = await append(both, 0, b"3", partition)
    assert mismatch.status == 412
    assert_problem(mismatch, "log_end_mismatch", log_end=2, no_side_effects=True, retryable=False)
    assert_problem(await append(both, 3, b"3", partition, acks="1"), "log_end_mismatch", log_end=2)
    assert (await append(both, 2, b"3", partition)).json["results"][0]["base_offset"] == 2
    assert await both.values(partition) == [1, 2, 3]


@pytest.mark.parametrize("partition", [0, 1])
async def test_of_many_writers_that_expect_the_same_end_one_is_let_in(both, partition):
    answers = await asyncio.gather(*(append(both, 0, b"%d" % n, partition) for n in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [412] * 7
    assert len(await both.values(partition)) == 1


async def test_every_kind_of_body_is_held_to_its_expected_end(topic):
    for end, (content_type, body) in enumerate(ONE_RECORD.items()):
        assert_problem(await append(topic, end + 1, body, content_type=content_type), "log_end_mismatch", log_end=end)
        assert (await append(topic, end, body, content_type=content_type)).status == 200
    assert len(await topic.records()) == len(ONE_RECORD)


async def test_nobody_waits_with_acks_0_and_nothing_is_stored_either(topic):
    assert (await append(topic, 7, acks="0")).status == 202
    assert (await append(topic, 0, b"2")).status == 200
    assert await topic.values() == [2]


async def test_the_partition_may_be_named_in_the_query_and_must_be_named(topic):
    assert (await topic.post(b"1", NDJSON, expecting(0), partition=0)).status == 200
    assert_problem(await topic.post(b"1", NDJSON, expecting(1)), "invalid_header", no_side_effects=True)
    many = b'{"topic":"%s","value":1}' % topic.name.encode()
    answer = await topic.gateway.send("POST", "/v1/records", many, {"Content-Type": NDJSON, **expecting(1)})
    assert_problem(answer, "invalid_header", no_side_effects=True)
    elsewhere = b'{"records":[{"value":1,"partition":0},{"value":2,"partition":1}]}'
    assert_problem(await topic.post(elsewhere, JSON, expecting(1), partition=0), "invalid_body", record=1)
    assert await topic.values() == [1]


@pytest.mark.parametrize("end", ["-1", "1.0", "x", "", str(2**63), "0x1"])
async def test_what_is_no_offset_is_refused(topic, end):
    assert_problem(await append(topic, end), "invalid_header", no_side_effects=True)
