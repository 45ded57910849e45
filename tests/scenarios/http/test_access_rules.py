"""Rules and tokens of the coordination store over HTTP, on a node of two shards, which answer the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import JSON, Answer, over_http2
from tests.tokens import add_token, bearer

RECORDS = {"records": [{"value": 1}]}


class Client:
    """One connection; each goes to one of the shards."""

    def __init__(self, gateway, boss: str) -> None:
        self._gateway = gateway
        self.boss = boss

    async def send(self, token: str | None, method: str, path: str, document: object = None, **query: object) -> Answer:
        headers = {} if token is None else bearer(token)
        body = b"" if document is None else orjson.dumps(document)
        if document is not None:
            headers["Content-Type"] = JSON
        return await self._gateway.send(method, path, body, headers, **query)

    async def add(self, rule_id: str, principal: str, *operations: str, **fields: object) -> Answer:
        rule = {"id": rule_id, "principals": [principal], "operations": operations, "resource": "topic"}
        return await self.send(self.boss, "POST", "/v1/access/rules", rule | fields)

    async def new_token(self, name: str, **fields: object) -> str:
        answer = await self.send(self.boss, "POST", "/v1/access/tokens", {"name": name, **fields})
        assert answer.status == 201, answer.json
        return answer.json["token"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, str, str]:
    directory = tmp_path_factory.mktemp("rules")
    path = directory / "tokens.toml"
    return directory, add_token(path, "boss", admin=[""]), add_token(path, "reader", read=["a."])


@pytest.fixture(scope="module")
def process(files) -> Iterator[int]:
    directory, _, _ = files
    settings = {"tokens_file": directory / "tokens.toml", "superusers": "token:boss", "shards": 2}
    with running_process(directory, **settings) as process:
        yield process.port


@pytest.fixture
async def client(process, files):
    async with over_http2(process) as gateway:
        client = Client(gateway, files[1])
        for topic in ("a.one", "b.one", "e.one", "f.one"):  # the last two stay empty
            await client.send(client.boss, "PUT", f"/v1/topics/{topic}", {"partitions": 1})
        for kind, key in (("rules", "id"), ("tokens", "id")):
            listed = (await client.send(client.boss, "GET", f"/v1/access/{kind}")).json[kind]
            for one in listed:
                await client.send(client.boss, "DELETE", f"/v1/access/{kind}/{one[key]}")
        yield client


async def everywhere(port: int, token: str, path: str, status: int, **query: object) -> None:
    """Ask over several connections, which both shards accept, until all answer so; two seconds are allowed."""
    deadline = time.monotonic() + 2
    while True:
        found = []
        for _ in range(6):
            async with over_http2(port) as gateway:
                found.append((await gateway.send("GET", path, b"", bearer(token), **query)).status)
        if set(found) == {status}:
            return
        assert time.monotonic() < deadline, found


async def test_a_token_of_the_store_has_the_rights_of_its_rules(client, process):
    shop = await client.new_token("shop")
    refused = await client.send(shop, "POST", "/v1/topics/a.one/records", RECORDS)
    assert_problem(refused, "forbidden", operation="write", resource="topic", topic="a.one")
    assert (await client.add("w", "token:shop", "write", pattern="prefix", name="a.")).status == 201
    await everywhere(process, shop, "/v1/topics/a.one", 200)  # write implies describe
    assert (await client.send(shop, "POST", "/v1/topics/a.one/records", RECORDS)).status == 200
    assert_problem(await client.send(shop, "POST", "/v1/topics/b.one/records", RECORDS), "forbidden")
    await client.add("no", "token:shop", "write", effect="deny", name="a.one")
    refused = await client.send(shop, "POST", "/v1/topics/a.one/records", RECORDS)
    assert_problem(refused, "forbidden", operation="write", rule="no")
    await client.send(client.boss, "DELETE", "/v1/access/tokens/shop")
    await everywhere(process, shop, "/v1/topics/a.one", 401)


async def test_a_rule_of_the_store_binds_tokens_of_the_file(client, files, process):
    path = "/v1/topics/a.one/partitions/0/records"
    await everywhere(process, files[2], path, 200, offset=0)
    await client.add("no", "token:reader", "read", effect="deny", pattern="all")
    await everywhere(process, files[2], path, 403, offset=0)
    await client.send(client.boss, "DELETE", "/v1/access/rules/no")
    await everywhere(process, files[2], path, 200, offset=0)


async def test_only_the_holder_of_a_token_learns_that_it_has_expired(client):
    short = await client.new_token("short", life_ms=300)
    assert (await client.send(short, "GET", "/v1/topics")).status == 200
    time.sleep(0.31)
    answer = await client.send(short, "GET", "/v1/topics")
    assert_problem(answer, "unauthorized")
    assert "expired" in answer.json["detail"]
    wrong = await client.send(short[:-1] + ("A" if short[-1] != "A" else "B"), "GET", "/v1/topics")
    assert "expired" not in wrong.json["detail"], "a client without the secret learns nothing"


async def test_a_rotated_token_is_the_same_principal(client):
    first = await client.new_token("shop")
    await client.add("r", "token:shop", "read", pattern="all")
    second = (await client.send(client.boss, "POST", "/v1/access/tokens/shop/rotate", {"keep_ms": 500})).json["token"]
    for token in (first, second):
        assert (await client.send(token, "GET", "/v1/topics/a.one/partitions/0/records", offset=0)).status == 200
    time.sleep(0.51)
    assert (await client.send(first, "GET", "/v1/topics")).status == 401
    assert (await client.send(second, "GET", "/v1/topics/a.one/partitions/0/records", offset=0)).status == 200


async def test_an_administrator_of_rules_is_not_locked_out_without_force(client):
    admin = await client.new_token("admin")
    await client.add("admins", "token:admin", "access", resource="cluster")
    assert (await client.send(admin, "GET", "/v1/access/rules")).status == 200
    assert_problem(await client.send(admin, "DELETE", "/v1/access/rules/admins"), "access_locks_out")
    assert_problem(await client.send(admin, "DELETE", "/v1/access/tokens/admin"), "access_locks_out")
    deny = {"principals": ["*"], "operations": ["access"], "resource": "cluster", "effect": "deny"}
    assert_problem(await client.send(admin, "POST", "/v1/access/rules", deny), "access_locks_out")
    assert (await client.send(admin, "DELETE", "/v1/access/rules/admins", force="true")).status == 200
    assert_problem(await client.send(admin, "GET", "/v1/access/rules"), "forbidden", operation="access")
    boss = {"name": "boss"}  # its holder would have the name of a superuser
    assert_problem(await client.send(client.boss, "POST", "/v1/access/tokens", boss), "access_exists")


async def test_a_client_without_a_token_has_the_rights_of_anonymous(client):
    ours, other = (f"/v1/topics/{topic}/partitions/0/records" for topic in ("a.one", "b.one"))
    assert (await client.send(None, "GET", ours, offset=0)).status == 401
    await client.add("open", "anonymous", "read", name="a.one")
    assert (await client.send(None, "GET", ours, offset=0)).status == 200
    assert (await client.send(None, "GET", other, offset=0)).status == 401  # a token might help
    await client.add("all", "*", "read", name="b.one")
    assert (await client.send(None, "GET", other, offset=0)).status == 401


async def test_a_rule_may_ask_for_the_network_of_the_caller(client):
    shop = await client.new_token("shop")
    path = "/v1/topics/a.one/partitions/0/records"
    await client.add("far", "token:shop", "read", pattern="all", sources=["10.0.0.0/8"])
    assert (await client.send(shop, "GET", path, offset=0)).status == 403
    await client.add("near", "token:shop", "read", pattern="all", sources=["127.0.0.0/8"])
    assert (await client.send(shop, "GET", path, offset=0)).status == 200
    asked = {
        "principal": "token:shop",
        "operation": "read",
        "resource": "topic",
        "name": "a.one",
        "address": "10.1.1.1",
    }
    decided = (await client.send(client.boss, "POST", "/v1/access/check", asked)).json
    assert (decided["allowed"], decided["rule"]) == (True, "far")


async def test_check_names_the_rule_that_decides(client):
    await client.new_token("shop")
    await client.add("yes", "token:shop", "read", pattern="prefix", name="a.")
    await client.add("no", "*", "read", effect="deny", name="a.one")

    async def decided(principal: str, name: str) -> tuple[bool, str | None]:
        asked = {"principal": principal, "operation": "read", "resource": "topic", "name": name}
        found = (await client.send(client.boss, "POST", "/v1/access/check", asked)).json
        return found["allowed"], found["rule"]

    assert await decided("token:shop", "a.one") == (False, "no")
    assert await decided("token:shop", "a.two") == (True, "yes")
    assert await decided("token:shop", "b") == (False, None)
    assert await decided("token:boss", "a.one") == (True, "superuser")
    allowed, by = await decided("token:reader", "a.two")
    assert allowed
    assert by is not None
    assert by.startswith("file:")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"resource": None}, "invalid_body"),
        ({"principals": ["token:none"]}, "invalid_rule"),
        ({"principals": ["shop"]}, "invalid_rule"),
        ({"name": "*"}, "invalid_rule"),
        ({"name": ""}, "invalid_rule"),
        ({"operations": ["metrics"]}, "invalid_rule"),
        ({"operations": []}, "invalid_rule"),
        ({"operations": ["everything"]}, "invalid_body"),
        ({"id": "a:b"}, "invalid_rule"),
        ({"sources": ["0.0.0.0"]}, None),
        ({"sources": ["x"]}, "invalid_rule"),
        ({"tenant": "acme"}, "unknown_field"),
    ],
)
async def test_a_rule_that_cannot_be_meant_is_refused(client, change, code):
    rule = {"principals": ["*"], "operations": ["read"], "resource": "topic", "name": "a"} | change
    rule = {key: value for key, value in rule.items() if value is not None}
    answer = await client.send(client.boss, "POST", "/v1/access/rules", rule)
    if code is None:
        assert answer.status == 201
    else:
        assert_problem(answer, code)


async def test_no_answer_and_no_list_has_a_secret_or_its_hash(client):
    token = await client.new_token("shop")
    listed = await client.send(client.boss, "GET", "/v1/access/tokens")
    assert listed.json["tokens"][0]["name"] == "shop"
    assert token[18:].encode() not in listed.body
    assert b"sha256" not in listed.body


LOST = {
    "denied": ("forbidden", lambda client: client.add("no", "token:shop", "read", effect="deny", pattern="all")),
    "without its rule": ("forbidden", lambda client: client.send(client.boss, "DELETE", "/v1/access/rules/read")),
    "revoked": ("unauthorized", lambda client: client.send(client.boss, "DELETE", "/v1/access/tokens/shop")),
    "expired": ("unauthorized", lambda client: asyncio.sleep(0)),
}


async def reader(client: Client, how: str) -> str:
    shop = await client.new_token("shop", **({"life_ms": 1000} if how == "expired" else {}))
    await client.add("read", "token:shop", "read", pattern="all")
    await client.add("group", "token:shop", "read", resource="group", pattern="all")
    return shop


@pytest.mark.parametrize("how", LOST)
async def test_open_long_polls_end_when_their_right_ends(client, process, how):
    """Those without a task, and those with one, here or at the other shard."""
    code, lose = LOST[how]
    shop = await reader(client, how)
    wait = {"wait_ms": 20_000}
    own_path = f"/v1/groups/h-{how[:3]}/members/m/poll"
    first = await client.send(shop, "POST", own_path, {"topics": ["e.one"], "wait_ms": 0})
    polls = [
        ("GET", "/v1/topics/e.one/partitions/0/records", None, {"offset": 0, **wait}),
        ("GET", "/v1/topics/f.one/partitions/0/records", None, {"offset": 0, **wait}),
        (
            "POST",
            "/v1/fetch",
            {"partitions": [{"topic": "e.one", "partition": 0, "offset": 0}], **wait},
            {},
        ),
        ("POST", f"/v1/groups/g-{how[:3]}/members/m/poll", {"topics": ["e.one", "f.one"], **wait}, {}),
        ("POST", own_path, {"token": first.json["token"], **wait}, {}),
    ]
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(over_http2(process)) for _ in polls]
        waiting = [
            asyncio.create_task(Client(connection, "").send(shop, method, path, document, **query))
            for connection, (method, path, document, query) in zip(connections, polls, strict=True)
        ]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in waiting), [task.result() for task in waiting if task.done()]
        await lose(client)
        began = time.monotonic()
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 3)
        assert time.monotonic() - began < 2
        for answer in answers:
            assert_problem(answer, code)


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize(
    "path", ["/v1/topics/e.one/records", "/v1/topics/e.one/partitions/0/records", "/v1/groups/e/members/m/events"]
)
async def test_event_streams_end_with_the_problem_when_their_right_ends(client, process, how, path):
    code, lose = LOST[how]
    shop = await reader(client, how)
    where = f"{path}?topics=e.one" if "groups" in path else path
    async with event_source(process, where, bearer(shop)) as stream:
        assert stream.status == 200
        await lose(client)
        assert (await asyncio.wait_for(stream.problem(), 3))["code"] == code
