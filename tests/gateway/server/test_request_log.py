"""The log entries of requests, and what they never contain."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import queue
from contextlib import suppress

import pytest

from node.setup.logs import _NonBlockingHandler
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import JSON, in_process, over_http2

SECRETS = ("payload", "s3cret", "hidden-key", "token", "unknown-topic")


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "penstock.requests")
    return lambda: [record for record in caplog.records if record.name == "penstock.requests"]


async def test_a_request_is_a_line_with_its_route_and_never_what_was_in_it(tmp_path, lines):
    async with in_process(tmp_path, request_log=True) as gateway:
        topic = await gateway.create("orders")
        headers = {"Penstock-Client-Id": "shop", "X-Request-Id": "r-1", "Authorization": "Bearer token"}
        await topic.post(b"payload", "text/plain", headers, key="hidden-key")
        await gateway.send("GET", "/v1/topics/unknown-topic")
        await gateway.send("GET", "/nothing/s3cret?token=s3cret")
    created, produced, unknown, nothing = lines()
    assert produced.getMessage() == "request"
    assert (produced.request_id, produced.client_id, produced.topic) == ("r-1", "shop", "orders")
    assert (produced.method, produced.route) == ("POST", "/v1/topics/{topic}/records")
    assert (produced.status, produced.bytes_in, produced.operation) == (200, 7, "produce")
    assert produced.duration_ms > 0
    assert produced.bytes_out > 10
    assert created.status == 201
    assert (unknown.code, unknown.status, unknown.route) == ("unknown_topic", 404, "/v1/topics/{topic}")
    assert (nothing.code, nothing.route) == ("not_found", None)
    said = json.dumps([vars(line) for line in lines()], default=str)
    assert not [secret for secret in SECRETS if secret in said.replace("unknown_topic", "")]


async def test_nothing_is_said_of_requests_that_went_well_or_were_wrong(tmp_path, lines):
    async with in_process(tmp_path) as gateway:
        await (await gateway.create("t")).post_lines("1")
        await gateway.send("GET", "/v1/topics/unknown")
        await gateway.send("GET", "/v1/groups")
    assert lines() == []


async def test_failures_of_the_node_are_logged_once_a_second_with_the_number_suppressed(tmp_path, lines, monkeypatch):
    def fail(*_args):
        raise OSError(errno.ENOSPC, "planted")

    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("t")
        clock = [100.0]
        with monkeypatch.context() as planted:
            planted.setattr(gateway.node.clock, "monotonic", lambda: clock[0])
            planted.setattr(gateway.node.shard.disk, "pwritev", fail)
            for _ in range(3):
                assert (await topic.post_lines("1", acks="1")).status == 507
            clock[0] += 1.5
            await topic.post_lines("1", acks="1")
    first, second = lines()
    assert (first.getMessage(), first.code, first.levelname) == ("request failed", "storage_full", "WARNING")
    assert second.silenced == 2


async def test_slow_requests_are_logged_and_long_polls_are_not(tmp_path, lines):
    async with in_process(tmp_path, slow_request_ms=1) as gateway:
        topic = await gateway.create("t", 20)
        await topic.fetch(offset=0, wait_ms=30)
    (slow,) = lines()
    assert (slow.getMessage(), slow.operation, slow.levelname) == ("slow request", "create_topic", "WARNING")


async def test_a_client_that_leaves_is_a_line_without_a_status(tmp_path, lines):
    async with in_process(tmp_path, request_log=True) as gateway:
        topic = await gateway.create("t")
        poll = asyncio.create_task(topic.fetch(offset=0, wait_ms=60_000))
        while not gateway.node.long_polls.open:
            await asyncio.sleep(0.01)
        poll.cancel()
        with suppress(asyncio.CancelledError):
            await poll
        while not any(line.getMessage() == "client disconnected" for line in lines()):
            await asyncio.sleep(0.01)
    (left,) = [line for line in lines() if line.getMessage() == "client disconnected"]
    assert left.operation == "fetch"


def test_a_log_that_nobody_reads_loses_lines_and_says_how_many():
    lines: queue.Queue[logging.LogRecord] = queue.Queue(1)
    handler = _NonBlockingHandler(lines)
    records = [logging.makeLogRecord({"msg": str(n)}) for n in range(4)]
    for record in records[:3]:
        handler.handle(record)
    assert lines.get().getMessage() == "0"
    handler.handle(records[3])
    assert lines.get().lines_lost_before == 2


@pytest.mark.e2e
async def test_a_node_writes_one_json_object_a_line(tmp_path):
    with running_process(tmp_path, request_log=True) as process:
        async with over_http2(process.port) as gateway:
            await gateway.send("POST", "/v1/records", b"{}", {"Content-Type": JSON, "X-Request-Id": "r-2"})
        assert process.stop() == 0
        (line,) = [json.loads(line) for line in process.errors.splitlines()]
    assert (line["request_id"], line["status"], line["code"]) == ("r-2", 400, "invalid_body")
    assert line["logger"] == "penstock.requests"
