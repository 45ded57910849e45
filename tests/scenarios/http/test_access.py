"""Tokens over two shards, of streams, and of topics that a produce makes; tokens.http has every single answer."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.access.tokens import Tokens
from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import JSON, Answer, Gateway, in_process_only, over_http2
from tests.tokens import add_token, bearer

TOPICS = ("a.one", "b.one")


class Guarded:
    """A node that requires tokens, with two topics of two partitions and one record each."""

    def __init__(self, gateway: Gateway, tokens: dict[str, str]) -> None:
        self.gateway = gateway
        self.tokens = tokens

    async def send(
        self, token_name: str | None, method: str, path: str, document: Any = None, **query: object
    ) -> Answer:
        headers = {} if token_name is None else bearer(self.tokens[token_name])
        body = b""
        if document is not None:
            headers["Content-Type"] = JSON
            body = orjson.dumps(document)
        return await self.gateway.send(method, path, body, headers, **query)


@pytest.fixture(scope="module")
def tokens_file(tmp_path_factory):
    """Write the file; return its tokens by name."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    tokens = {
        "boss": add_token(path, "boss", read=[""], write=[""], admin=[""]),
        "reader": add_token(path, "reader", read=["a."]),
        "writer": add_token(path, "writer", write=["a."]),
    }
    return str(path), tokens


@pytest.fixture(scope="module")
def process(tokens_file, tmp_path_factory):
    with running_process(tmp_path_factory.mktemp("guarded"), tokens_file=tokens_file[0], shards=2) as process:
        yield process


@pytest.fixture
async def guarded(process, tokens_file):
    """Two shards whose topics are new to the test."""
    async with over_http2(process.port) as gateway:
        guarded = Guarded(gateway, tokens_file[1])
        for topic in TOPICS:
            await guarded.send("boss", "DELETE", f"/v1/topics/{topic}")
            assert (await guarded.send("boss", "PUT", f"/v1/topics/{topic}", {"partitions": 2})).status == 201
            for partition in (0, 1):
                where = f"/v1/topics/{topic}/partitions/{partition}/records"
                assert (await guarded.send("boss", "POST", where, {"records": [{"value": 1}]})).status == 200
        yield guarded


async def test_whom_a_shard_forwards_for_is_checked_where_the_request_arrived(guarded):
    """Each process has its own port: the answer is the same for any port and any partition."""
    described = (await guarded.send("boss", "GET", "/v1/topics/a.one")).json
    assert {part["partition"] for part in described["partitions"]} == {0, 1}
    for part in (0, 1):
        path = f"/v1/topics/a.one/partitions/{part}/records"
        assert (await guarded.send("reader", "GET", path, offset=0)).status == 200
        assert_problem(await guarded.send("writer", "GET", path, offset=0), "forbidden")
        assert (await guarded.send(None, "GET", path, offset=0)).status == 401


@pytest.mark.parametrize("where", ["/v1/topics/{}/records", "/v1/topics/{}/partitions/0/records"])
async def test_a_tail_takes_the_right_to_read(guarded, where):
    for token_name, topic, status in (("reader", "a.one", 200), ("reader", "b.one", 403), ("writer", "a.one", 403)):
        headers = bearer(guarded.tokens[token_name])
        async with event_source(guarded.gateway.port, where.format(topic), headers) as stream:
            assert stream.status == status


@in_process_only
async def test_a_token_that_is_withdrawn_ends_its_tails(start_gateway, tokens_file):
    path, tokens = tokens_file
    gateway = await start_gateway(tokens_file=path, stream_heartbeat_ms=100)
    given = bearer(tokens["boss"])
    await gateway.send("PUT", "/v1/topics/withdrawn", b'{"partitions":1}', {**given, "Content-Type": JSON})
    async with event_source(gateway.port, "/v1/topics/withdrawn/records", given) as stream:
        gateway.node.access.use_tokens(Tokens(()))
        assert (await stream.problem())["code"] == "unauthorized"


@in_process_only
async def test_who_may_write_makes_topics_by_writing_where_the_node_does_that(start_gateway, tokens_file):
    path, tokens = tokens_file
    node = Guarded(await start_gateway(tokens_file=path, auto_create_topics=True), tokens)
    records = {"records": [{"value": 1}]}
    assert (await node.send("writer", "POST", "/v1/topics/a.new/records", records)).status == 200
    assert_problem(await node.send("writer", "POST", "/v1/topics/b.new/records", records), "forbidden")
    assert_problem(await node.send("writer", "PUT", "/v1/topics/a.other"), "forbidden", right="admin")
    many = {"records": [{"topic": name, "value": 1} for name in ("a.more", "b.more")]}
    assert (await node.send("writer", "POST", "/v1/records", many)).status == 207
    topics = (await node.send("boss", "GET", "/v1/topics")).json["topics"]
    assert [topic["topic"] for topic in topics] == ["a.more", "a.new"]
