"""Fencing tokens over HTTP: a writer that takes over a partition locks out every other writer, and the log records
it.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, Answer, Topic, in_process


async def set_fence(topic: Topic, token: str | None, partition: int = 0, **more: object) -> Answer:
    body = orjson.dumps({"token": token, **more})
    return await topic.gateway.send("PUT", f"{topic.path}/partitions/{partition}/fence", body, {"Content-Type": JSON})


async def fence_of(topic: Topic, partition: int = 0) -> tuple[str | None, int | None]:
    answer = await topic.gateway.send("GET", f"{topic.path}/partitions/{partition}/fence")
    assert answer.status == 200
    return answer.json["token"], answer.json["offset"]


async def append(topic: Topic, token: str | None, body: bytes = b"1", partition: int = 0, **query: object) -> Answer:
    headers = {} if token is None else {"Penstock-Fencing-Token": token}
    return await topic.post(body, query.pop("content_type", NDJSON), headers, to=partition, **query)


def assert_shut_out(answer: Answer, present: str | None) -> None:
    problem = assert_problem(answer, "fencing_token_mismatch", retryable=False, no_side_effects=True)
    assert (answer.status, problem["fencing_token"]) == (412, present)


@pytest.mark.parametrize("partition", [0, 1])
async def test_once_a_token_is_set_every_append_must_carry_it(both, partition):
    assert await fence_of(both, partition) == (None, None)
    assert (await append(both, None, b"1", partition)).status == 200
    assert_shut_out(await append(both, "early", b"0", partition), None)
    answer = await set_fence(both, "writer-1", partition)
    assert answer.json == {"topic": both.name, "partition": partition, "token": "writer-1", "offset": 1}
    for wrong in (None, "writer-2", "writer-11", "WRITER-1"):
        assert_shut_out(await append(both, wrong, b"0", partition), "writer-1")
    assert (await append(both, "writer-1", b"2\n3", partition)).json["results"][0]["base_offset"] == 2
    assert await fence_of(both, partition) == ("writer-1", 1)
    assert await both.values(partition) == [1, 2, 3]
    assert await fence_of(both, 1 - partition) == (None, None)
    assert (await append(both, None, b"9", 1 - partition)).status == 200


@pytest.mark.parametrize("partition", [0, 1])
async def test_a_new_writer_shuts_out_the_old_one_and_can_let_all_in_again(both, partition):
    for token in ("writer-1", "writer-2"):
        await set_fence(both, token, partition)
        assert (await append(both, token, b"1", partition)).status == 200
    assert_shut_out(await append(both, "writer-1", b"2", partition), "writer-2")
    assert (await set_fence(both, None, partition)).json["token"] is None
    assert await fence_of(both, partition) == (None, 4)
    assert_shut_out(await append(both, "writer-2", b"2", partition), None)
    assert (await append(both, None, b"2", partition)).json["results"][0]["base_offset"] == 5


@pytest.mark.parametrize("partition", [0, 1])
async def test_of_many_that_expect_the_same_token_one_takes_over(both, partition):
    await set_fence(both, "old", partition)
    answers = await asyncio.gather(*(set_fence(both, f"new-{n}", partition, expected="old") for n in range(8)))
    (winner,) = [answer.json["token"] for answer in answers if answer.status == 200]
    for answer in answers:
        if answer.status != 200:
            assert_shut_out(answer, winner)
    assert (await fence_of(both, partition))[0] == winner


async def test_who_waits_for_records_is_not_woken_by_a_token(topic):
    waiting = asyncio.create_task(topic.fetch(0, wait_ms=20_000))
    await asyncio.sleep(0.1)
    await set_fence(topic, "a")
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await append(topic, "a", b"5")
    assert [record["value"] for record in (await waiting).json["records"]] == [5]


async def test_a_fetch_that_meets_only_tokens_continues_to_the_records_behind_them(topic):
    for n in range(5):
        await set_fence(topic, f"token-{n}")
    await append(topic, "token-4", b"7")
    answer = await topic.fetch(0, max_bytes=1)
    assert [record["offset"] for record in answer.json["records"]] == [5]


async def test_tokens_are_shipped_and_what_is_read_back_has_none(topic):
    await append(topic, None, b"1")
    await set_fence(topic, "a")
    await append(topic, "a", b"2")
    await topic.roll()
    for _ in range(400):
        (partition,) = (await topic.gateway.send("GET", f"{topic.path}/tier")).json["partitions"]
        if partition["tiered_end"] == 3:
            break
        await asyncio.sleep(0.05)
    assert partition["tiered_end"] == 3
    assert await topic.values() == [1, 2]
    assert_shut_out(await append(topic, None), "a")


async def test_a_fence_survives_a_stop_and_the_loss_of_everything_derived(tmp_path, form):
    if form != "in-process":
        pytest.skip("the files of a node in this process are at hand")
    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("t")
        await append(topic, None)
        await set_fence(topic, "a")
    for is_derived_lost in (False, True):
        if is_derived_lost:
            for snapshot in tmp_path.rglob("*.snapshot"):
                snapshot.unlink()
        async with in_process(tmp_path) as gateway:
            topic = Topic(gateway, "t")
            assert await fence_of(topic) == ("a", 1)
            assert_shut_out(await append(topic, None), "a")


async def test_a_token_outlives_the_records_that_it_came_with(topic):
    """A deletion removes the control batch; its token is stored elsewhere before."""
    set_at = (await set_fence(topic, "a")).json["offset"]
    end = (await append(topic, "a", b"1")).json["results"][0]["base_offset"] + 1
    deleted = await topic.gateway.send("DELETE", f"{topic.path}/partitions/0/records", before=end)
    assert deleted.status == 200
    assert await fence_of(topic) == ("a", set_at)
    assert_shut_out(await append(topic, None), "a")
    assert (await append(topic, "a", b"2")).json["results"][0]["base_offset"] == end
    assert [record["value"] for record in await topic.records()] == [2]
