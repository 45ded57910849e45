"""Uploads that break off: no part of them is stored, for any framing, and other requests are not affected."""

import asyncio

import pytest

from tests.scenarios.gateways import OverHttp2, http2_only
from tests.scenarios.raw_http1 import exchange, request_head, send_and_leave

pytestmark = http2_only

# From 1 MiB on the adapter reads bodies in pieces.
ANNOUNCED = pytest.mark.parametrize("announced", [10, 2_000_000], ids=["small", "large"])


async def in_thread(function, *args, **kwargs):
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*args, **kwargs))


async def nothing_arrives(topic) -> bool:
    """Check that the node stored nothing within a while, and still accepts complete requests."""
    await asyncio.sleep(0.15)
    is_empty = (await topic.positions())["log_end"] == 0
    await topic.post(b"whole", "text/plain")
    return is_empty and await topic.values() == ["whole"]


@ANNOUNCED
async def test_a_body_shorter_than_announced_is_not_stored(topic, announced):
    head = request_head("POST", f"{topic.path}/records", f"Content-Length: {announced}")
    await in_thread(send_and_leave, topic.gateway.port, head, b"12345")
    assert await nothing_arrives(topic)


@ANNOUNCED
async def test_an_upload_that_ended_early_does_not_get_200(topic, announced):
    head = request_head("POST", f"{topic.path}/records", f"Content-Length: {announced}")
    answer = await in_thread(exchange, topic.gateway.port, head, b"12345", ends_sending=True)
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")
    assert await nothing_arrives(topic)


@pytest.mark.parametrize("part", [b"", b"5\r\n12345\r\n", b"5\r\n123", b"5\r\n12345\r\n0\r\n"])
async def test_a_chunked_body_without_its_end_is_not_stored(topic, part):
    head = request_head("POST", f"{topic.path}/records", "Transfer-Encoding: chunked")
    await in_thread(send_and_leave, topic.gateway.port, head, part)
    answer = await in_thread(exchange, topic.gateway.port, head, part, ends_sending=True)
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")
    assert await nothing_arrives(topic)


async def test_a_chunked_body_with_its_end_is_stored(topic):
    """The counterpart, so that the tests above can fail."""
    head = request_head("POST", f"{topic.path}/records", "Transfer-Encoding: chunked", "Content-Type: text/plain")
    answer = await in_thread(exchange, topic.gateway.port, head, b"5\r\n12345\r\n", b"1\r\n6\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert await topic.values() == ["123456"]


@pytest.mark.parametrize("announced", [None, 10, 2_000_000], ids=["unannounced", "small", "large"])
@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_a_stream_that_ends_before_its_body_is_not_stored(topic, announced, ending):
    gateway = topic.gateway
    assert isinstance(gateway, OverHttp2)
    headers = {} if announced is None else {"content-length": str(announced)}
    stream_id, _ = gateway.client.begin("POST", f"{topic.path}/records", headers, is_whole=False)
    gateway.client.send_part(stream_id, b"12345")
    await asyncio.sleep(0.1)
    if ending == "reset":
        gateway.client.reset(stream_id)
    else:
        await gateway.client.close()
        gateway.client = await type(gateway.client).open("127.0.0.1", gateway.port)
    assert await nothing_arrives(topic)


async def test_a_gzip_body_that_is_cut_off_is_not_stored(topic):
    import gzip

    packed = gzip.compress(b'{"records":[{"value":1}]}')
    for length in (0, 1, 10, len(packed) - 8, len(packed) - 1):
        answer = await topic.post(packed[:length], "application/json", {"Content-Encoding": "gzip"})
        assert answer.status == 400
    assert await nothing_arrives(topic)
