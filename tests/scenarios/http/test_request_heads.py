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


@pytest.mark.parametrize(
    "hosts",
    [[], ["Host: 127.0.0.1", "Host: 127.0.0.1"], ["Host: 127.0.0.1", "Host: a.example"], ["Host:"], ["Host: a b"],
     ["Host: a/b"], ["Host: u@localhost"], ["Host: localhost:x"], ["Host: caf\xe9"], ["Host: [fe80::1%25eth0]"]],
)  # fmt: skip
async def test_a_host_that_is_missing_repeated_or_malformed_is_400(gateway, hosts):
    assert await refusal(gateway.port, "GET /healthz HTTP/1.1", *hosts) == (400, "invalid_header")
    assert await refusal(gateway.port, "GET http://127.0.0.1/healthz HTTP/1.1", *hosts) == (400, "invalid_header")


async def test_http10_may_leave_the_host_out(gateway):
    """Health checks of old load balancers send none; a page in a browser cannot omit it."""
    assert (await send(gateway.port, "GET /healthz HTTP/1.0"))[0] == 200
    assert await refusal(gateway.port, "GET /healthz HTTP/1.0", "Host: a.example") == (421, "host_not_allowed")


async def test_the_host_of_an_absolute_target_counts(gateway):
    """RFC 9112 3.2.2."""
    assert (await send(gateway.port, "GET http://127.0.0.1/healthz HTTP/1.1", "Host: a.example"))[0] == 200
    foreign = await refusal(gateway.port, "GET http://a.example/healthz HTTP/1.1", HOST)
    assert foreign == (421, "host_not_allowed")


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


async def test_headers_that_are_lists_may_be_repeated(topic):
    lists = [
        "Accept: text/html",
        "Accept: application/json",
        "Via: a",
        "Via: b",
        "X-Forwarded-For: a",
        "X-Forwarded-For: b",
    ]
    assert (await send(topic.gateway.port, f"GET {topic.path} HTTP/1.1", HOST, *lists))[0] == 200


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


@pytest.mark.parametrize("declared", [[], ["Trailer: X-Sum"]])
async def test_trailers_over_http1_are_ignored(topic, declared):
    """RFC 9110 6.5.1. They are distinct from a body that was cut off, which is not stored."""
    line = f"POST {topic.path}/records HTTP/1.1"
    head = [HOST, *declared, "Content-Type: text/plain", "Transfer-Encoding: chunked"]
    sent = b"1\r\n6\r\n0\r\nX-Sum: 1\r\n\r\n"
    assert (await send(topic.gateway.port, line, *head, body=sent))[0] == 200
    assert await topic.values() == ["6"]


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


async def test_options_of_the_node_as_a_whole_over_http1(gateway):
    assert await send(gateway.port, "OPTIONS * HTTP/1.1", HOST) == (204, b"")
    assert await refusal(gateway.port, "GET * HTTP/1.1", HOST) == (404, "not_found")


@pytest.mark.parametrize("path", ["/v1%2Ftopics", "/v1/topics%2F{topic}"])
async def test_an_encoded_slash_does_not_separate(topic, path):
    status, code = await refusal(topic.gateway.port, f"GET {path.replace('{topic}', topic.name)} HTTP/1.1", HOST)
    assert (status, code) == (404, "not_found")


@pytest.mark.parametrize(
    ("line", "header", "seen"),
    [
        ("GET /healthz HTTP/1.1", "A : b", (400, "malformed_request")),
        ("FIND /healthz HTTP/1.1", HOST, (501, "unknown_method")),
        ("GET /healthz HTTP/2.0", HOST, (505, "unsupported_http_version")),
        ("GET /healthz HTTP/1.1", "A: " + "b" * 70_000, (431, "headers_too_large")),
    ],
)
async def test_a_request_that_is_refused_before_its_route_is_known_has_a_problem_document(gateway, line, header, seen):
    assert await refusal(gateway.port, line, header) == seen
