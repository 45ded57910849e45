"""The check of a request: whom a token names, and which rights the needs of routes ask for."""

import asyncio
import os
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from engine.format.paths import GROUPS_TOPIC
from engine.runtime.clock import SystemClock
from gateway.access.access import Access
from gateway.access.identity import Identity
from gateway.access.known_caller import KnownCaller
from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.signed.urls import Grant, sign, target_of
from gateway.access.snapshot import Snapshot
from gateway.access.state import AccessState, UrlKey
from gateway.access.tokens import Tokens
from gateway.access.tokens_file import Right, make_token, parse_tokens
from gateway.http.problems import Problem
from gateway.http.request import HttpContext
from gateway.http.rights import (
    AUTHENTICATED,
    OPEN,
    OPERATIONS,
    READ_TOPIC,
    Need,
    Operation,
    Resource,
    Where,
)
from gateway.server.routes import ROUTES
from openapi import load_contract, operations
from tests.gateway.requests import request_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READER = make_token("reader", {Right.READ: [""], Right.WRITE: [""]}, NOW, os.urandom)
ALTER_TOPIC = Need(Operation.ALTER, Resource.TOPIC, Where.PATH)


def access_of(*entries):
    return Access(SystemClock(), parse_tokens("".join(entries)))


def request_with(token, need, topic=None, connection=None):
    names = {} if topic is None else {"topic": topic}
    return request_of({"Authorization": f"Bearer {token}"}, names=names, need=need, connection=connection)


# The first two are of the package. The others are of a node: who may see the cluster may ask about each.
OF_THE_NODE = {
    *("/assets/{build}/{file}", "/docs/{guide}"),
    *("/v1/cluster/nodes/{node_id}/may-restart", "/v1/cluster/nodes/{node_id}/disks"),
}


def test_routes_about_one_topic_or_group_need_a_right_to_it_and_only_they():
    for _, path, need, _ in ROUTES:
        assert need.operation in OPERATIONS[need.resource], path
        if need.where is Where.PATH:
            assert f"{{{need.resource}}}" in path, path
        elif need.operation in (Operation.OPERATE, Operation.ACCESS):
            assert path.startswith(("/v1/cluster/", "/v1/access/", "/v1/tenants/", "/v1/settings")), path
        elif path not in OF_THE_NODE:
            assert "{" not in path, path


def test_routes_without_a_token_are_those_of_the_contract():
    is_open = {(one.method, one.path): one.spec.get("security") == [] for one in operations(load_contract())}
    for method, path, need, _ in ROUTES:
        assert is_open[method, path] == (need is OPEN), path


def test_a_token_has_the_rights_that_it_names_and_no_other():
    access = access_of(READER.entry)
    with pytest.raises(Problem) as refusal:
        access.check(request_with(READER.text, ALTER_TOPIC, "t"))
    assert refusal.value.code == "forbidden"
    assert refusal.value.members == {"operation": "alter", "resource": "topic", "topic": "t", "right": "admin"}
    request = request_with(READER.text, AUTHENTICATED)
    access.check(request)
    assert request.caller.name == "reader"
    with pytest.raises(Problem, match="unauthorized"):
        access.check(request_with("x", AUTHENTICATED))


def test_without_a_tokens_file_everybody_may_do_everything():
    request = request_with("x", ALTER_TOPIC, "t")
    Access(SystemClock()).check(request)
    assert all(request.caller.allows(operation, "t") for operation in Operation)


def test_what_a_connection_keeps_ends_with_its_tokens():
    access = access_of(READER.entry)
    connection = SimpleNamespace(client="127.0.0.1:1", known_caller=None, listener=None, tls=None, use_owner=str)
    for _ in range(2):
        access.check(request_with(READER.text, READ_TOPIC, "t", connection))
    other = make_token("other", {Right.READ: ["o"]}, NOW, os.urandom)
    access.use_tokens(parse_tokens(READER.entry + other.entry))
    with pytest.raises(Problem, match="forbidden"):  # another token on the same connection
        access.check(request_with(other.text, READ_TOPIC, "t", connection))
    access.use_tokens(parse_tokens(other.entry))
    with pytest.raises(Problem, match="unauthorized"):
        access.check(request_with(READER.text, READ_TOPIC, "t", connection))


def test_a_request_is_allowed_as_one_like_it_until_the_rules_or_the_credential_end():
    access = access_of(READER.entry)
    request = request_with(READER.text, READ_TOPIC, "t")
    for _ in range(2):
        access.check(request)
    known = request.connection.known_caller
    assert known.headers is request.headers

    other_topic = request_with(READER.text, READ_TOPIC, GROUPS_TOPIC, request.connection)
    other_topic.headers = request.headers
    other_route = request_with(READER.text, ALTER_TOPIC, "t", request.connection)
    other_route.headers, other_route.names = request.headers, request.names
    for other, code in ((other_topic, "invalid_topic_name"), (other_route, "forbidden")):
        access.check(request)
        with pytest.raises(Problem) as refusal:
            access.check(other)
        assert refusal.value.code == code

    access.check(request)
    known.expires_ms, known.identity = 1, None  # it has expired: the credential is read again
    access.check(request)
    assert request.caller.principal == "token:reader"

    never = Rule(id="never", effect=Effect.DENY, principals=("token:reader",), operations=(Operation.READ,),
                 resource=Resource.TOPIC, pattern=Pattern.ALL)  # fmt: skip
    access.use_state(AccessState(2, rules=(never,)))
    with pytest.raises(Problem, match="forbidden"):
        access.check(request)


