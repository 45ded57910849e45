"""ACLs are the rules of the cluster, in Kafka's words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.rules import Effect, Pattern, Rule, check_rule
from gateway.access.tokens_file import parse_tokens
from gateway.http.rights import OPERATIONS, Operation, Resource
from gateway.kafka.acls import Acl, acls_of, rule_of
from gateway.kafka.errors import Error
from gateway.kafka.principals import kafka_principal, own_principal
from node.node import Node
from tests.gateway.kafka.served import Connection, batch, connected, kafka_node, produce, request
from tests.gateway.kafka.test_sasl import login
from tests.tokens import add_token

TOPIC, CLUSTER, TRANSACTIONAL_ID = 2, 4, 5
LITERAL, PREFIXED, MATCH = 3, 4, 2
ALL, READ, WRITE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, IDEMPOTENT_WRITE = 2, 3, 4, 7, 8, 10, 12
DENY, ALLOW, ANY = 2, 3, 1


class Tokens:
    def __init__(self, path: Path) -> None:
        self.boss = add_token(path, "boss", read=[""], write=[""], admin=[""], group=[""])
        self.shop = add_token(path, "shop", read=["own"])
        self.path = path
        self.file = parse_tokens(path.read_text())


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens.toml")


@pytest.fixture
async def node(tmp_path: Path, tokens: Tokens) -> AsyncIterator[Node]:
    async with kafka_node(tmp_path, tokens.file, tokens_file=str(tokens.path), superusers="token:boss") as (node, _):
        await node.shard.create_topic("t", 1, 1, {})
        yield node


@pytest.fixture
async def boss(node: Node, tokens: Tokens) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        assert await login(connection, tokens.boss) == 0
        yield connection


def acl(kind: int = TOPIC, name: str = "t", pattern: int = LITERAL, **of: Any) -> Acl:
    fields = {"principal": "User:shop", "host": "*", "operation": WRITE, "permission": ALLOW}
    return Acl(kind, name, pattern, **(fields | of))


async def make(client: Connection, *acls: Acl) -> list[tuple[int, str | None]]:
    creations = [
        request(
            "CreateAcls", "creations", resource_type=one.resource_type, resource_name=one.name,
            resource_pattern_type=one.pattern, principal=one.principal, host=one.host, operation=one.operation,
            permission_type=one.permission,
        )
        for one in acls
    ]  # fmt: skip
    results = (await client.ask("CreateAcls", 3, creations=creations)).results
    return [(row.error_code, row.error_message) for row in results]


def wanted(**of: Any) -> dict[str, Any]:
    fields = {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "operation": ANY}
    return fields | {"principal_filter": None, "host_filter": None, "permission_type": ANY} | of


async def shown(client: Connection, **of: Any) -> set[Acl]:
    answer = await client.ask("DescribeAcls", 3, **wanted(**of))
    assert answer.error_code == 0, answer.error_message
    return {
        acl(
            one.resource_type, one.resource_name, one.pattern_type, principal=row.principal, host=row.host,
            operation=row.operation, permission=row.permission_type,
        )
        for one in answer.resources
        for row in one.acls
    }  # fmt: skip


async def remove(client: Connection, **of: Any) -> list[int]:
    one = request("DeleteAcls", "filters", **wanted(**of))
    found = (await client.ask("DeleteAcls", 3, filters=[one])).filter_results[0]
    assert found.error_code == 0
    return [row.error_code for row in found.matching_acls]


async def test_an_acl_is_a_rule_that_decides_and_is_shown_as_it_was_made(
    boss: Connection, node: Node, tokens: Tokens
) -> None:
    async with connected(node) as shop:
        await login(shop, tokens.shop)

        async def write() -> int:
            shop.send("Produce", 9, produce("t", {0: batch(b"a")}))
            code: int = (await shop.receive()).responses[0].partition_responses[0].error_code
            return code

        assert await write() == Error.TOPIC_AUTHORIZATION_FAILED
        allowed, denied = acl(), acl(host="10.0.0.7", permission=DENY)
        assert await make(boss, allowed, denied, allowed) == [(0, None)] * 3
        assert await write() == 0
        assert await shown(boss) == {allowed, denied}
        assert await shown(boss, permission_type=DENY) == {denied}
        assert await shown(boss, principal_filter="User:other") == set()
        assert await remove(boss, host_filter="*") == [0]
        assert await write() == Error.TOPIC_AUTHORIZATION_FAILED
        assert await remove(boss, host_filter="*") == []
        assert (await shop.ask("DescribeAcls", 3, **wanted())).error_code == Error.CLUSTER_AUTHORIZATION_FAILED
        assert (await make(shop, acl()))[0][0] == Error.CLUSTER_AUTHORIZATION_FAILED


async def test_filters_match_names_by_kafkas_rules(boss: Connection) -> None:
    acls = [acl(name="orders"), acl(name="ord", pattern=PREFIXED), acl(name="*"), acl(name="x")]
    assert await make(boss, *acls) == [(0, None)] * 4
    literal, prefixed, all_names, _ = acls
    orders = {"resource_type_filter": TOPIC, "resource_name_filter": "orders"}
    assert await shown(boss, **orders, pattern_type_filter=MATCH) == {literal, prefixed, all_names}
    assert await shown(boss, **orders, pattern_type_filter=LITERAL) == {literal}
    assert await shown(boss, **orders) == {literal}
    assert await shown(boss, pattern_type_filter=PREFIXED) == {prefixed}
    assert await shown(boss, resource_type_filter=CLUSTER) == set()


async def test_a_rule_that_says_more_than_the_filter_stays(boss: Connection, node: Node) -> None:
    assert await make(boss, acl(operation=ALL), acl(CLUSTER, "kafka-cluster", operation=ALTER)) == [(0, None)] * 2
    assert await shown(boss, operation=ALL) == {acl(operation=ALL)}
    assert await remove(boss, operation=WRITE) == [], "all operations are one ACL"
    assert await remove(boss, operation=ALL) == [0]
    rules = node.access.snapshot.state.rules
    assert [(rule.resource, rule.operations) for rule in rules] == [(Resource.CLUSTER, (Operation.OPERATE,))]


async def test_what_has_no_counterpart_is_refused_with_the_reason(boss: Connection) -> None:
    of_cluster = {"kind": CLUSTER, "name": "kafka-cluster"}
    wrong = [
        *(acl(TRANSACTIONAL_ID), acl(0), acl(operation=DESCRIBE_CONFIGS), acl(operation=ANY), acl(permission=ANY)),
        *(acl(**of_cluster, operation=IDEMPOTENT_WRITE), acl(CLUSTER, "other", operation=ALTER), acl(pattern=MATCH)),
        *(acl(principal=principal) for principal in ("shop", "User:nobody", "User:")),
        *(acl(host="example.org"), acl(name="no/name"), acl(name="")),
    ]
    for code, text in await make(boss, *wrong):
        assert code == Error.INVALID_REQUEST
        assert text
    assert await shown(boss) == set()


PRINCIPALS = st.sampled_from(
    ["token:a", "*", "anonymous", "cert:x", "group:okta:dev", "oidc:okta:u", "node:1", "token:User"]
)


@given(PRINCIPALS)
def test_principals_have_one_word_each(principal: str) -> None:
    assert own_principal(kafka_principal(principal)) == principal


@given(
    st.sampled_from([Resource.TOPIC, Resource.GROUP, Resource.CLUSTER]),
    st.sampled_from(Pattern),
    st.sampled_from(Effect),
    PRINCIPALS,
    st.sampled_from([(), ("10.0.0.1/32",), ("10.0.0.0/8",), ("::1/128",)]),
    st.data(),
)
def test_each_acl_of_a_rule_makes_that_rule_again(
    resource: Resource, pattern: Pattern, effect: Effect, principal: str, sources: tuple[str, ...], data: st.DataObject
) -> None:
    if resource is Resource.CLUSTER:
        pattern = Pattern.ALL
    operation = data.draw(st.sampled_from(sorted(OPERATIONS[resource])))
    rule = Rule(
        id="r", effect=effect, principals=(principal,), operations=(operation,), resource=resource, pattern=pattern,
        name="" if pattern is Pattern.ALL else "n", sources=sources,
    )  # fmt: skip
    check_rule(rule)
    for one in acls_of(rule):
        again = rule_of(one, None, "", 0)
        check_rule(again)
        assert list(acls_of(again)) == [one]
        assert again.granted() == rule.granted()
        assert (again.principals, again.pattern, again.name, again.sources) == (
            (principal,), pattern, rule.name, rule.sources
        )  # fmt: skip


def test_resources_without_a_word_of_kafka_have_no_acls() -> None:
    for resource, operation in product((Resource.SUBSCRIPTION, Resource.TENANT), (Operation.DESCRIBE,)):
        rule = Rule(
            id="r", effect=Effect.ALLOW, principals=("*",), operations=(operation,), resource=resource,
            pattern=Pattern.ALL,
        )  # fmt: skip
        assert list(acls_of(rule)) == []
