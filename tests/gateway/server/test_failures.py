"""The answers to clients when the disk, the store or our code fails, or a timeout expires. Never a 200."""

from __future__ import annotations

import asyncio
import errno

import orjson
import pytest

from engine.tiering.store.store import StoreUnavailable
from gateway.fetch import event_stream
from gateway.server.routes import ROUTES
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, in_process


@pytest.fixture
async def gateway(tmp_path):
    async with in_process(tmp_path) as gateway:
        yield gateway


@pytest.fixture
async def topic(gateway):
    return await gateway.create("t", 2)


def failing(error_number):
    def fail(*_args):
        raise OSError(error_number, "planted")

    return fail


async def test_a_failed_fsync_takes_the_partition_offline_and_promises_nothing(gateway, topic, monkeypatch):
    """The record may be on the disk or not; the fsync is never retried."""
    await topic.post_lines("1", to=0)
    with monkeypatch.context() as planted:
        planted.setattr(gateway.node.shard.disk, "fdatasync", failing(errno.EIO))
        failed = await topic.post_lines("2", to=0)
    assert_problem(failed, "storage_failed", no_side_effects=False, retryable=True)
    assert failed.headers["Retry-After"]
    assert_problem(await topic.post_lines("3", to=0), "storage_failed")
    assert_problem(await topic.fetch(offset=0), "storage_failed")
    assert (await topic.describe())["partitions"][0]["offline"]
    assert (await topic.post_lines("1", to=1)).status == 200, "the others serve"


async def test_a_write_that_failed_and_was_undone_has_no_side_effects(gateway, topic, monkeypatch):
    monkeypatch.setattr(gateway.node.shard.disk, "pwritev", failing(errno.EIO))
    assert_problem(await topic.post_lines("1", to=0, acks="1"), "storage_failed", no_side_effects=True)
    assert_problem(await topic.post_lines("1", to=1, acks="all"), "storage_failed", no_side_effects=True)


async def test_a_write_that_failed_and_could_not_be_undone_promises_nothing(gateway, topic, monkeypatch):
    monkeypatch.setattr(gateway.node.shard.disk, "pwritev", failing(errno.EIO))
    monkeypatch.setattr(gateway.node.shard.disk, "truncate", failing(errno.EIO))
    assert_problem(await topic.post_lines("1", to=0, acks="1"), "storage_failed", no_side_effects=False)


async def test_a_full_disk_is_507_and_writes_resume_by_themselves(gateway, topic, monkeypatch):
    await topic.post_lines("1", to=0)
    with monkeypatch.context() as planted:
        planted.setattr(gateway.node.shard.disk, "pwritev", failing(errno.ENOSPC))
        for acks in ("1", "all"):
            refused = await topic.post_lines("2", to=0, acks=acks)
            assert_problem(refused, "storage_full", no_side_effects=True, retryable=True)
        assert await topic.values() == [1], "reads go on"
    assert (await topic.post_lines("3", to=0)).json["results"][0]["base_offset"] == 1
    assert await topic.values() == [1, 3]