def test_two_authorization_headers_are_refused_on_a_known_connection_too():
    access = access_of(READER.entry)
    request = request_with(READER.text, READ_TOPIC, "t")
    access.check(request)
    second = request_with(READER.text, READ_TOPIC, "t", request.connection)
    headers = second.headers.copy()
    headers.add("Authorization", "Bearer x")
    second.headers = headers
    with pytest.raises(Problem, match="unauthorized"):
        access.check(second)


def test_a_write_of_the_file_may_create_by_a_produce_alone():
    access = access_of(READER.entry)
    request = request_with(READER.text, AUTHENTICATED)
    access.check(request)
    assert request.caller.allows(Operation.AUTO_CREATE, "t")
    assert not request.caller.allows(Operation.CREATE, "t")


def test_a_credential_gives_one_identity_to_all_connections_and_the_number_of_them_is_bounded(monkeypatch):
    monkeypatch.setattr("gateway.access.snapshot.IDENTITIES_MAX", 2)
    snapshot = access_of(READER.entry).snapshot
    first = snapshot.identity("oidc:a:1", "oidc", "a:1", "10.0.0.1:1", groups=("group:a:x",), expires_ms=5)
    assert snapshot.identity("oidc:a:1", "oidc", "a:1", "10.0.0.2:1") is first
    assert (first.principal, first.expires_ms, first.principals) == ("oidc:a:1", 5, ("oidc:a:1", "group:a:x", "*"))
    for number in range(2, 4):
        snapshot.identity(f"oidc:a:{number}", "oidc", f"a:{number}", None)
    assert snapshot.identity("oidc:a:1", "oidc", "a:1", None) is not first


def test_a_rule_for_a_network_makes_an_identity_of_each_address():
    near = Rule(id="near", effect=Effect.ALLOW, principals=("oidc:a:1",), operations=(Operation.READ,),
                resource=Resource.TOPIC, pattern=Pattern.ALL, sources=("10.0.0.0/8",))  # fmt: skip
    snapshot = Snapshot(Tokens(()), AccessState(rules=(near,)))
    clients = ("10.0.0.1:1", "10.0.0.1:2", "11.0.0.1:1")
    ours, again, other = (snapshot.identity("oidc:a:1", "oidc", "a:1", client) for client in clients)
    assert ours is again
    assert ours.allows(Operation.READ, "x")
    assert not other.allows(Operation.READ, "x")


@pytest.mark.parametrize(
    ("need", "text"),
    [
        (Need(Operation.WRITE, Resource.TOPIC, Where.PATH), "lacks the right write to topic 't': no rule allows it"),
        (ALTER_TOPIC, "lacks the right admin to topic 't', to alter it: no rule allows it"),
        (
            Need(Operation.ACCESS, Resource.CLUSTER, Where.NONE),
            "lacks the right access to the cluster: no rule allows it",
        ),
    ],
)
def test_a_refusal_names_each_thing_once(need, text):
    nothing = make_token("nothing", {Right.READ: ["x"]}, NOW, os.urandom)
    with pytest.raises(Problem) as refusal:
        access_of(nothing.entry).check(request_with(nothing.text, need, "t"))
    assert refusal.value.detail == f"token:nothing {text}"


async def test_a_process_says_when_it_decides_by_a_generation():
    access = access_of(READER.entry)
    assert await access.wait_generation(0, 0) == 0
    waiting = asyncio.create_task(access.wait_generation(2, 30))
    for generation in (1, 2):
        await asyncio.sleep(0)
        assert not waiting.done()
        access.use_state(AccessState(generation))
    assert await asyncio.wait_for(waiting, 2) == 2
    assert await access.wait_generation(3, 0.01) == 2


async def test_a_signed_url_is_never_the_caller_that_its_connection_knows():
    """Neither the caller of a former header, nor one that has none, as a certificate gives."""
    access = access_of(READER.entry)
    key = UrlKey(id="k", secret="ab" * 32, created_ms=0)
    access.use_state(AccessState(keys=(key,)))
    named = request_with(READER.text, READ_TOPIC, "t")
    access.check(named)
    other = Identity("cert", "boss", access.snapshot.evaluator, 0, is_superuser=True)
    url = "/v1/topics/t/records"
    good = sign(target_of("GET", url), Grant("k", "token:reader", (), None, 4_000_000_000), bytes.fromhex(key.secret),
                f"file:{READER.id}")  # fmt: skip
    for query, is_good in ((good.partition("?")[2], True), ("sig_key=k&sig_sub=token%3Areader&sig_exp=4&sig=x", False)):
        for authorization in (["Bearer x"], None):
            request = request_of(names={"topic": "t"}, need=READ_TOPIC, query=query)
            request.head.path = url
            request.route = request.route._replace(operation="fetch")
            request.http = HttpContext(1, 1, 1, None, None, None)
            request.connection.known_caller = KnownCaller(authorization, other, access.snapshot, 0)
            access.take_signature(request)
            if is_good:
                access.check(request)
                assert request.caller.principal == "token:reader"
            else:
                with pytest.raises(Problem, match="expired"):
                    access.check(request)


def test_a_node_that_knows_no_callers_refuses_to_act_inside_of_a_tenant():
    request = request_with("", ALTER_TOPIC, "t")
    with pytest.raises(Problem) as refusal:
        Access(SystemClock()).check(request, "acme")
    assert refusal.value.code == "invalid_header"
