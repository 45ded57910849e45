"""When a produce is answered, and what the answer guarantees."""

import asyncio

import pytest


async def test_acks_0_does_not_know_positions_yet_but_stores(topic):
    answer = await topic.post_lines("1", "2", acks="0")
    (result,) = answer.json["results"]
    assert (result["partition"], result["base_offset"], result["count"]) == (0, None, 2)
    assert [r["value"] for r in await topic.records(offset=0, wait_ms=5000, min_bytes=1)] == [1, 2]


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
