"""When a produce is answered, and what the answer guarantees."""

import asyncio

import pytest

from tests.scenarios.conformity import assert_problem


@pytest.mark.parametrize(
    ("given", "status", "acks", "durability"),
    [
        ({}, 200, "all", "fsync"),
        ({"acks": "all"}, 200, "all", "fsync"),
        ({"acks": "-1"}, 200, "all", "fsync"),
        ({"acks": "1"}, 200, "1", "page_cache"),
        ({"acks": "0"}, 202, "0", "none"),
    ],
)
async def test_the_answer_names_what_it_waited_for(topic, given, status, acks, durability):
    answer = await topic.post_lines("1", **given)
    assert (answer.status, answer.json["acks"], answer.json["durability"]) == (status, acks, durability)


async def test_a_topic_that_trusts_the_page_cache_does_not_claim_an_fsync(new_topic):
    topic = await new_topic(durability="os")
    assert (await topic.post_lines("1", acks="all")).json["durability"] == "page_cache"


async def test_acks_0_does_not_know_positions_yet_but_stores(topic):
    answer = await topic.post_lines("1", "2", acks="0")
    (result,) = answer.json["results"]
    assert (result["partition"], result["base_offset"], result["count"]) == (0, None, 2)
    assert [r["value"] for r in await topic.records(offset=0, wait_ms=5000, min_bytes=1)] == [1, 2]


async def test_acks_0_refuses_what_is_wrong_before_it_answers(topic):
    assert_problem(await topic.post_lines("1", "x", acks="0"), "malformed_ndjson", line=2)


async def test_after_acks_all_everything_is_durable_and_readable(topic):
    await topic.post_lines("1", "2", "3")
    (partition,) = (await topic.describe())["partitions"]
    assert partition["log_end"] == partition["durable_end"] == partition["high_watermark"] == 3


async def test_after_acks_1_the_record_becomes_readable_by_itself(topic):
    """No further request is needed: the flush timer commits the record."""
    await topic.post_lines("1", acks="1")
    assert len(await topic.records(offset=0, wait_ms=5000)) == 1


@pytest.mark.parametrize("acks", ["1", "all"])
async def test_base_offsets_of_concurrent_requests_do_not_overlap(topic, acks):
    answers = await asyncio.gather(*(topic.post_lines(f"[{n},0]", f"[{n},1]", acks=acks) for n in range(40)))
    bases = [answer.json["results"][0]["base_offset"] for answer in answers]
    assert sorted(bases) == list(range(0, 80, 2))
    await topic.post_lines("null")
    by_offset = {record["offset"]: record["value"] for record in await topic.records(offset=0)}
    for n, base in enumerate(bases):
        assert (by_offset[base], by_offset[base + 1]) == ([n, 0], [n, 1])


@pytest.mark.parametrize("acks", ["2", "-2", "ALL", "none", ""])
async def test_other_acks_are_refused(topic, acks):
    assert_problem(await topic.post_lines("1", acks=acks), "invalid_query", parameter="acks")


@pytest.mark.parametrize("timeout_ms", ["0", "-1", "600001", "soon", "1.5"])
async def test_a_timeout_out_of_bounds_is_refused(topic, timeout_ms):
    assert_problem(await topic.post_lines("1", timeout_ms=timeout_ms), "invalid_query", parameter="timeout_ms")


async def test_results_are_in_the_order_of_the_partitions(new_topic):
    topic = await new_topic(3)
    for acks in ("0", "1", "all"):
        answer = await topic.post_records(*({"value": n, "partition": n} for n in (2, 0, 1)), acks=acks)
        assert [result["partition"] for result in answer.json["results"]] == [0, 1, 2]


async def test_a_request_for_several_partitions_names_each_result(new_topic):
    topic = await new_topic(3)
    answer = await topic.post_records(*({"value": n, "partition": n % 3} for n in range(7)))
    results = {r["partition"]: (r["base_offset"], r["count"]) for r in answer.json["results"]}
    assert results == {0: (0, 3), 1: (0, 2), 2: (0, 2)}
    assert [await topic.values(p) for p in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
