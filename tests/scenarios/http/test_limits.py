"""Each limit of a node holds, reports its status, and leaves allowed requests unaffected; see
docs/reference/limits.md.
"""

import asyncio
import json

import orjson
import pytest
from h2.errors import ErrorCodes

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, OverHttp2, http2_only, in_process_only
from tests.scenarios.http2_client import Http2Client
from tests.scenarios.raw_http1 import exchange, request_head

MIB = 2**20


async def in_thread(function, *args):
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*args))


async def create(gateway, name, partitions):
    body = orjson.dumps({"partitions": partitions})
    return await gateway.send("PUT", f"/v1/topics/{name}", body, {"Content-Type": JSON})


async def test_topics_are_bounded_and_room_comes_back(start_gateway):
    gateway = await start_gateway(topics_max=2)
    for name in ("a", "b"):
        assert (await create(gateway, name, 1)).status == 201
    assert_problem(await create(gateway, "c", 1), "too_many_topics", limit=2, retryable=False)
    assert (await create(gateway, "a", 1)).status == 200, "it is there, and confirmed"
    assert (await gateway.send("DELETE", "/v1/topics/a")).status == 204
    assert (await create(gateway, "c", 1)).status == 201


@in_process_only
async def test_partitions_are_bounded_in_one_topic_and_in_all(start_gateway):
    gateway = await start_gateway(topic_partitions_max=4, partitions_max=6)
    assert_problem(await create(gateway, "a", 5), "invalid_config", limit=4)
    assert (await create(gateway, "a", 4)).status == 201
    assert_problem(await create(gateway, "b", 3), "too_many_topics", limit=6)
    assert (await create(gateway, "b", 2)).status == 201


@in_process_only
async def test_topics_made_on_the_spot_count_too(start_gateway):
    gateway = await start_gateway(topics_max=1, auto_create_topics=True)
    assert (await gateway.send("POST", "/v1/topics/a/records", b"x")).status == 200
    assert_problem(await gateway.send("POST", "/v1/topics/b/records", b"x"), "too_many_topics", limit=1)


@in_process_only
async def test_a_query_value_is_bounded(start_gateway):
    gateway = await start_gateway(query_value_chars_max=300)
    topic = await gateway.create("queries")
    assert (await topic.post(b"x", key="k" * 300)).status == 200
    assert_problem(await topic.post(b"x", key="k" * 301), "invalid_query", parameter="key")


def one_record(value: bytes, content_type: str) -> bytes:
    return b'{"records":[{"value":1},{"value":%s}]}' % value if content_type == JSON else b"1\n" + value + b"\n"


@in_process_only
@pytest.mark.parametrize("content_type", [JSON, NDJSON])
async def test_json_nested_too_deeply_is_refused(topic, content_type):
    """Beyond about 900 levels the decoder itself fails: Python's limit of 1,000 minus the calls on the stack."""
    for depth in (128, 129, 600, 1_000, 100_000):
        value = b'{"a":[' * (depth // 2) + b"[" * (depth % 2) + b"1" + b"]" * (depth % 2) + b"]}" * (depth // 2)
        answer = await topic.post(one_record(value, content_type), content_type)
        if depth == 128:
            assert answer.status == 200
        else:
            assert_problem(answer, "json_too_complex")
        if 128 < depth < 900:
            assert_problem(answer, "json_too_complex", record=1, byte=64 * 6, limit=128)
    assert (await topic.positions())["log_end"] == 2


@in_process_only
@pytest.mark.parametrize("content_type", [JSON, NDJSON])
async def test_a_number_of_too_many_digits_is_refused(topic, content_type):
    for number in (b"1" * 1_000, b"1" * 1_001, b"1" * 5_000, b"1" * 900 + b"." + b"1" * 900, b"1e" + b"1" * 1_000):
        value = b'{"text":"%s","n":-%s}' % (b"1" * 5_000, number)
        answer = await topic.post(one_record(value, content_type), content_type)
        if len(number) == 1_000:
            assert answer.status == 200
        else:
            assert_problem(answer, "json_too_complex", record=1, byte=5_016, limit=1_000)
    assert (await topic.positions())["log_end"] == 2


@in_process_only
async def test_the_limits_on_json_are_settings(start_gateway):
    gateway = await start_gateway(json_depth_max=300, json_number_digits_max=64)
    topic = await gateway.create("limits")
    assert (await topic.post(b"[" * 300 + b"]" * 300 + b"\n", NDJSON)).status == 200
    assert_problem(await topic.post(b"[" * 301 + b"]" * 301 + b"\n", NDJSON), "json_too_complex", limit=300)
    assert_problem(await topic.post(b"1" * 65 + b"\n", NDJSON), "json_too_complex", limit=64)


@http2_only
async def test_headers_over_http1_are_bounded_in_bytes_and_number(start_gateway):
    gateway = await start_gateway(header_bytes_max=16 * 1024)
    fine = request_head("GET", "/healthz", "X: " + "x" * 8_000)
    assert (await in_thread(exchange, gateway.port, fine)).startswith(b"HTTP/1.1 200 ")
    for headers in (["X: " + "x" * 20_000], [f"X-{number}: x" for number in range(101)]):
        answer = await in_thread(exchange, gateway.port, request_head("GET", "/healthz", *headers))
        assert answer.startswith(b"HTTP/1.1 431 "), answer
        assert b'"code":"headers_too_large"' in answer
    assert (await gateway.send("GET", "/healthz")).status == 200


@http2_only
async def test_headers_over_http2_are_bounded(start_gateway):
    gateway = await start_gateway(header_bytes_max=16 * 1024)
    client = await Http2Client.open("127.0.0.1", gateway.port)
    async with asyncio.timeout(60):
        try:
            status, _, _ = await client.request("GET", "/healthz", {"x": "x" * 8_000}, b"")
            assert status == 200
            status, _, body = await client.request("GET", "/healthz", {"x": "x" * 40_000}, b"")
            assert status == 431
            assert json.loads(body)["code"] == "headers_too_large"
        finally:
            await client.close()
    assert (await gateway.send("GET", "/healthz")).status == 200


@http2_only
async def test_streams_of_a_connection_are_limited_and_further_ones_are_retryable(start_gateway):
    gateway = await start_gateway(http2_streams_max=3)
    topic = await gateway.create("streams")
    client = await Http2Client.open("127.0.0.1", gateway.port)
    path = f"{topic.path}/partitions/0/records?offset=0&wait_ms=60000"
    try:
        waiting = [client.begin("GET", path, {}, is_whole=True)[1] for _ in range(3)]
        refused = client.begin("GET", path, {}, is_whole=True)[1]
        async with asyncio.timeout(45):
            with pytest.raises(ConnectionResetError, match=ErrorCodes.REFUSED_STREAM.name):
                await refused.answered
            assert (await topic.post(b"x")).status == 200
            await asyncio.gather(*(stream.answered for stream in waiting))
    finally:
        await client.close()


@http2_only
async def test_connections_past_the_bound_wait_until_one_leaves(start_gateway):
    """None is rejected: they stay in the kernel's queue, where they cost the node nothing."""
    gateway = await start_gateway(connections_max=16)
    held = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(15)]
    request = request_head("GET", "/healthz")
    answer = asyncio.create_task(in_thread(exchange, gateway.port, request))
    late, _ = await asyncio.wait({answer}, timeout=0.3)
    assert not late, "sixteen are open, with the one of this test"
    for _, writer in held[:2]:
        writer.close()
    async with asyncio.timeout(60):
        assert (await answer).startswith(b"HTTP/1.1 200 ")
    for _, writer in held[2:]:
        writer.close()