async def test_a_request_that_succeeds_in_part_is_207_and_says_where(gateway, topic, monkeypatch):
    await topic.post_lines("1", to=1)
    with monkeypatch.context() as planted:
        planted.setattr(gateway.node.shard.disk, "fdatasync", failing(errno.EIO))
        await topic.post_lines("1", to=1)
    body = orjson.dumps({"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]})
    answer = await gateway._send("POST", f"{topic.path}/records", {"Content-Type": JSON}, body)
    assert answer.status == 207
    stored, failed = sorted(answer.json["results"], key=lambda result: result["partition"])
    assert (stored["status"], stored["base_offset"]) == (200, 0)
    assert (failed["status"], failed["base_offset"]) == (503, None)
    assert failed["problem"]["code"] == "storage_failed"
    assert await topic.values(0) == [1]


async def test_an_acknowledgement_that_does_not_come_in_time_is_504_and_may_have_been_stored(
    gateway, topic, monkeypatch
):
    """The disk is slow; the append itself is not cancelled."""
    slow = asyncio.Event()
    loop = asyncio.get_running_loop()
    fdatasync = gateway.node.shard.disk.fdatasync

    def wait(handle):
        asyncio.run_coroutine_threadsafe(slow.wait(), loop).result(60)
        fdatasync(handle)

    monkeypatch.setattr(gateway.node.shard.disk, "fdatasync", wait)
    late = await topic.post_lines("1", to=0, timeout_ms=50)
    assert_problem(late, "ack_timeout", no_side_effects=False, retryable=True)
    assert "without an Idempotency-Key or Producer-Seq" in late.json["detail"], "with one it is safe"
    assert (await topic.fetch(offset=0)).json["records"] == [], "what is not safe is not shown"
    slow.set()
    assert [r["value"] for r in await topic.records(offset=0, wait_ms=60_000)] == [1]


async def test_a_long_poll_at_a_partition_that_fails_is_reported(gateway, topic, monkeypatch):
    poll = asyncio.create_task(topic.fetch(offset=0, wait_ms=30_000))
    async with asyncio.timeout(60):
        while await gateway.metric("penstock_long_polls") == 0:
            await asyncio.sleep(0.01)
    monkeypatch.setattr(gateway.node.shard.disk, "fdatasync", failing(errno.EIO))
    await topic.post_lines("1", to=0)
    async with asyncio.timeout(60):
        assert_problem(await poll, "storage_failed")


async def test_a_store_that_does_not_answer_is_503_and_local_records_stay_readable(gateway, topic, monkeypatch):
    async def unavailable(*_args):
        raise StoreUnavailable("the store does not answer")

    await topic.post_lines("1", "2", to=0)
    await topic.roll()
    await topic.post_lines("3", to=0)
    gateway.node.shard.partition("t", 0).log.drop_oldest(2)
    monkeypatch.setattr(gateway.node.tier, "read", unavailable)
    assert_problem(await topic.fetch(offset=0), "store_unavailable", retryable=True, no_side_effects=True)
    assert [record["value"] for record in await topic.records(offset=2)] == [3]


async def test_a_mistake_of_ours_is_500_and_shows_nothing_of_our_insides(gateway, topic, monkeypatch, caplog):
    def broken(*_args):
        raise ZeroDivisionError("secret of /etc/passwd")

    monkeypatch.setattr(gateway.node.shard, "topic", broken)
    answer = await topic.gateway.send("GET", topic.path)
    problem = assert_problem(answer, "internal", no_side_effects=False)
    assert b"secret" not in answer.body
    assert b"ZeroDivision" not in answer.body
    logged = next(record for record in caplog.records if getattr(record, "request_id", None) == problem["request_id"])
    assert "secret" in str(logged.exc_info[1])


async def test_a_draining_node_refuses_what_changes_and_still_gives_what_it_has(gateway, topic):
    await topic.post_lines("1", to=0)
    await gateway.node.drain()
    for method, path, body in (
        ("POST", f"{topic.path}/records", b"1"),
        ("POST", f"{topic.path}/partitions/0/records", b"1"),
        ("PUT", "/v1/topics/another", b""),
        ("PATCH", topic.path, b'{"config":{}}'),
        ("DELETE", topic.path, b""),
        ("POST", f"{topic.path}/roll", b""),
        ("GET", "/readyz", b""),
    ):
        answer = await gateway.send(method, path, body)
        assert_problem(answer, "draining", retryable=True, no_side_effects=True)
        assert answer.headers["Retry-After"]
    assert await topic.values() == [1]
    assert (await gateway.send("GET", "/healthz")).status == 200


async def test_an_event_stream_begun_in_a_farewell_is_no_refusal_and_ends_with_when_to_come_back(gateway, topic):
    """A browser's EventSource that receives 503 stops permanently."""
    await topic.post_lines("1", to=0)
    gateway.node.end_long_polls()
    for path in (f"{topic.path}/partitions/0/records", f"{topic.path}/records"):
        stream = await gateway.send("GET", f"{path}?from=earliest", b"", {"Accept": "text/event-stream"})
        assert stream.status == 200
        assert b'"value":1' in stream.body
        assert stream.body.endswith(event_stream.FAREWELL)
    await gateway.node.drain()
    refused = await gateway.send("GET", f"{topic.path}/records", b"", {"Accept": "text/event-stream"})
    assert_problem(refused, "draining", retryable=True, no_side_effects=True)


def test_handlers_are_named_for_metrics_and_logs():
    assert all(handler.__name__ != "<lambda>" for _, _, _, handler in ROUTES)
