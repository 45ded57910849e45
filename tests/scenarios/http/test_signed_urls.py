"""Signed URLs over HTTP/1.1 and HTTP/2, on a node of two shards: what they give, and the hostile list."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from tests.e2e.node_process import NodeProcess, running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, Answer, Gateway, over_http2
from tests.tokens import add_token, bearer

RECORDS = "/v1/topics/t/records"
PARTITION = "/v1/topics/t/partitions/0/records"
READ = f"{PARTITION}?offset=0"
PACKED = {"Content-Encoding": "gzip"}
BODY = b'{"records":[{"value":1}]}'


class Node:
    """A node, its callers and its process. `send` takes one HTTP version."""

    def __init__(self, process: NodeProcess, tokens: dict[str, str]) -> None:
        self.process = process
        self.tokens = tokens

    def call(self, caller: str, method: str, path: str, document: object = None) -> Any:
        """Send with the token of a caller over a connection of its own. Return status and JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.process.port, timeout=30)
        body = None if document is None else orjson.dumps(document)
        connection.request(method, path, body, bearer(self.tokens[caller]) | {"Content-Type": JSON})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, orjson.loads(text) if text else None

    def make(self, caller: str, path: str, document: object) -> Any:
        status, answer = self.call(caller, "POST", path, document)
        assert status == 201, answer
        return answer

    def sign(self, caller: str, url: str = READ, method: str = "GET", **wish: object) -> str:
        return self.make(caller, "/v1/access/signed-urls", {"url": url, "method": method, **wish})["url"]

    def add_store_token(self, name: str, **fields: object) -> None:
        self.tokens[name] = self.make("boss", "/v1/access/tokens", {"name": name, **fields})["token"]
        rule = {"id": name, "principals": [f"token:{name}"], "operations": ["read", "write"], "resource": "topic"}
        self.make("boss", "/v1/access/rules", rule | {"name": "t"})


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("signed")
    path = directory / "tokens.toml"
    tokens = {
        "boss": add_token(path, "boss", admin=[""]),
        "file": add_token(path, "file", read=["t"], write=["t"]),
        "none": add_token(path, "none"),
    }
    settings = {"superusers": "token:boss", "shards": 2, "signed_url_life_max_ms": 3_600_000, "log_level": "debug"}
    with running_process(directory, tokens_file=path, request_log=True, **settings) as process:
        node = Node(process, tokens)
        assert (
            node.call("boss", "PUT", "/v1/topics/t", {"partitions": 1, "config": {"cleanup_policy": "compact"}})[0]
            == 201
        )
        status, answer = node.call("file", "POST", "/v1/access/signed-urls", {"url": READ})
        assert (status, answer["code"]) == (404, "unknown_access")  # no key yet
        node.make("boss", "/v1/access/keys", None)
        node.add_store_token("shop")
        assert node.call("file", "POST", RECORDS, {"records": [{"key": "k", "value": 1}]})[0] == 200
        yield node


class OverHttp1:
    def __init__(self, port: int) -> None:
        self._port = port

    async def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        return await asyncio.to_thread(self._send, method, path, body, headers or {})

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        return found


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
async def gateway(request, node) -> AsyncIterator[Gateway | OverHttp1]:
    if request.param == "HTTP/1.1":
        yield OverHttp1(node.process.port)
    else:
        async with over_http2(node.process.port) as gateway:
            yield gateway


@pytest.mark.parametrize("caller", ["file", "shop", "boss"])
async def test_a_signed_url_reads_in_the_name_of_its_signer_and_no_cache_may_keep_it(node, gateway, caller):
    url = node.sign(caller)
    assert parse_qs(urlsplit(url).query)["sig_sub"] == [f"token:{caller}"]
    for method in ("GET", "HEAD"):
        answer = await gateway.send(method, url)
        assert answer.status == 200, answer.body
        assert answer.headers["cache-control"] == "private, no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
    answer = await gateway.send("GET", node.sign(caller, "/v1/topics/t/table/k"))
    assert (answer.status, answer.headers["cache-control"]) == (200, "private, no-store")
    assert (await gateway.send("GET", url, headers={"If-None-Match": '"x"', "Range": "bytes=0-1"})).status == 200