@http2_only
async def test_bodies_under_way_are_bounded_in_total_and_reads_continue(start_gateway):
    """Three clients hold almost 4 MiB without finishing; a fourth is rejected at once, and served after they have
    left.
    """
    settings = {
        "request_body_bytes_max": 2 * MIB,
        "lingering_close_ms_max": 200,
        "connection_bytes_in_flight_max": 4 * MIB,
    }
    gateway = await start_gateway(request_bytes_in_flight_max=4 * MIB, **settings)
    topic = await gateway.create("held")
    clients = [await hold(gateway, topic, 1_300_000) for _ in range(3)]
    async with asyncio.timeout(60):
        while await gateway.metric("penstock_request_bytes_in_flight") < 3 * 1_300_000:
            await asyncio.sleep(0.02)
    refused = await topic.post(b"x" * 900_000, "text/plain")
    assert_problem(refused, "overloaded", no_side_effects=True)
    assert refused.headers["Retry-After"]
    assert (await topic.fetch(0)).status == 200
    for client in clients:
        client.close()
    assert (await until(lambda: topic.post(b"x" * 900_000, "text/plain"), 200)).status == 200


@http2_only
async def test_bodies_under_way_are_bounded_on_one_connection(start_gateway):
    settings = {
        "request_body_bytes_max": 2 * MIB,
        "lingering_close_ms_max": 200,
        "request_bytes_in_flight_max": 64 * MIB,
    }
    gateway = await start_gateway(connection_bytes_in_flight_max=4 * MIB, **settings)
    assert isinstance(gateway, OverHttp2)
    topic = await gateway.create("held")
    client = await Http2Client.open("127.0.0.1", gateway.port)
    headers = {"content-length": str(2 * MIB)}
    streams = [client.begin("POST", f"{topic.path}/records", headers, is_whole=False)[1] for _ in range(3)]
    await client.wait_for_window(4 * MIB)
    for _ in range(90):
        for number in range(3):
            client.send_part(1 + 2 * number, b"x" * 16_384)
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        done, _ = await asyncio.wait([s.answered for s in streams], return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    assert [(":status", "429") in stream.headers for stream in streams].count(True) == 1
    assert (await topic.post(b"x" * 900_000, "text/plain")).status == 200, "another connection has its own bound"
    await client.close()


async def hold(gateway, topic, size):
    """Open a connection with an unfinished body."""
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(request_head("POST", f"{topic.path}/records", f"Content-Length: {2 * MIB}"))
    writer.write(b"x" * size)
    await writer.drain()
    return writer


async def until(request, status):
    """Poll until this is the answer; a node that never gives it fails the test."""
    async with asyncio.timeout(60):
        while (answer := await request()).status != status:
            await asyncio.sleep(0.02)
    return answer
