"""Invalid request heads over real HTTP/1.1 and HTTP/2 that a server should reject (RFC 9110, 9112, 9113).

aiohttp's own server, which in-process scenarios use, rejects most of them without a problem document. So these tests
use a real node only.
"""

import asyncio
import json

import pytest

from tests.scenarios.gateways import OverHttp2, http2_only
from tests.scenarios.raw_http1 import exchange

pytestmark = http2_only
CHUNKED = b"1\r\n6\r\n0\r\n\r\n"
HOST = "Host: 127.0.0.1"


async def send(port, line, *headers, body=b""):
    """Return status and body of one HTTP/1.1 exchange; the head is sent unchanged."""
    head = "\r\n".join([line, *headers, "Connection: close", "", ""]).encode("latin-1")
    answer = await asyncio.get_running_loop().run_in_executor(None, exchange, port, head + body)
    first, _, rest = answer.partition(b"\r\n\r\n")
    return int(first.split(b" ")[1]), rest


async def refusal(port, line, *headers, body=b""):
    status, problem = await send(port, line, *headers, body=body)
    return status, json.loads(problem)["code"]


async def test_in_http2_a_host_that_differs_from_the_authority_is_400(gateway):
    """RFC 9113 8.3.1."""
    assert (await gateway.send("GET", "/v1/topics", b"", {"Host": f"127.0.0.1:{gateway.port}"})).status == 200
    refused = await gateway.send("GET", "/v1/topics", b"", {"Host": "127.0.0.2"})
    assert (refused.status, refused.json["code"]) == (400, "invalid_header")


@pytest.mark.parametrize(
    "header",
    ["Content-Type: text/plain", "Origin: http://127.0.0.1", "Idempotency-Key: a", "Content-Encoding: identity",
     "Penstock-Key: a", "Producer-Id: 0", "ce-id: 1"],
)  # fmt: skip
async def test_a_header_with_one_value_must_not_be_repeated(topic, header):
    line = f"POST {topic.path}/records HTTP/1.1"
    seen = await refusal(topic.gateway.port, line, HOST, header, header, "Content-Length: 1", body=b"1")
    assert seen == (400, "invalid_header")
    other = header + "x"
    seen = await refusal(topic.gateway.port, line, HOST, header, other, "Content-Length: 1", body=b"1")
    assert seen == (400, "invalid_header")
    assert await topic.records() == []


@pytest.mark.parametrize(
    ("codings", "status", "code"),
    [
        (["gzip, chunked"], 501, "unsupported_transfer_coding"),
        (["gzip", "chunked"], 501, "unsupported_transfer_coding"),
        (["x-unheard-of,chunked"], 501, "unsupported_transfer_coding"),
    ],
)
async def test_a_transfer_coding_that_is_not_undone_is_refused(topic, codings, status, code):
    """The body was once taken as not encoded."""
    headers = [f"Transfer-Encoding: {coding}" for coding in codings]
    line = f"POST {topic.path}/records HTTP/1.1"
    assert await refusal(topic.gateway.port, line, HOST, *headers, body=CHUNKED) == (status, code)
    assert await topic.records() == []
    assert (await send(topic.gateway.port, line, HOST, "Transfer-Encoding: Chunked", body=CHUNKED))[0] == 200


@pytest.mark.parametrize("coding", ["gzip", "chunked, gzip", "identity", "chunked, chunked"])
async def test_a_body_whose_end_cannot_be_found_is_400(topic, coding):
    """The parser rejects it before the gateway sees it."""
    line = f"POST {topic.path}/records HTTP/1.1"
    seen = await refusal(topic.gateway.port, line, HOST, f"Transfer-Encoding: {coding}", body=CHUNKED)
    assert seen == (400, "malformed_request")
    assert await topic.records() == []


async def test_trailers_over_http2_are_ignored(topic):
    gateway = topic.gateway
    assert isinstance(gateway, OverHttp2)
    stream_id, stream = gateway.client.begin(
        "POST", f"{topic.path}/records", {"content-type": "text/plain"}, is_whole=False
    )
    gateway.client.send_part(stream_id, b"with trailers")
    gateway.client.send_trailers(stream_id, [("x-sum", "1")])
    await stream.answered
    assert dict(stream.headers)[":status"] == "200"
    assert await topic.values() == ["with trailers"]
