"""Tokens: without one a client gets only health and the contract; with one it gets exactly what the token allows."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import Any

import orjson
import pytest

from gateway.access.tokens_file import Tokens
from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import JSON, Answer, Gateway, in_process_only, over_http2
from tests.tokens import add_token, bearer

TOPICS = ("a.one", "a.two", "b.one")


class Guarded:
    """A node that requires tokens, with three topics of two partitions and one record each."""

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
        "admin": add_token(path, "admin", admin=["a."]),
        "scraper": add_token(path, "scraper", metrics=True),
        "mixed": add_token(path, "mixed", read=["a.one", "b."], write=["a.two", "b."]),
    }
    return str(path), tokens


@pytest.fixture(scope="module")
def process_of(tokens_file, tmp_path_factory):
    """Return one process per form, started by the first test that needs it, since starts are slow."""
    started = {}
    with ExitStack() as stack:

        def process(form: str):
            if form not in started:
                shards = {"shards": 2} if form == "sharded" else {}
                directory = tmp_path_factory.mktemp(form)
                started[form] = stack.enter_context(running_process(directory, tokens_file=tokens_file[0], **shards))
            return started[form]

        yield process


@pytest.fixture
async def guarded(form, process_of, start_gateway, tokens_file):
    path, tokens = tokens_file
    async with AsyncExitStack() as stack:
        if form == "in-process":
            gateway = await start_gateway(tokens_file=path)
        else:
            gateway = await stack.enter_async_context(over_http2(process_of(form).port))
        guarded = Guarded(gateway, tokens)
        for topic in TOPICS:
            await guarded.send("boss", "DELETE", f"/v1/topics/{topic}")
            assert (await guarded.send("boss", "PUT", f"/v1/topics/{topic}", {"partitions": 2})).status == 201
            for partition in (0, 1):
                where = f"/v1/topics/{topic}/partitions/{partition}/records"
                assert (await guarded.send("boss", "POST", where, {"records": [{"value": 1}]})).status == 200
        yield guarded


# The operations on a topic: method, path below the topic, body, query, and the required right.
ABOUT_A_TOPIC = [
    ("GET", "/partitions/1/records", None, {"from": "earliest"}, "read"),
    ("GET", "/partitions/0/offsets", None, {}, "read"),
    ("POST", "/records", {"records": [{"value": 1}]}, {}, "write"),
    ("POST", "/partitions/1/records", {"records": [{"value": 1}]}, {}, "write"),
    ("GET", "/partitions/0/fence", None, {}, "write"),
    ("PUT", "/partitions/1/fence", {"token": None}, {}, "write"),
    ("GET", "", None, {}, "any"),
    ("GET", "/tier", None, {}, "any"),
    ("PUT", "", {"partitions": 2}, {}, "admin"),
    ("PATCH", "", {"config": {}}, {}, "admin"),
    ("POST", "/roll", None, {}, "admin"),
    ("DELETE", "/partitions/0/records", None, {"before": 0}, "admin"),
    ("DELETE", "", None, {}, "admin"),
]


async def test_each_right_allows_what_it_says_for_its_prefix_and_nothing_else(guarded):
    rights = {"reader": "read", "writer": "write", "admin": "admin", "scraper": "none"}
    for method, below, document, query, right in ABOUT_A_TOPIC:
        for token_name, has in rights.items():
            for topic in ("a.one", "b.one", "a-one", "b.no-such-topic"):
                answer = await guarded.send(token_name, method, f"/v1/topics/{topic}{below}", document, **query)
                case = (token_name, method, topic, below, answer.body)
                if topic == "a.one" and has != "none" and right in (has, "any"):
                    assert answer.status in (200, 201, 204), case
                else:
                    missing = "read" if right == "any" else right
                    problem = assert_problem(answer, "forbidden", right=missing, topic=topic)
                    assert token_name in problem["detail"], case


async def test_producer_ids_take_the_right_to_write_to_any_topic(guarded):
    for token_name in ("boss", "writer", "mixed"):
        assert (await guarded.send(token_name, "POST", "/v1/producers")).status == 201, token_name
    for token_name in ("reader", "admin", "scraper"):
        assert_problem(await guarded.send(token_name, "POST", "/v1/producers"), "forbidden", right="write")


async def test_without_a_token_that_is_known_there_is_nothing_but_health_and_the_contract(guarded):
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert (await guarded.send(None, "GET", path)).status == 200, path
    good = guarded.tokens["boss"]
    given = {
        None: "Bearer",
        "Bearer": "Bearer",
        "Basic " + good: "Bearer",
        good: "Bearer",
        "Bearer x": 'Bearer error="invalid_token"',
        "Bearer " + good[:-1]: 'Bearer error="invalid_token"',
        "Bearer " + good + "x": 'Bearer error="invalid_token"',
        "Bearer " + guarded.tokens["reader"][:17] + good[17:]: 'Bearer error="invalid_token"',
    }
    for method, path in (
        ("GET", "/v1/topics"), ("GET", "/v1/cluster"), ("GET", "/metrics"), ("POST", "/v1/fetch"),
        ("POST", "/v1/records"), ("POST", "/v1/topics/a.one/records"), ("DELETE", "/v1/topics/a.one"),
        ("GET", "/v1/topics/nobody/partitions/0/records"), ("GET", "/no-such-path"), ("PATCH", "/v1/topics"),
    ):  # fmt: skip
        for authorization, challenge in given.items():
            headers = {} if authorization is None else {"Authorization": authorization}
            answer = await guarded.gateway.send(method, path, b"", headers)
            assert answer.status == 401, (method, path, authorization, answer.body)
            assert answer.headers["WWW-Authenticate"] == challenge
            assert good.encode() not in answer.body
    for scheme in ("bearer ", "BEARER ", "Bearer  "):
        assert (await guarded.gateway.send("GET", "/v1/topics", b"", {"Authorization": scheme + good})).status == 200
    for path in ("/v1/cluster", "/metrics"):
        assert (await guarded.send("scraper", "GET", path)).status == 200
    assert (await guarded.send("mixed", "GET", "/v1/cluster")).status == 200
    for token_name in ("boss", "mixed"):  # metrics cover all topics: a right to single topics does not include them
        assert_problem(await guarded.send(token_name, "GET", "/metrics"), "forbidden", right="metrics")


async def test_a_query_or_another_header_is_no_token(guarded):
    good = guarded.tokens["boss"]
    assert (await guarded.gateway.send("GET", "/v1/topics", access_token=good)).status == 401
    answer = await guarded.gateway.send(
        "GET", "/v1/topics", b"", {"Penstock-Client-Id": "boss", "X-Authorization": f"Bearer {good}"}
    )
    assert answer.status == 401


async def test_the_list_has_the_topics_that_may_be_read(guarded):
    for token_name, topics in {
        "boss": TOPICS,
        "reader": TOPICS[:2],
        "mixed": ("a.one", "b.one"),
        "writer": (),
        "admin": (),
    }.items():
        found = (await guarded.send(token_name, "GET", "/v1/topics")).json["topics"]
        assert tuple(topic["topic"] for topic in found) == topics, token_name


async def test_a_list_that_rights_limit_says_so(guarded):
    """Before the fix the list of a token without rights was that of an empty node."""
    limits = {"boss": None, "reader": ["a."], "mixed": ["a.one", "b."], "writer": [], "admin": []}
    for token_name, prefixes in limits.items():
        expected = None if prefixes is None else {"right": "read", "prefixes": prefixes}
        for path in ("/v1/topics", "/v1/subscriptions"):
            assert (await guarded.send(token_name, "GET", path)).json.get("limited_to") == expected, token_name
        groups = (await guarded.send(token_name, "GET", "/v1/groups")).json
        assert groups == {"groups": [], "limited_to": {"right": "group", "prefixes": []}}


async def test_a_401_says_what_the_token_should_have_been(guarded):
    good = guarded.tokens["boss"]
    for given, text in (
        (None, "--token or PENSTOCK_TOKEN"), (good, "--token or PENSTOCK_TOKEN"),
        ("Bearer secret", "begins with penstock_"),
        (f"Bearer {good[:-1]}", "cut off"), (f"Bearer {good[:-1]}{'a' if good[-1] != 'a' else 'b'}", "revoked"),
    ):  # fmt: skip
        answer = await guarded.gateway.send("GET", "/v1/topics", b"", {} if given is None else {"Authorization": given})
        assert text in answer.json["detail"]


async def test_fetch_many_checks_each_topic(guarded):
    def wish(*names: str) -> dict[str, Any]:
        return {"partitions": [{"topic": name, "partition": n, "offset": 0} for name in names for n in (0, 1)]}

    assert (await guarded.send("reader", "POST", "/v1/fetch", wish("a.one", "a.two"))).status == 200
    answer = await guarded.send("reader", "POST", "/v1/fetch", {**wish("a.one", "b.one", "b.none"), "wait_ms": 60_000})
    assert answer.status == 207
    problems = [part.get("problem", {}) for part in answer.json["partitions"]]
    assert [(one.get("code"), one.get("right"), one.get("topic")) for one in problems] == [
        *[(None, None, None)] * 2, *[("forbidden", "read", "b.one")] * 2, *[("forbidden", "read", "b.none")] * 2,
    ]  # fmt: skip
    assert [len(part["records"]) for part in answer.json["partitions"][:2]] == [1, 1]
    for token_name in ("writer", "admin", "scraper"):
        assert_problem(await guarded.send(token_name, "POST", "/v1/fetch", wish("a.one")), "forbidden", right="read")


async def test_produce_many_checks_each_topic(guarded):
    records = {"records": [{"topic": topic, "value": 2, "partition": 1} for topic in (*TOPICS, "c.none")]}
    answer = await guarded.send("mixed", "POST", "/v1/records", records)
    assert answer.status == 207
    results = {one["topic"]: one.get("problem", {}) for one in answer.json["results"]}
    assert {topic: (one.get("code"), one.get("right")) for topic, one in results.items()} == {
        "a.one": ("forbidden", "write"), "a.two": (None, None), "b.one": (None, None), "c.none": ("forbidden", "write"),
    }  # fmt: skip
    for topic, ends in {"a.one": 1, "a.two": 2, "b.one": 2}.items():
        path = f"/v1/topics/{topic}/partitions/1/offsets"
        assert (await guarded.send("boss", "GET", path)).json["log_end"] == ends
    assert_problem(await guarded.send("reader", "POST", "/v1/records", records), "forbidden", right="write")


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
        gateway.node.access.tokens = Tokens(())
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
    found = (await node.send("boss", "GET", "/v1/topics")).json["topics"]
    assert [topic["topic"] for topic in found] == ["a.more", "a.new"]
