"""Fencing tokens over HTTP: a writer that takes over a partition locks out every other writer, and the log records
it.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

from engine.format import batch
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, Answer, Topic, in_process
from tests.scenarios.produce.bodies import ONE_RECORD


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


async def test_expecting_none_is_another_thing_than_not_expecting(topic):
    assert (await set_fence(topic, "a", expected=None)).status == 200
    assert_shut_out(await set_fence(topic, "b", expected=None), "a")
    assert_shut_out(await set_fence(topic, None, expected="b"), "a")
    assert (await set_fence(topic, "b")).status == 200
    assert (await set_fence(topic, None, expected="b")).status == 200


async def test_a_request_that_is_sent_again_succeeds_and_takes_no_offset(topic):
    first = await set_fence(topic, "a", expected=None)
    assert (await set_fence(topic, "a", expected=None)).json == first.json
    assert (await topic.positions())["log_end"] == 1
    await set_fence(topic, None)
    assert (await set_fence(topic, None)).json["offset"] == 1


async def test_every_kind_of_body_and_acks_is_held_to_the_token(topic):
    await set_fence(topic, "a")
    for content_type, body in ONE_RECORD.items():
        assert_shut_out(await append(topic, "b", body, content_type=content_type), "a")
        assert (await append(topic, "a", body, content_type=content_type)).status == 200
    assert_shut_out(await append(topic, "b", acks="1"), "a")
    assert (await append(topic, "b", acks="0")).status == 202, "acks=0 returns no outcome"
    assert (await append(topic, "a", b"6")).status == 200
    assert len(await topic.records()) == len(ONE_RECORD) + 1


async def test_a_request_for_several_partitions_reports_which_one_refused(both):
    await set_fence(both, "a", 1)
    answer = await both.post_records({"value": 1, "partition": 0}, {"value": 2, "partition": 1})
    assert answer.status == 207
    assert [result["status"] for result in answer.json["results"]] == [200, 412]
    assert answer.json["results"][1]["problem"]["fencing_token"] == "a"
    lines = b"".join(b'{"topic":"%s","partition":%d,"value":1}\n' % (both.name.encode(), n) for n in (0, 1))
    many = await both.gateway.send("POST", "/v1/records", lines, {"Content-Type": NDJSON})
    assert many.status == 207


async def test_a_token_is_about_one_named_partition(both):
    headers = {"Penstock-Fencing-Token": "a"}
    assert_problem(await both.post(b"1", NDJSON, headers), "invalid_header")
    lines = b'{"topic":"%s","value":1}' % both.name.encode()
    answer = await both.gateway.send("POST", "/v1/records", lines, {"Content-Type": NDJSON, **headers})
    assert_problem(answer, "invalid_header")


@pytest.mark.parametrize("token", ["a b", "x" * 256])
async def test_what_is_no_token_is_refused(topic, token):
    assert_problem(await append(topic, token), "invalid_header")
    assert_problem(await set_fence(topic, token), "invalid_body")
    assert_problem(await set_fence(topic, "a", expected=token), "invalid_body")
    assert (await append(topic, None)).status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_body"),
        (b"{}", "invalid_body"),
        (b'{"token":""}', "invalid_body"),
        (b'{"token":7}', "invalid_body"),
        (b'{"token":"\xc3\xa4"}', "invalid_body"),
        (b'{"token":"a","more":1}', "unknown_field"),
        (b'{"token"', "malformed_json"),
    ],
)
async def test_a_body_that_is_no_wish_is_refused(topic, body, code):
    path = f"{topic.path}/partitions/0/fence"
    assert_problem(await topic.gateway.send("PUT", path, body, {"Content-Type": JSON}), code)
    assert await fence_of(topic) == (None, None)


async def test_there_must_be_such_a_partition(topic):
    assert_problem(await set_fence(topic, "a", 7), "unknown_partition")
    assert_problem(await topic.gateway.send("GET", f"{topic.path}/partitions/x/fence"), "unknown_partition")


async def test_with_an_expected_end_both_must_hold(topic):
    await set_fence(topic, "a")
    headers = {"Penstock-Fencing-Token": "a", "Penstock-Expected-End": "1"}
    assert (await topic.post(b"1", NDJSON, headers, to=0)).status == 200
    assert_problem(await topic.post(b"2", NDJSON, headers, to=0), "log_end_mismatch", log_end=2)
    assert_shut_out(await topic.post(b"2", NDJSON, headers | {"Penstock-Fencing-Token": "b"}, to=0), "a")


async def test_no_form_of_reading_gives_the_token_and_all_continue_behind_it(topic):
    """The token is between records, before the first and after the last one; also when a reader starts at it."""
    await set_fence(topic, "secret-1")
    await append(topic, "secret-1", b'"one"')
    await set_fence(topic, "secret-2")
    await append(topic, "secret-2", b'"two"')
    await set_fence(topic, None)
    for offset, values in ((0, ["one", "two"]), (1, ["one", "two"]), (2, ["two"]), (3, ["two"]), (4, [])):
        answer = await topic.fetch(offset)
        assert [record["value"] for record in answer.json["records"]] == values
        assert answer.json["next_offset"] == 5
    for accept in ("application/x-ndjson", "application/cloudevents-batch+json"):
        answer = await topic.fetch(0, accept=accept)
        assert b"secret" not in answer.body
        assert (answer.headers["Penstock-Next-Offset"], answer.body.count(b"one")) == ("5", 1)
    for offset, base_offset, values in ((0, "1", [b'"one"', b'"two"']), (2, "3", [b'"two"']), (4, None, [])):
        answer = await topic.fetch(offset, accept=RECORD_BATCH)
        assert [record.value for record in batch.decode(answer.body)] == values
        assert b"secret" not in answer.body, "who may read need not be one who may write"
        assert answer.headers.get("Penstock-Base-Offset") == base_offset
        assert answer.headers["Penstock-Next-Offset"] == "5"
    one = await topic.fetch(0, accept="application/cloudevents+json", max_records=1)
    assert (one.status, one.json["data"], one.headers["Penstock-Next-Offset"]) == (200, "one", "2")
    wish = orjson.dumps({"partitions": [{"topic": topic.name, "partition": 0, "offset": 0}]})
    many = await topic.gateway.send("POST", "/v1/fetch", wish, {"Content-Type": JSON})
    (part,) = many.json["partitions"]
    assert ([record["value"] for record in part["records"]], part["next_offset"]) == (["one", "two"], 5)
    assert (await topic.positions(timestamp=0))["offset"] == 1, "the first that holds a record"


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
