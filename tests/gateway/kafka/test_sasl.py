"""A node with tokens: the token is the password, and its rights are those of HTTP."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.access.names import WITHOUT_COUNTS
from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import AccessState, StoredToken, Tenant, TenantLimits
from gateway.access.tokens import digest_of, make_text
from gateway.access.tokens_file import parse_tokens
from gateway.audit.events import Kind
from gateway.audit.writer import AuditFailed
from gateway.groups.hosting.calls import CONFIGURE
from gateway.groups.model.values import ConfigCall
from gateway.http.rights import Operation, Resource
from gateway.kafka import sasl
from gateway.kafka.audit import audited
from gateway.kafka.codec.messages import Malformed
from gateway.kafka.errors import Error
from gateway.kafka.requests import Client, Head, KafkaRequest, make_api
from gateway.quotas.quota import Owner, Quota, Scope, id_of
from node.node import Node
from tests.gateway.kafka.served import Connection, batch, connected, fetch, kafka_node, produce, request
from tests.tokens import add_token


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


@pytest.fixture
def token(tokens_file: Path) -> str:
    return add_token(tokens_file, "shop", read=["t"], write=["t"])


@pytest.fixture
async def node(tmp_path: Path, tokens_file: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(sasl, "REFUSAL_PAUSE_S", 0)
    async with kafka_node(tmp_path, parse_tokens(tokens_file.read_text())) as (node, _):
        for name in ("t", "other"):
            await node.shard.create_topic(name, 1, 1, {})
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


def _id_of(node: Node, topic: str) -> bytes:
    return bytes.fromhex(node.shard.topic(topic).record.topic_id)


async def login(client: Connection, token: str, mechanism: str = "PLAIN") -> int:
    assert (await client.ask("SaslHandshake", 1, mechanism=mechanism)).error_code == 0
    given = f"\0any user\0{token}" if mechanism == "PLAIN" else f"n,,\x01auth=Bearer {token}\x01\x01"
    code: int = (await client.ask("SaslAuthenticate", 2, auth_bytes=given.encode())).error_code
    return code


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
async def test_a_token_opens_its_topics_and_no_others(client: Connection, token: str, mechanism: str) -> None:
    assert (await client.ask("ApiVersions", 0)).error_code == 0  # before
    assert await login(client, token, mechanism) == 0
    client.send("Produce", 9, produce("t", {0: batch(b"a")}))
    client.send("Produce", 9, produce("other", {0: batch(b"a")}))
    client.send("Fetch", 12, fetch("other", {0: 0}))
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
    denied = Error.TOPIC_AUTHORIZATION_FAILED
    assert (await client.receive()).responses[0].partition_responses[0].error_code == denied
    assert (await client.receive()).responses[0].partitions[0].error_code == denied
    found = await client.ask("Metadata", 9, topics=None)
    assert [topic.name for topic in found.topics] == ["t"]
    named = await client.ask("Metadata", 9, topics=[request("Metadata", "topics", name=n) for n in ("other", "absent")])
    assert [topic.error_code for topic in named.topics] == [denied, denied]
    group = await client.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
    assert group.coordinators[0].error_code == Error.GROUP_AUTHORIZATION_FAILED


async def test_without_sasl_nothing_but_versions_is_answered(client: Connection) -> None:
    await client.ask("ApiVersions", 0)
    client.send("Metadata", 9, request("Metadata", topics=None))
    assert await client.is_closed()


async def test_a_wrong_token_and_a_wrong_mechanism_are_refused_with_the_reason(client: Connection, node: Node) -> None:
    refused = await client.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
    assert (refused.error_code, refused.mechanisms) == (Error.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "OAUTHBEARER"])
    assert await login(client, "penstock_wrong") == Error.SASL_AUTHENTICATION_FAILED
    assert await login(client, "x" * 60) == Error.SASL_AUTHENTICATION_FAILED
    client.send("Metadata", 9, request("Metadata", topics=None))
    assert await client.is_closed()
    async with connected(node) as other:
        early = await other.ask("SaslAuthenticate", 2, auth_bytes=b"")
        assert early.error_code == Error.ILLEGAL_SASL_STATE


async def test_a_token_of_a_tenant_sees_what_is_of_its_tenant(client: Connection, node: Node) -> None:
    token_id, text = make_text(os.urandom)
    stored = StoredToken(id=token_id, name="shop", sha256=digest_of(text).hex(), created_ms=0, tenant="acme")
    rule = Rule(
        id="r", effect=Effect.ALLOW, principals=("token:shop",), operations=(Operation.READ, Operation.WRITE),
        resource=Resource.TOPIC, pattern=Pattern.ALL, tenant="acme",
    )  # fmt: skip
    await node.shard.create_topic("acme.orders", 1, 1, {})
    node.access.use_state(AccessState(tenants=(Tenant(id="acme", created_ms=0),), tokens=(stored,), rules=(rule,)))
    assert await login(client, text) == 0
    for _ in range(2):
        assert [topic.name for topic in (await client.ask("Metadata", 9, topics=None)).topics] == ["orders"]
    client.send("Produce", 9, produce("orders", {0: batch(b"a", b"b")}))
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
    client.send("Fetch", 12, fetch("orders", {0: 0}))
    assert (await client.receive()).responses[0].partitions[0].error_code == 0
    client.send("Produce", 9, produce("absent", {0: batch(b"a")}))
    assert (await client.receive()).responses[0].partition_responses[0].error_code != 0
    (counted,) = (await node.usage.counted_here("acme", 0, 10**9)).counted
    used = counted.usage
    assert (used.produce_requests, used.records, used.read_requests, used.failed_requests) == (1, 2, 1, 1)
    assert min(used.produce_bytes_in, used.produce_bytes_out, used.read_bytes_out) > 0
    full = Tenant(id="acme", created_ms=0, limits=TenantLimits(stored_bytes=0))
    node.access.use_state(AccessState(tenants=(full,), tokens=(stored,), rules=(rule,)))
    client.send("Produce", 9, produce("orders", {0: batch(b"a")}))
    assert (await client.receive()).responses[0].partition_responses[0].error_code == Error.POLICY_VIOLATION
    node.access.use_state(AccessState())  # the tenant is removed
    client.send("Metadata", 9, request("Metadata", topics=None))
    assert await client.is_closed()


async def test_a_share_fetch_whose_right_ends_while_it_waits_gets_no_records(
    client: Connection, token: str, node: Node
) -> None:
    token_id, text = make_text(os.urandom)
    stored = StoredToken(id=token_id, name="worker", sha256=digest_of(text).hex(), created_ms=0)
    rules = tuple(
        Rule(
            id=f"r-{resource}", effect=Effect.ALLOW, principals=("token:worker",), operations=(Operation.READ,),
            resource=resource, pattern=Pattern.ALL,
        )
        for resource in (Resource.TOPIC, Resource.GROUP)
    )  # fmt: skip
    node.access.use_state(AccessState(tokens=(stored,), rules=rules))
    config = ConfigCall("g", {"kind": "share"})
    await node.server.groups.coordinators.call(CONFIGURE, bool, "g", config, creates=True)
    assert await login(client, text) == 0
    partitions = [request("ShareFetch", "topics.partitions", partition_index=0, acknowledgement_batches=[])]
    topics = [request("ShareFetch", "topics", topic_id=_id_of(node, "t"), partitions=partitions)]
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
    }
    share = request("ShareFetch", share_session_epoch=0, topics=topics, max_wait_ms=20_000, **fields)
    client.send("ShareFetch", 2, share)
    polls = node.server.fetch.long_polls
    while not polls.open:
        await asyncio.sleep(0.01)
    node.access.use_state(AccessState(generation=1, tokens=(stored,), rules=rules[1:]))
    async with connected(node) as other:
        assert await login(other, token) == 0
        other.send("Produce", 9, produce("t", {0: batch(b"secret")}))
        assert (await other.receive()).responses[0].partition_responses[0].error_code == 0
    (row,) = (await asyncio.wait_for(client.receive(), 10)).responses[0].partitions
    assert (row.error_code, row.records or b"") == (Error.UNKNOWN_TOPIC_ID, b"")
    asked = request("OffsetFetch", "groups.topics", topic_id=_id_of(node, "t"), partition_indexes=[0])
    of_group = request("OffsetFetch", "groups", group_id="g", topics=[asked], member_id=None, member_epoch=-1)
    answer = await client.ask("OffsetFetch", 10, groups=[of_group])
    assert answer.groups[0].topics[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID


async def test_an_old_client_sends_its_token_without_a_head(client: Connection, token: str, node: Node) -> None:
    assert (await client.ask("SaslHandshake", 0, mechanism="PLAIN")).error_code == 0
    client.send_frame(f"\0user\0{token}".encode())
    assert await client.frame() == b""
    assert len((await client.ask("Metadata", 1, topics=None)).topics) == 1
    async with connected(node) as other:
        await other.ask("SaslHandshake", 0, mechanism="PLAIN")
        other.send_frame(b"\0user\0wrong")
        assert await other.is_closed()


async def test_a_revoked_token_ends_its_connections(client: Connection, token: str, node: Node, tmp_path: Path) -> None:
    assert await login(client, token) == 0
    others = tmp_path / "others.toml"
    add_token(others, "another", read=["t"])
    node.access.use_tokens(parse_tokens(others.read_text()))
    client.send("Metadata", 9, request("Metadata", topics=None))
    assert await client.is_closed()


async def test_wrong_tokens_from_an_address_end_no_known_client_of_it_when_the_rules_change(
    tmp_path: Path, tokens_file: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl, "REFUSAL_PAUSE_S", 0)
    tokens = parse_tokens(tokens_file.read_text())
    settings = {"bad_attempts_per_second": 1, "bad_attempts_burst": 2}
    async with (
        kafka_node(tmp_path, tokens, **settings) as (node, _),
        connected(node) as client,
        connected(node) as other,
    ):
        assert await login(client, token) == 0
        for _ in range(3):
            assert await login(other, "penstock_wrong") == Error.SASL_AUTHENTICATION_FAILED
        assert await login(other, token) == Error.SASL_AUTHENTICATION_FAILED, "its address waits"
        node.access.use_state(AccessState(generation=1))
        assert (await client.ask("Metadata", 1, topics=None)).topics == []


async def test_a_frame_of_an_unknown_client_is_small(client: Connection) -> None:
    client.send_bytes(struct.pack(">i", 64 * 1024 + 1))
    assert await client.is_closed()


async def test_changes_are_in_the_audit_trail_and_are_not_made_without_it(
    tmp_path: Path, tokens_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = add_token(tokens_file, "ops", admin=[""], read=[""])
    tokens = parse_tokens(tokens_file.read_text())
    one = request("CreateTopics", "topics", name="made", num_partitions=1, replication_factor=1)
    async with kafka_node(tmp_path, tokens, audit="on") as (node, _), connected(node) as client:
        assert await login(client, admin) == 0
        assert (await client.ask("CreateTopics", 7, topics=[one], timeout_ms=1)).topics[0].error_code == 0
        changes = [line for line in _audit_lines(tmp_path) if "change" in line["type"]]
        assert [line["type"].rpartition(".")[2] for line in changes] == ["intended", "ended"]
        assert [line["subject"] for line in changes] == ["topic/made"] * 2
        assert (changes[0]["data"]["principal"], changes[0]["data"]["operation"]) == ("token:ops", "kafka_CreateTopics")
        found = await client.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
        assert found.coordinators[0].error_code == Error.GROUP_AUTHORIZATION_FAILED
        assert node.audit is not None
        assert node.audit.events[Kind.DENIED] == 1
        assert (changes[0]["data"]["after"]["partitions"], changes[1]["data"]["outcome"]) == (1, "done")

        async def fail(_: bytes) -> None:
            raise AuditFailed("the disk is full")

        monkeypatch.setattr(node.audit, "write", fail)
        rows = (await client.ask("DeleteTopics", 1, topic_names=["made"])).responses
        assert [row.error_code for row in rows] == [Error.KAFKA_STORAGE_ERROR]
        assert "made" in node.shard.topics


async def test_a_change_whose_client_has_left_has_an_unknown_end(tmp_path: Path) -> None:
    async with kafka_node(tmp_path, audit="on") as (node, listener):
        client = Client("127.0.0.1:1")
        create = KafkaRequest(make_api("CreateTopics", sasl.handshake, None), Head(19, 7, 1, "", 0), client, 0.0)
        begun = asyncio.Event()

        async def change() -> None:
            async with audited(create, listener.context, Operation.CREATE, "made"):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(change())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert (node.audit is not None, task.cancelled()) == (True, True)
        ended = [line for line in _audit_lines(tmp_path) if line["type"].endswith("change.ended")]
        assert [line["data"]["outcome"] for line in ended] == ["unknown"]


async def test_the_use_of_a_superuser_is_in_the_audit_trail(tmp_path: Path, tokens_file: Path, token: str) -> None:
    settings = {"superusers": "token:shop", "audit": "on", "tokens_file": str(tokens_file)}
    tokens = parse_tokens(tokens_file.read_text())
    async with kafka_node(tmp_path, tokens, **settings) as (node, _), connected(node) as client:
        assert await login(client, token) == 0
        for _ in range(3):
            await client.ask("Metadata", 1, topics=None)
        assert node.audit is not None
        assert node.audit.events[Kind.SUPERUSER] == 1


def _audit_lines(path: Path) -> list[Any]:
    return [orjson.loads(line) for file in path.rglob("audit*/*") for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("owner", "name", "version"), [(Owner.PRINCIPAL, "token:shop", 9), (Owner.TOPIC, "t", 9), (Owner.TOPIC, "t", 13)]
)
async def test_quotas_hold_a_client_back_and_refuse_nothing(
    tmp_path: Path, tokens_file: Path, token: str, owner: Owner, name: str, version: int
) -> None:
    async with kafka_node(tmp_path, parse_tokens(tokens_file.read_text())) as (node, _), connected(node) as client:
        await node.shard.create_topic("t", 1, 1, {})
        node.access.quotas.use(
            [Quota(id=id_of(owner, name), owner=owner, name=name, bytes_in=2000, bytes_out=1000, per=Scope.NODE)]
        )
        key = "t" if version < 13 else _id_of(node, "t")
        assert await login(client, token) == 0
        began = asyncio.get_running_loop().time()
        throttled = []
        for _ in range(6):
            client.send("Produce", version, produce(key, {0: batch(b"x" * 1000)}))
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].error_code == 0
            throttled.append(answer.throttle_time_ms)
        assert throttled[0] == 0
        assert max(throttled) > 0
        assert asyncio.get_running_loop().time() - began > 0.4  # the client was not read meanwhile
        async with connected(node) as reader:
            assert await login(reader, token) == 0
            reader.send("Fetch", version, fetch(key, {0: 0}, session=(0, 0)))
            session = (await reader.receive()).session_id
            reader.send("Fetch", version, fetch(key, {}, session=(session, 1)))
            assert (await reader.receive()).throttle_time_ms > 0


@pytest.mark.parametrize("limits", [{"bytes_in": 2000}, {"bytes_out": 1000}])
async def test_a_quota_of_a_topic_holds_for_requests_of_several_topics(
    tmp_path: Path, tokens_file: Path, token: str, limits: dict[str, float]
) -> None:
    async with kafka_node(tmp_path, parse_tokens(tokens_file.read_text())) as (node, _), connected(node) as client:
        for topic in ("t-busy", "t-calm", "t-free"):
            await node.shard.create_topic(topic, 1, 1, {})
        quotas = [
            Quota(
                id=id_of(Owner.TOPIC, name),
                owner=Owner.TOPIC,
                name=name,
                per=Scope.NODE,
                bytes_in=limits.get("bytes_in"),
                bytes_out=limits.get("bytes_out"),
            )
            for name in ("t-busy", "t-calm", "other-calm")
        ]
        node.access.quotas.use(quotas)
        assert await login(client, token) == 0

        async def produced(first: str, size_bytes: int) -> int:
            message = produce(first, {0: batch(b"x" * size_bytes)})
            message.topic_data.extend(produce("t-free", {0: batch(b"y")}).topic_data)
            client.send("Produce", 9, message)
            answer = await client.receive()
            assert [topic.partition_responses[0].error_code for topic in answer.responses] == [0, 0]
            return int(answer.throttle_time_ms)

        async def fetched(first: str) -> int:
            message = fetch(first, {0: 0})
            message.topics.extend(fetch("t-free", {0: 0}).topics)
            client.send("Fetch", 9, message)
            answer = await client.receive()
            return int(answer.throttle_time_ms)

        if "bytes_in" in limits:
            assert await produced("t-busy", 3000) == 0
            assert await produced("t-busy", 1) > 0
            async with connected(node) as stranger:
                assert await login(stranger, token) == 0
                stranger.send("Produce", 9, produce("other-calm", {0: batch(b"x" * 9000)}))
                assert (await stranger.receive()).responses[0].partition_responses[0].error_code != 0
            assert (Owner.TOPIC, "other-calm") not in node.access.quotas.uses, "who may not write to it debits nothing"
            assert await produced("t-calm", 1) == 0, "a topic pays for its own records only"
        else:
            await produced("t-busy", 3000)
            await produced("t-calm", 1)
            assert await fetched("t-busy") > 0
            assert await fetched("t-calm") == 0


async def test_a_client_that_has_sent_a_wrong_token_is_not_known_any_more(node: Node) -> None:
    with pytest.raises(Malformed):
        sasl.check_still_known(Client("127.0.0.1:1", None), node.access, 0)


async def test_a_tenant_does_not_see_how_many_topics_others_have(tmp_path: Path, tokens_file: Path, token: str) -> None:
    tokens = parse_tokens(tokens_file.read_text())
    async with kafka_node(tmp_path, tokens, topics_max=1) as (node, _), connected(node) as client:
        token_id, text = make_text(os.urandom)
        stored = StoredToken(id=token_id, name="shop", sha256=digest_of(text).hex(), created_ms=0, tenant="acme")
        rule = Rule(
            id="r", effect=Effect.ALLOW, principals=("token:shop",), operations=(Operation.CREATE,),
            resource=Resource.TOPIC, pattern=Pattern.ALL, tenant="acme",
        )  # fmt: skip
        await node.shard.create_topic("other", 1, 1, {})
        tenant = Tenant(id="acme", created_ms=0)
        node.access.use_state(AccessState(tenants=(tenant,), tokens=(stored,), rules=(rule,)))
        assert await login(client, text) == 0
        one = request("CreateTopics", "topics", name="made", num_partitions=1, replication_factor=1)
        [made] = (await client.ask("CreateTopics", 7, topics=[one], timeout_ms=1)).topics
        assert (made.error_code, made.error_message) == (Error.POLICY_VIOLATION, WITHOUT_COUNTS["too_many_topics"])
