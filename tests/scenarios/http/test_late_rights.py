"""A right that ends between the head of a request and what the request changes: nothing is changed."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import JSON, over_http2
from tests.scenarios.groups.group_client import GroupClient
from tests.scenarios.raw_http1 import request_head
from tests.tokens import add_token, bearer

OPERATIONS = {
    "topic": ["read", "write", "create", "alter"],
    "group": ["read", "alter"],
    "cluster": ["access"],
}
RECORDS = {"records": [{"value": 1}]}
RULE = {"principals": ["*"], "operations": ["read"], "resource": "topic", "pattern": "all", "id": "late"}


class Node:
    """A node of two shards, the token of its superuser, and a token `shop` that may do everything."""

    def __init__(self, port: int, gateway, boss: str) -> None:
        self.port = port
        self.gateway = gateway
        self.boss = boss
        self.shop = ""

    async def send(self, method: str, path: str, document: object = None, token: str = "", **query: object):
        body = b"" if document is None else orjson.dumps(document)
        headers = bearer(token or self.boss) | ({} if document is None else {"Content-Type": JSON})
        return await self.gateway.send(method, path, body, headers, **query)

    async def renew(self) -> None:
        for kind in ("rules", "tokens"):
            for one in (await self.send("GET", f"/v1/access/{kind}")).json[kind]:
                await self.send("DELETE", f"/v1/access/{kind}/{one['id']}")
        self.shop = (await self.send("POST", "/v1/access/tokens", {"name": "shop"})).json["token"]
        for resource, operations in OPERATIONS.items():
            rule = {"id": resource, "principals": ["token:shop"], "operations": operations, "resource": resource}
            assert (await self.send("POST", "/v1/access/rules", rule | {"pattern": "all"})).status == 201

    async def deny(self, resource: str, **fields: object) -> None:
        rule = {"id": "no", "principals": ["token:shop"], "operations": OPERATIONS[resource], "resource": resource}
        rule |= {"effect": "deny", "pattern": "all"} | fields
        assert (await self.send("POST", "/v1/access/rules", rule)).status == 201

    async def revoke(self) -> None:
        assert (await self.send("DELETE", "/v1/access/tokens/shop")).status == 200


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    directory = tmp_path_factory.mktemp("late")
    boss = add_token(directory / "tokens.toml", "boss", read=[""], write=[""], admin=[""], group=[""])
    settings = {"tokens_file": directory / "tokens.toml", "superusers": "token:boss", "shards": 2}
    with running_process(directory, **settings) as process:
        yield process.port, boss


@pytest.fixture
async def node(process):
    port, boss = process
    async with over_http2(port) as gateway:
        node = Node(port, gateway, boss)
        await node.renew()
        for topic in ("late.one", "late.two", "late.new"):
            await node.send("DELETE", f"/v1/topics/{topic}")
        for topic in ("late.one", "late.two"):
            assert (await node.send("PUT", f"/v1/topics/{topic}", {"partitions": 1})).status == 201
        yield node


async def sent_late(node: Node, method: str, path: str, document: object, lose) -> tuple[int, dict]:
    """Send the head, take the right away, send the body; return status and document of the answer."""
    body = orjson.dumps(document)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    length = f"Content-Length: {len(body)}"
    token = f"Authorization: Bearer {node.shop}"
    writer.write(request_head(method, path, length, f"Content-Type: {JSON}", token) + body[:1])
    await asyncio.sleep(0.2)  # its handler waits for the body
    await lose()
    writer.write(body[1:])
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), orjson.loads(content)


LATE = {
    "produce": ("POST", "/v1/topics/late.one/records", RECORDS, "topic"),
    "produce to many": ("POST", "/v1/records", {"records": [{"topic": "late.one", "value": 1}]}, "topic"),
    "create": ("PUT", "/v1/topics/late.new", {"partitions": 1}, "topic"),
    "alter": ("PATCH", "/v1/topics/late.one", {"config": {"retention_ms": 3_600_000}}, "topic"),
    "commit": ("PUT", "/v1/groups/late/offsets", {"offsets": [{"topic": "late.one", "partition": 0, "offset": 0}]},
               "topic"),
    "settings of a group": ("PUT", "/v1/groups/late", {"start": "latest"}, "group"),
    "rule": ("POST", "/v1/access/rules", RULE, "cluster"),
    "token": ("POST", "/v1/access/tokens", {"name": "late"}, "cluster"),
}  # fmt: skip


@pytest.mark.parametrize("what", LATE)
@pytest.mark.parametrize("how", ["revoked", "denied"])
async def test_a_body_that_comes_after_the_end_of_its_right_changes_nothing(node, what, how):
    method, path, document, resource = LATE[what]

    async def lose() -> None:
        await (node.revoke() if how == "revoked" else node.deny(resource))

    status, answer = await sent_late(node, method, path, document, lose)
    if what == "produce to many" and how == "denied":
        status, answer = answer["results"][0]["status"], answer["results"][0]["problem"]
    assert (status, answer["code"]) == ((401, "unauthorized") if how == "revoked" else (403, "forbidden")), answer
    assert (await node.send("GET", "/v1/topics/late.one/partitions/0/offsets")).json["log_end"] == 0
    assert (await node.send("GET", "/v1/topics/late.new")).status == 404
    assert [one["id"] for one in (await node.send("GET", "/v1/access/rules")).json["rules"]].count("late") == 0
    assert [one["name"] for one in (await node.send("GET", "/v1/access/tokens")).json["tokens"]].count("late") == 0


async def test_a_body_that_comes_late_with_its_right_is_stored(node):
    async def lose() -> None:
        await node.send("POST", "/v1/access/rules", RULE)

    status, _ = await sent_late(node, "POST", "/v1/topics/late.one/records", RECORDS, lose)
    assert status == 200


@pytest.mark.parametrize("how", ["poll", "events"])
@pytest.mark.parametrize("group", ["late-a", "late-b", "late-c", "late-d"])  # their coordinators are on both shards
async def test_a_token_of_a_topic_without_a_right_commits_nothing(node, group, how):
    """Also while the member keeps the right to its group."""
    for topic in ("late.one", "late.two"):
        await node.send("POST", f"/v1/topics/{topic}/records", RECORDS)
    await node.send("DELETE", f"/v1/groups/{group}")
    client = GroupClient(node.gateway, group, bearer(node.shop))
    first = await client.polled("m", topics=["late.one", "late.two"], wait_ms=5000)
    observer = GroupClient(node.gateway, group, bearer(node.boss))
    before = await observer.offsets()
    assert set(before.values()) == {0}
    await node.deny("topic", pattern="literal", name="late.one")
    if how == "poll":
        refused = await client.poll("m", token=first["token"], topics=["late.two"])
        assert_problem(refused, "forbidden", topic="late.one")
    else:
        headers = bearer(node.shop) | {"Last-Event-ID": first["token"]}
        path = f"/v1/groups/{group}/members/m/events?topics=late.two"
        async with event_source(node.port, path, headers) as stream:
            assert (await stream.problem())["topic"] == "late.one"
    assert await observer.offsets() == before
    again = await client.polled("m", topics=["late.two"], wait_ms=5000)
    assert [part["topic"] for part in again["partitions"]] == ["late.two"]


@pytest.mark.parametrize("is_named", [True, False])
async def test_records_of_a_lock_of_a_topic_without_a_right_get_no_outcome(node, is_named):
    """Neither those that the body names, nor all that the lock has."""
    group = f"late-share-{is_named}"
    for topic in ("late.one", "late.two"):
        await node.send("POST", f"/v1/topics/{topic}/records", RECORDS)
    acquired = await node.send(
        "POST", f"/v1/groups/{group}/acquire", {"topics": ["late.one", "late.two"], "wait_ms": 5000}, node.shop
    )
    assert {one["topic"] for one in acquired.json["records"]} == {"late.one", "late.two"}, acquired.json
    await node.deny("topic", pattern="literal", name="late.one")
    path, body = f"/v1/groups/{group}/acknowledge", {"lock": acquired.json["lock"]}
    given = body | {"records": [{"topic": "late.one", "partition": 0, "offset": 0}]} if is_named else body
    assert_problem(await node.send("POST", path, given, node.shop), "forbidden", topic="late.one")
    shown = (await node.send("GET", f"/v1/groups/{group}")).json["partitions"]
    assert [one["in_flight"] for one in shown] == [1, 1]
    own = body | {"records": [{"topic": "late.two", "partition": 0, "offset": 0}]}
    assert (await node.send("POST", path, own, node.shop)).json["acknowledged"] == 1
    assert (await node.send("POST", path, body)).json["acknowledged"] == 2
