"""Compare and append: `Penstock-Expected-End` accepts records only if the log ends at the expected offset."""

import asyncio

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON


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
