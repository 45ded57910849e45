"""Tokens, rights and tenants: those of HTTP."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import orjson
from msgspec import structs
from msgspec.structs import replace

from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import AccessState, StoredToken, Tenant, TenantLimits
from gateway.access.tokens import digest_of, make_text
from gateway.access.tokens_file import parse_tokens
from gateway.http.rights import OPERATIONS, Resource
from node.node import Node
from tests.gateway.rest_proxy.served import proxy_node
from tests.tokens import add_token


async def test_a_token_comes_as_bearer_or_as_the_password_of_basic(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    token = add_token(file, "shop", read=["t"], write=["t"], group=["g"])
    async with proxy_node(tmp_path, parse_tokens(file.read_text())) as (node, client):
        await node.topics.create("t", 1, 1, {})
        await node.topics.create("hidden", 1, 1, {})
        answer = await client.produce("t", {"value": 1})
        assert (answer.status, answer.body["error_code"]) == (401, 40101)
        wrong = client.acting_as("Basic " + base64.b64encode(b"any:wrong").decode())
        assert (await wrong.produce("t", {"value": 1})).status == 401
        for text in (f"Bearer {token}", "Basic " + base64.b64encode(f"any:{token}".encode()).decode()):
            shop = client.acting_as(text)
            for _ in range(3):  # also by a head that is kept
                assert (await shop.produce("t", {"value": 1})).status == 200
            answer = await shop.produce("hidden", {"value": 1})
            assert (answer.status, answer.body["error_code"]) == (403, 40301)
            assert (await shop.get("/topics")).body == ["t"]
            assert (await shop.get("/topics/hidden")).status == 403
            assert (await shop.post("/consumers/other", {"name": "i"})).body["error_code"] == 40301
        read = await shop.instance("g", "i", format="json", **{"auto.offset.reset": "earliest"})
        assert (await shop.post(read + "/subscription", {"topics": ["hidden"]})).body["error_code"] == 40301
        assert (await shop.post(read + "/subscription", {"topics": ["t"]})).status == 204
        assert await shop.values(read) == [1] * 6


def _give_acme_a_token(node: Node, resources: Sequence[Resource] = (Resource.TOPIC, Resource.GROUP)) -> str:
    """Makes the tenant acme with a token that may do everything with these in it. Returns the token."""
    token_id, text = make_text(os.urandom)
    stored = StoredToken(id=token_id, name="shop", sha256=digest_of(text).hex(), created_ms=0, tenant="acme")
    rules = tuple(
        Rule(id=resource.value, effect=Effect.ALLOW, principals=("token:shop",), operations=tuple(sorted(operations)),
             resource=resource, pattern=Pattern.ALL, tenant="acme")
        for resource, operations in OPERATIONS.items()
        if resource in resources
    )  # fmt: skip
    outside = replace(rules[0], id="outside", principals=("token:ops",), tenant=None)
    tenant = Tenant(id="acme", created_ms=0)
    node.access.use_state(AccessState(tenants=(tenant,), tokens=(stored,), rules=(*rules, outside)))
    return text


async def test_a_stream_ends_at_the_ceiling_of_its_tenant(tmp_path: Path) -> None:
    """A stream has no end, so that a look at its beginning would let it store anything."""
    file = tmp_path / "tokens.toml"
    add_token(file, "ops")
    async with proxy_node(tmp_path, parse_tokens(file.read_text())) as (node, client):
        await node.topics.create("acme.t", 1, 1, {})
        acme = client.acting_as(f"Bearer {_give_acme_a_token(node)}")

        async def pieces() -> AsyncIterator[bytes]:
            yield b"{}"
            while not (await node.server.produce.holdings.collect("acme")).stored_bytes:
                await asyncio.sleep(0.01)
            state = node.access.snapshot.state
            tenant = structs.replace(state.tenants[0], limits=TenantLimits(stored_bytes=1))
            node.access.use_state(structs.replace(state, tenants=(tenant,)))
            yield b"{}"

        path = f"/v3/clusters/{node.server.admin.cluster_id}/topics/t/records"
        answer = await acme.post(path, pieces(), "application/json")
        receipts = [orjson.loads(line) for line in answer.text.splitlines()]
        assert [one["error_code"] for one in receipts] == [200, 40301]


async def test_a_tenant_says_its_own_names(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, "ops")
    async with proxy_node(tmp_path, parse_tokens(file.read_text())) as (node, client):
        await node.topics.create("acme.t", 1, 1, {})
        await node.topics.create("t", 1, 1, {})
        text = _give_acme_a_token(node)
        acme = client.acting_as(f"Bearer {text}")
        assert (await acme.get("/topics")).body == ["t"]
        value = {"note": "acme.t stays as it is"}
        assert (await acme.produce("t", {"value": value})).status == 200
        read = await acme.instance("g", "i", format="json", **{"auto.offset.reset": "earliest"})
        assert (await acme.post(read + "/subscription", {"topics": ["t"]})).status == 204
        assert (await acme.get(read + "/subscription")).body == {"topics": ["t"]}
        for accept in ("application/vnd.kafka.json.v2+json", "application/json"):
            place = {"topic": "t", "partition": 0}
            await acme.post(read + "/positions/beginning", {"partitions": [place]})
            [record] = (await acme.get(read + "/records", accept=accept)).body
            assert record == {"topic": "t", "key": None, "value": value, "partition": 0, "offset": 0}
        await acme.post(read + "/offsets")
        assert (await acme.get(read + "/offsets")).body["offsets"][0]["topic"] == "t"
        cluster = f"/v3/clusters/{node.server.admin.cluster_id}"
        answer = await acme.post(
            cluster + "/topics/t/records", {"value": {"type": "STRING", "data": "acme.x"}}, "application/json"
        )
        assert (answer.status, answer.body["topic_name"]) == (200, "t")
        entries = {"entries": [{"id": "acme.1", "partition_id": 9}]}
        [failure] = (await acme.post(cluster + "/topics/t/records:batch", entries, "application/json")).body["failures"]
        assert failure["id"] == "acme.1", "the client finds its entry by it"
        made = (await acme.post("/consumers/g", {"name": "acme.i"})).body
        assert made["instance_id"] == "acme.i"
        assert made["base_uri"].endswith("/consumers/g/instances/acme.i")
        (counted,) = (await node.usage.counted_here("acme", 0, 10**9)).counted
        used = counted.usage
        assert (used.produce_requests, used.records, used.read_requests) == (3, 2, 2)
        assert used.produce_bytes_in > 0 < used.read_bytes_out
        [topic] = (await acme.get(cluster + "/topics")).body["data"]
        assert (topic["topic_name"], topic["metadata"]["self"].rpartition("/")[2]) == ("t", "t")
        groups = (await acme.get(cluster + "/consumer-groups")).body["data"]
        assert [one["consumer_group_id"] for one in groups] == ["g"]
        missing = await acme.get("/topics/no")
        assert "acme" not in missing.body["message"]
        assert (await client.get("/topics/t/partitions/0/offsets")).status == 401


async def test_an_administrator_of_a_tenant_lists_its_rules_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, "ops")
    async with proxy_node(tmp_path, parse_tokens(file.read_text())) as (node, client):
        acls = f"/v3/clusters/{node.server.admin.cluster_id}/acls"
        assert (await client.acting_as(f"Bearer {_give_acme_a_token(node)}").get(acls)).status == 403
        boss = client.acting_as(f"Bearer {_give_acme_a_token(node, [Resource.TENANT])}")
        rows = (await boss.get(acls)).body["data"]
        assert {(row["principal"], row["resource_type"]) for row in rows} == {("User:token:shop", "TENANT")}