async def test_a_url_gives_only_what_its_signer_has(node, gateway):
    status, answer = node.call("none", "POST", "/v1/access/signed-urls", {"url": READ})
    assert (status, answer["code"], answer["operation"]) == (403, "forbidden", "read")
    for wish, says in (
        ({"url": READ, "life_ms": 3_600_001}, "3600000 ms at most"),
        ({"url": READ, "life_ms": 1}, "life_ms"),
        ({"url": READ, "max_bytes": 5}, "max_bytes is for POST"),
        ({"url": READ, "method": "PUT"}, "method"),
        ({"url": "/v1/topics"}, "cannot be signed"),
        ({"url": f"{READ}&sig=x"}, "begins with sig"),
        ({}, "url"),
    ):
        status, answer = node.call("shop", "POST", "/v1/access/signed-urls", wish)
        assert (status, says in answer["detail"]) == (400, True), answer
    document = await gateway.send("POST", "/v1/access/signed-urls", orjson.dumps({"url": READ}), {"Content-Type": JSON})
    assert document.status == 401


CHANGES = {
    "parameter added": lambda url: f"{url}&max_bytes=9",
    "parameter removed": lambda url: url.replace("offset=0&", ""),
    "parameter doubled": lambda url: url.replace("offset=0", "offset=0&offset=0"),
    "value": lambda url: url.replace("offset=0", "offset=1"),
    "path": lambda url: url.replace("/t/", "/u/"),
    "escape": lambda url: url.replace("/t/", "/%74/"),
    "slash": lambda url: url.replace("/t/", "%2Ft/"),
    "case of escapes": lambda url: url.replace("%3A", "%3a"),
    "subject": lambda url: url.replace("token%3Ashop", "token%3Aboss"),
    "unknown subject": lambda url: url.replace("token%3Ashop", "token%3Anobody"),
    "anonymous": lambda url: url.replace("token%3Ashop", "anonymous"),
    "kind": lambda url: url.replace("token%3Ashop", "oidc%3Acorp%3Ashop"),
    "end": lambda url: url.replace("sig_exp=1", "sig_exp=2"),
    "signature": lambda url: url[:-2] + ("AA" if url[-2:] != "AA" else "BA"),
    "cut": lambda url: url[:-1],
    "twice": lambda url: f"{url}&sig=x",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_changed_url_is_refused(node, gateway, change):
    url = node.sign("shop")
    assert (await gateway.send("GET", url)).status == 200
    answer = await gateway.send("GET", change(url))
    assert answer.status in (401, 404) if "%2Ft" in change(url) else answer.status == 401, answer.body
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_a_reordered_url_is_the_same(node, gateway):
    path, _, query = node.sign("shop").partition("?")
    first, *rest = query.split("&")
    assert (await gateway.send("GET", f"{path}?{'&'.join([*rest, first])}")).status == 200


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_url_is_for_its_method(node, gateway, method):
    answer = await gateway.send(method, node.sign("boss"), BODY if method == "POST" else b"", {"Content-Type": JSON})
    assert answer.status == 401
    headers = {"X-HTTP-Method-Override": "DELETE", "X-Original-URL": "/v1/topics", "X-Forwarded-Prefix": "/v1"}
    answer = await gateway.send("GET", node.sign("boss"), headers=headers)
    assert answer.status == 200
    assert answer.json["records"]


async def test_two_credentials_are_refused(node, gateway):
    answer = await gateway.send("GET", node.sign("shop"), headers=bearer(node.tokens["shop"]))
    assert_problem(answer, "invalid_header")
    assert (await gateway.send("GET", READ, headers=bearer(node.tokens["shop"]))).status == 200
    answer = await gateway.send("GET", node.sign("shop"), headers=bearer(node.tokens["shop"]))  # a known connection
    assert_problem(answer, "invalid_header")


async def test_other_routes_take_no_signature(node, gateway):
    _, _, query = node.sign("boss").partition("?")
    for method, path in (
        ("GET", "/v1/topics"),
        ("GET", "/metrics"),
        ("POST", "/v1/access/keys"),
        ("GET", "/v1/groups"),
    ):
        assert (await gateway.send(method, f"{path}?{query}")).status == 401, path
    assert (await gateway.send("GET", f"/healthz?{query}")).status == 400


async def test_a_url_ends_at_its_second(node, gateway):
    url = node.sign("shop", life_ms=1000)
    ends_s = int(parse_qs(urlsplit(url).query)["sig_exp"][0])
    await asyncio.sleep(max(0, ends_s - time.time()) + 0.05)
    answer = await gateway.send("GET", url)
    assert (answer.status, "expired" in answer.json["detail"]) == (401, True)


async def test_a_produce_takes_as_many_bytes_as_were_signed(node, gateway):
    body = b'{"records":[{"key":"k","value":1}]}'
    url = node.sign("shop", RECORDS, "POST", max_bytes=len(body))
    assert f"sig_max_bytes={len(body)}" in url
    headers = {"Content-Type": JSON}
    answer = await gateway.send("POST", url, body, headers)
    assert answer.status == 200, answer.body
    assert answer.headers["cache-control"] == "private, no-store"
    assert_problem(await gateway.send("POST", url, body + b" ", headers), "body_too_large", limit=len(body))
    assert_problem(await gateway.send("POST", url, body + b" ", headers), "body_too_large", limit=len(body))
    packed = gzip.compress(body[:-2] + b" " * 5000 + body[-2:])
    answer = await gateway.send("POST", node.sign("shop", RECORDS, "POST", max_bytes=5000), packed, headers | PACKED)
    assert_problem(answer, "body_too_large", limit=5000)  # it is small as it is sent
    assert (await gateway.send("GET", url)).status == 401
    assert (await gateway.send("POST", url.replace(f"bytes={len(body)}", "bytes=99"), body, headers)).status == 401


def test_a_body_in_chunks_has_the_same_limit(node):
    url = node.sign("shop", RECORDS, "POST", max_bytes=40)
    for size, status in ((0, 200), (9, 413)):
        connection = http.client.HTTPConnection("127.0.0.1", node.process.port, timeout=30)
        chunks = [b'{"records":[{"key":"k",', b'"value":1}]}', b" " * size]
        connection.request("POST", url, filter(None, chunks), {"Content-Type": JSON}, encode_chunked=True)
        assert connection.getresponse().status == status
        connection.close()


def stream(node: Node, url: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", node.process.port, timeout=30)
    connection.request("GET", url, headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    assert answer.headers["Cache-Control"] == "private, no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    return connection, answer


def test_a_stream_ends_itself_at_its_end_with_an_event(node):
    for path in (f"{PARTITION}?from=latest", f"{RECORDS}?from=latest", "/v1/topics/t/table?follow=true"):
        began = time.monotonic()
        connection, answer = stream(node, node.sign("shop", path, life_ms=3000))
        text = answer.read().decode()
        assert 1.5 < time.monotonic() - began < 5
        assert "event: problem" in text
        assert "the signed URL has expired" in text
        connection.close()


@pytest.mark.parametrize("how", ["token revoked", "rule denies", "key removed"])
def test_a_stream_ends_with_the_right_of_its_subject(node, how):
    name = how.replace(" ", "-")
    node.add_store_token(name)
    connection, answer = stream(node, node.sign(name, f"{PARTITION}?from=latest"))
    read = node.sign(name)
    began = time.monotonic()
    if how == "token revoked":
        assert node.call("boss", "DELETE", f"/v1/access/tokens/{name}")[0] == 200
    elif how == "rule denies":
        rule = {"id": "deny", "effect": "deny", "principals": [f"token:{name}"], "operations": ["read"]}
        node.make("boss", "/v1/access/rules", rule | {"resource": "topic", "name": "t"})
    else:
        (old,) = node.call("boss", "GET", "/v1/access/keys")[1]["keys"]
        assert "secret" not in old
        node.make("boss", "/v1/access/keys", None)
        status, problem = node.call("boss", "POST", "/v1/access/keys")
        assert (status, problem["code"]) == (409, "too_many_rules")
        newer = node.sign(name)
        assert f"sig_key={old['id']}" in read
        assert f"sig_key={old['id']}" not in newer
        assert node.call("boss", "DELETE", f"/v1/access/keys/{old['id']}")[0] == 200
    assert "event: problem" in answer.read().decode()
    assert time.monotonic() - began < 4
    connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", node.process.port, timeout=30)
    connection.request("GET", read)
    assert connection.getresponse().status == (403 if how == "rule denies" else 401)
    connection.close()
    if how == "key removed":
        asyncio.run(OverHttp1(node.process.port).send("GET", newer))


def test_a_url_ends_with_the_token_that_signed_it(node):
    node.add_store_token("brief", life_ms=4000)
    url = node.sign("brief", f"{PARTITION}?from=latest", life_ms=600_000)
    connection, answer = stream(node, url)
    began = time.monotonic()
    assert "event: problem" in answer.read().decode()
    assert time.monotonic() - began < 6
    connection.close()


def test_no_signature_is_in_a_log_a_metric_or_a_problem(node):
    url = node.sign("shop")
    signature = parse_qs(urlsplit(url).query)["sig"][0]
    connection = http.client.HTTPConnection("127.0.0.1", node.process.port, timeout=30)
    for method, path in (
        ("GET", url),
        ("GET", url + "&x=1"),
        ("POST", url),
        ("GET", url.replace("records", "nothing")),
    ):
        connection.request(method, path)
        assert signature not in connection.getresponse().read().decode()
    connection.request("GET", "/metrics", headers=bearer(node.tokens["boss"]))
    assert signature not in connection.getresponse().read().decode()
    connection.close()
    assert "token:shop" in node.process.errors  # the control: these requests are logged
    assert signature not in node.process.errors
    assert "sig_exp" not in node.process.errors
