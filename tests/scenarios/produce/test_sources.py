"""Source positions over HTTP: outputs of an input are stored once, by one worker or two, in any batches."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON, Answer, Topic, in_process

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
    position = (await position_of(both, partition)).json
    assert (position["source"], position["source_position"], position["base_offset"], position["count"]) == (
        SOURCE,
        9,
        2,
        1,
    )
    assert_problem(await position_of(both, 1 - partition), "unknown_source", retryable=False, no_side_effects=True)


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


async def test_positions_survive_a_restart(tmp_path):
    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("t", 1)
        await send(topic, "0-4", b"1\n2")
    async with in_process(tmp_path) as gateway:
        topic = Topic(gateway, "t")
        assert_stored_before(await send(topic, "3-9"), 4)
        assert (await position_of(topic)).json["source_position"] == 4
