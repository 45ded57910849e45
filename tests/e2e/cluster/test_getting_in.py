"""Attempts to get in, against a node with tokens and rules, and against three nodes with TLS between all machines.

Each was made by a reviewer who tried to read, write, change or name what a token gives no right to. What was wrong has
"Got through" in the docstring of its test. Stays as it is when a credential or a rule gets another form: the attempts
are added to.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import orjson
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from gateway.links.node_tls import uri_of
from loadtests.cluster.nodes import ROOT, ClusterNode
from loadtests.cluster.zookeeper import Zookeeper, reserve_port
from tests.certificates import Authority, Certificate
from tests.chaos.machines.cluster import NODES
from tests.e2e.cluster.test_access_rules import ask
from tests.e2e.cluster.test_secured_zookeeper import LOGIN, run
from tests.e2e.node_process import NodeProcess, running_process
from tests.replication.zookeeper_process import TICK_MS, WHY_NOT, is_installed
from tests.scenarios.http2_client import Http2Client
from tests.scenarios.raw_http1 import exchange, request_head
from tests.tokens import add_token
from tests.upgrade.rolling import running_nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CANARY = "canario-7f3c9d"  # the value of the record that no other client may see
SECRET = "tresor"  # the topic that has it: its name is a secret too
REFUSED = {400, 401, 403, 404, 405, 421, 431, 501}
HOOK = "http://127.0.0.1:9/hook"


class Target(NamedTuple):
    """A node, and the tokens of its users. `boss` is a superuser; `a` may do everything with what begins with `a.`."""

    process: NodeProcess
    directory: Path
    boss: str
    a: str
    other: str

    def ask(self, token: str | None, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        headers = [] if token is None else [f"Authorization: Bearer {token}"]
        sent = b"" if body is None else orjson.dumps(body)
        if sent:
            headers += ["Content-Type: application/json", f"Content-Length: {len(sent)}"]
        return answer_of(exchange(self.process.port, request_head(method, path, *headers) + sent))


def answer_of(raw: bytes) -> tuple[int, bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    match = re.match(rb"HTTP/1\.1 (\d{3})", head)
    return (int(match[1]) if match else 0), body


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("target")
    path = directory / "tokens.toml"
    boss, a = add_token(path, "boss"), add_token(path, "a", read=["a."], write=["a."], admin=["a."], group=["a."])
    settings = {
        "tokens_file": path,
        "superusers": "token:boss",
        "bad_attempts_burst": 1_000_000,  # so that each attempt is looked at
        "auto_create_topics": True,
        "log_level": "debug",
        "request_log": True,
        "shards": 2,
        "push_targets": "127.0.0.1/32",
        "push_http": True,
        "push_unconfirmed": True,
    }
    with running_process(directory, **settings) as process:
        made = Target(process, directory, boss, a, "")
        for name in (SECRET, "a.own"):
            assert made.ask(boss, "PUT", f"/v1/topics/{name}", {"partitions": 2})[0] == 201
        records = {"records": [{"key": "k", "value": CANARY, "partition": 0}]}
        assert made.ask(boss, "POST", f"/v1/topics/{SECRET}/records", records)[0] == 200
        assert made.ask(boss, "PUT", f"/v1/groups/{SECRET}", {"config": {}})[0] == 201
        push = {"url": HOOK, "topics": [SECRET]}
        assert made.ask(boss, "PUT", f"/v1/subscriptions/{SECRET}", push)[0] == 201
        status, body = made.ask(boss, "POST", "/v1/access/tokens", {"name": "other"})
        assert status == 201
        yield made._replace(other=json.loads(body)["token"])


def assert_kept_out(status: int, body: bytes, what: object) -> None:
    assert status in REFUSED, (what, status, body)
    assert CANARY.encode() not in body, what
    assert base64.b64encode(CANARY.encode())[:12] not in body, what


# Tokens


def forged(target: Target) -> list[bytes]:
    """Return values of Authorization that are none of a known token."""
    good, other = target.boss, target.other
    secret = good.rpartition("_")[2]
    pem = Path(target.directory / "tokens.toml").read_bytes()
    sha = re.search(rb'sha256 = "(\w+)"', pem)
    assert sha is not None
    claims = {"sub": "boss", "iss": "x", "aud": "x", "exp": 2**33}
    none = jwt.encode(claims, None, algorithm="none")
    texts: list[str | bytes] = [
        *("", "Bearer", "Bearer ", good, f"Basic {base64.b64encode(f'boss:{good}'.encode()).decode()}"),
        *(f"Bearer {good[:-1]}", f"Bearer {good}=", f"Bearer {good}x", f"Bearer {good} {good}", f"Bearer {good},"),
        *(f"Bearer {good.swapcase()}", f"Bearer {good.upper()}", f"Bearer penstock_{secret}", f"Bearer {good}\x00"),
        *(f"Bearer \x00{good}", f"Bearer {good[:18]}{other[18:]}", f"Bearer {other[:18]}{good[18:]}", "Bearer null"),
        *(f"Bearer {sha[1].decode()}", f"Bearer {good[:18]}{sha[1].decode()}", f'Bearer "{good}"', f"Token {good}"),
        *(f"Bearer\t{good}", f"Bearer:{good}", f"Bearer%20{good}", "Bearer ' OR 1=1 --", "Bearer ../../tokens.toml"),
        *(f"Bearer {none}", f"Bearer {none.replace('bm9uZ', 'Tm9OZ')}", f"DPoP {good}", f"Digest username={good}"),
        f"Bearer {jwt.encode(claims, pem[:64].ljust(32), algorithm='HS256')}",
        f"Bearer {jwt.encode(claims, b'x' * 32, algorithm='HS256', headers={'kid': '../../dev/null', 'jku': HOOK})}",
        f"Bearer {jwt.encode(claims, b'x' * 32, algorithm='HS256', headers={'crit': [], 'b64': False})}",
        "Bearer " + json.dumps({"payload": "e30", "signatures": [{"signature": "", "protected": "e30"}]}),
        "Bearer a.b.c.d.e",
        "Bearer " + "[" * 8000,
        "Bearer " + "A" * 8193,
        f"Bearer {good[:-1]}é".encode(),
        b"Bearer \xff\xfe",
    ]
    return [text if isinstance(text, bytes) else text.encode("latin-1") for text in texts]


def test_no_forged_token_opens_over_http1(target):
    for value in forged(target):
        raw = b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: " + value + b"\r\n\r\n"
        assert_kept_out(*answer_of(exchange(target.process.port, raw)), value)
    long = b"Authorization: Bearer " + b"A" * 1_000_000
    assert_kept_out(
        *answer_of(exchange(target.process.port, b"GET / HTTP/1.1\r\nHost: x\r\n" + long + b"\r\n\r\n")), "1 MB"
    )


async def test_no_forged_token_opens_over_http2(target):
    for value in forged(target):
        client = await Http2Client.open("127.0.0.1", target.process.port)
        try:
            sent = {"authorization": value.decode("latin-1")}
            async with asyncio.timeout(10):
                status, _, body = await client.request("GET", "/v1/topics", sent, b"")
            assert_kept_out(status, body, value)
        except (ConnectionError, OSError, ValueError, asyncio.IncompleteReadError):
            pass  # the stream or the connection is refused, or the library sends no such value
        finally:
            with suppress(Exception):
                await client.close()


def test_a_token_counts_in_its_one_place_only(target):
    good = target.boss
    path = "/v1/topics"
    for head in (
        request_head("GET", f"{path}?access_token={good}"),
        request_head("GET", f"{path}?token={good}"),
        request_head("GET", path, f"Cookie: token={good}; Authorization=Bearer {good}"),
        request_head("GET", path, f"X-Authorization: Bearer {good}"),
        request_head("GET", path, f"Proxy-Authorization: Bearer {good}"),
        request_head("GET", path, f"Authorization: Bearer {good}", f"Authorization: Bearer {good}"),
        request_head("GET", path, "Authorization: Bearer x", f"Authorization: Bearer {good}"),
        request_head("GET", path, f"Authorization: Bearer {good}", "Authorization: Bearer x"),
        request_head("GET", path, f"Authorization : Bearer {good}"),
        request_head("GET", path, f"\tAuthorization: Bearer {good}"),
        request_head("GET", path, "X: y", f" Authorization: Bearer {good}"),
        request_head("GET", path, f"Authorization: Bearer\r\n {good}"),
        request_head("GET", f"http://boss:{good}@127.0.0.1{path}"),
        request_head("GET", path, "Penstock-Forward: never", "Penstock-Client-Id: boss", "X-Forwarded-User: boss"),
        request_head(
            "GET", path, "X-Remote-User: token:boss", "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1"
        ),
        request_head("GET", "/healthz", "X-Original-URL: /v1/topics", "X-Rewrite-URL: /v1/topics"),
        request_head("OPTIONS", path, "Origin: http://127.0.0.1"),
        request_head("GET", path, "Transfer-Encoding: chunked") + f"0\r\nAuthorization: Bearer {good}\r\n\r\n".encode(),
    ):
        status, body = answer_of(exchange(target.process.port, head))
        assert SECRET.encode() not in body, head
        assert status in REFUSED or head.startswith((b"GET /healthz", b"OPTIONS")), (head, status)


def test_a_connection_that_was_known_is_not_known_to_what_follows_without_its_token(target):
    """On one connection, as a proxy has: the next request brings another credential, or none."""
    good = f"Authorization: Bearer {target.boss}\r\n"
    weak = f"Authorization: Bearer {target.a}\r\n"

    def one(header: str, end: str = "") -> bytes:
        return f"GET /v1/topics/{SECRET} HTTP/1.1\r\nHost: x\r\n{header}{end}\r\n".encode()

    close = "Connection: close\r\n"
    raw = exchange(
        target.process.port, one(good), one(""), one(weak), one(good), one("Authorization: Bearer x\r\n", close)
    )
    assert re.findall(rb"HTTP/1\.1 (\d{3})", raw) == [b"200", b"401", b"403", b"200", b"401"]


# Rights


def attempts_on_the_secret(name: str) -> list[tuple[str, str, object]]:
    """Return requests for a resource with this name."""
    topic, part = f"/v1/topics/{name}", f"/v1/topics/{name}/partitions/0"
    records = {"records": [{"value": 1}]}
    entry = {"topic": name, "partition": 0, "offset": 0}
    return [
        ("GET", topic, None),
        ("PUT", topic, {"partitions": 3}),
        ("PATCH", topic, {"config": {"retention_ms": 60_000}}),
        ("DELETE", topic, None),
        ("POST", f"{topic}/roll", None),
        ("GET", f"{topic}/tier", None),
        ("GET", f"{topic}/records?from=earliest", None),
        ("GET", f"{topic}/table", None),
        ("GET", f"{topic}/table/k", None),
        ("GET", f"{part}/records?from=earliest", None),
        ("HEAD", f"{part}/records?from=earliest", None),
        ("GET", f"{part}/offsets", None),
        ("DELETE", f"{part}/records?before=1", None),
        ("GET", f"{part}/fence", None),
        ("PUT", f"{part}/fence", {"token": "x"}),
        ("GET", f"{part}/source?source=x", None),
        ("POST", f"{topic}/records", records),
        ("POST", f"{part}/records", records),
        ("POST", "/v1/records", {"records": [{"topic": name, "value": 1}]}),
        ("POST", "/v1/fetch", {"partitions": [entry]}),
        ("PUT", "/v1/groups/a.g/offsets", {"offsets": [entry]}),
        ("POST", "/v1/groups/a.g/reset", {"to": "earliest", "topics": [name]}),
        ("POST", "/v1/groups/a.g/members/m/poll", {"topics": [name]}),
        ("POST", "/v1/groups/a.s/acquire", {"topics": [name]}),
        ("PUT", "/v1/groups/a.d", {"config": {"kind": "share", "dead_letter_topic": name}}),
        ("PUT", "/v1/subscriptions/a.s", {"url": HOOK, "topics": [name]}),
        ("PUT", "/v1/subscriptions/a.t", {"url": HOOK, "topics": ["a.own"], "delivery": {"dead_letter_topic": name}}),
        ("POST", "/v1/cluster/reassignments", {"topic": name, "partitions": {"0": [1]}}),
    ]


def of_groups_and_more(name: str) -> list[tuple[str, str, object]]:
    group, push = f"/v1/groups/{name}", f"/v1/subscriptions/{name}"
    return [
        ("GET", group, None),
        ("GET", f"{group}/offsets", None),
        ("GET", f"{group}/explanation", None),
        ("PUT", group, {"config": {}}),
        ("PATCH", group, {"config": {}}),
        ("DELETE", group, None),
        ("DELETE", f"{group}/offsets?topic=a.own", None),
        ("POST", f"{group}/reset", {"to": "latest"}),
        ("POST", f"{group}/members/m/poll", {"topics": ["a.own"]}),
        ("DELETE", f"{group}/members/m", None),
        ("GET", push, None),
        ("PATCH", push, {"url": HOOK}),
        ("DELETE", push, None),
        ("POST", f"{push}/pause", None),
        ("POST", f"{push}/replay", {"to": "earliest"}),
        ("GET", "/v1/access/rules", None),
        ("GET", "/v1/access/tokens", None),
        (
            "POST",
            "/v1/access/check",
            {"principal": "token:boss", "operation": "read", "resource": "topic", "name": "x"},
        ),
        ("POST", "/v1/access/tokens", {"name": "mine"}),
        ("POST", "/v1/access/tokens/boss/rotate", None),
        ("GET", "/metrics", None),
    ]


@pytest.mark.parametrize("who", ["a", "other", "anonymous"])
def test_what_a_token_has_no_right_to_it_neither_reads_nor_changes_nor_learns_of(target, who):
    token = {"a": target.a, "other": target.other, "anonymous": None}[who]
    seen = target.ask(target.boss, "GET", f"/v1/topics/{SECRET}")[1]
    for hidden, missing in zip(
        attempts_on_the_secret(SECRET) + of_groups_and_more(SECRET),
        attempts_on_the_secret("absent") + of_groups_and_more("absent"),
        strict=True,
    ):
        status, body = target.ask(token, *hidden)
        if status == 200:  # a fetch over many, whose entries have their own problems
            assert hidden[1] == "/v1/fetch", hidden
            assert b'"forbidden"' in body
        else:
            assert_kept_out(status, body, hidden)
        other_status, other_body = target.ask(token, *missing)
        is_same = (status, _without_ids(body)) == (
            other_status,
            _without_ids(other_body.replace(b"absent", SECRET.encode())),
        )
        assert is_same, (hidden, body, other_body)
    for path in (
        "/v1/topics",
        "/v1/groups",
        "/v1/subscriptions",
        "/v1/cluster",
        "/v1/cluster/reassignments",
        "/v1",
        "/docs",
    ):
        _, body = target.ask(token, "GET", path)
        assert SECRET.encode() not in body, path
    push = ("PUT", f"/v1/subscriptions/{SECRET}", {"url": HOOK, "topics": ["a.own"]})  # of a free name it may be made
    assert_kept_out(*target.ask(token, *push), push)
    after = target.ask(target.boss, "GET", f"/v1/topics/{SECRET}")[1]
    assert _without_ids(after) == _without_ids(seen)


def _without_ids(body: bytes) -> bytes:
    return re.sub(rb'"(request_id|segments|size_bytes|timestamp)":[^,}]*', b"", body)


@pytest.mark.parametrize("pattern", [".*", f"{SECRET}", f"a\\.|{SECRET}", "(?i)TRESOR", "^(?!x)"])
def test_a_pattern_of_topics_finds_none_of_others(target, pattern):
    body = {"topics_pattern": pattern, "wait_ms": 0}
    status, answer = target.ask(target.a, "POST", "/v1/groups/a.p/members/m/poll", body)
    assert SECRET.encode() not in answer.replace(pattern.encode(), b""), answer
    assert CANARY.encode() not in answer
    assert status < 500 or status == 501


@pytest.mark.parametrize(
    "path",
    [
        *(f"/v1/topics/a.own/../{SECRET}", f"/v1/topics/a.own/%2e%2e/{SECRET}", f"/v1/topics/a.own%2f..%2f{SECRET}"),
        *(f"//v1/topics/{SECRET}", f"/v1//topics/{SECRET}", f"/v1/topics//{SECRET}", f"/v1/topics/{SECRET}/"),
        *(f"/v1/topics/{SECRET};a.own", f"/v1/topics/{SECRET}%00a.own", f"/v1/topics/a.own%00/../{SECRET}"),
        *(
            f"/V1/topics/{SECRET}",
            f"/v1/topics/%74{SECRET[1:]}",
            f"/v1/topics/%2574{SECRET[1:]}",
            f"/v1/topics/ {SECRET}",
        ),
        *(f"/v1/topics/{SECRET}?topic=a.own", f"/v1/topics/{SECRET}#a.own", f"/v1/topics/{SECRET.upper()}"),
        *(f"http://127.0.0.1/v1/topics/{SECRET}", f"http://x/v1/topics/a.own/../{SECRET}", f"/./v1/topics/{SECRET}"),
        *("/v1/topics/__groups/partitions/0/records?from=earliest", "/v1/topics/%5f%5fgroups/partitions/0/records"),
        *(
            f"/v1/topics/a.own/partitions/0/../../../{SECRET}",
            f"/v1/topics/\\{SECRET}",
            "/v1/topics/a.*",
            "/v1/topics/*",
        ),
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE", "get", "HEAD", "TRACE", "PROPFIND"])
def test_no_form_of_a_path_leads_around_the_check(target, method, path):
    override = ("X-HTTP-Method-Override: GET", "X-HTTP-Method: DELETE", "X-Method-Override: DELETE")
    for more in ((), override):
        raw = exchange(target.process.port, request_head(method, path, f"Authorization: Bearer {target.a}", *more))
        status, body = answer_of(raw)
        assert CANARY.encode() not in body
        assert status not in (200, 204), (path, body)
        assert status < 500 or status == 501, (path, body)
    assert target.ask(target.boss, "GET", f"/v1/topics/{SECRET}")[0] == 200


# Rules


def add_rule(target: Target, token: str, **fields: object) -> tuple[int, bytes]:
    rule = {"principals": ["token:other"], "operations": ["read"], "resource": "topic", "name": "a.own"}
    return target.ask(token, "POST", "/v1/access/rules", rule | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"principals": ["token:unknown"]},
        {"principals": ["boss"]},
        {"principals": ["token:boss "]},
        {"principals": ["token:*"]},
        {"principals": ["*", "nonsense"]},
        {"principals": []},
        {"principals": ["token:other"] * 1000},
        {"principals": [f"file:{'0' * 8}"]},
        {"resource": "everything"},
        {"resource": None},
        {"operations": ["*"]},
        {"operations": ["superuser"]},
        {"operations": []},
        {"name": "*"},
        {"name": ""},
        {"name": "a.*"},
        {"name": "../x"},
        {"name": "x" * 250},
        {"pattern": "regex"},
        {"pattern": "prefix", "name": ""},
        {"pattern": "all", "name": "a.own"},
        {"sources": ["0.0.0.0"] * 1000},
        {"sources": ["everywhere"]},
        {"id": "../../head"},
        {"id": "superuser"},
        {"id": "names-of-tenants"},
        {"effect": "maybe"},
        {"author": "token:boss"},
        {"created_ms": 0},
        {"note": "x" * 10_000},
    ],
    ids=lambda fields: json.dumps(fields)[:40],
)
def test_a_rule_that_says_more_than_it_may_is_refused(target, fields):
    """Got through: the id `superuser`, which answers, `acl check` and the audit trail use for superusers."""
    status, body = add_rule(target, target.boss, **fields)
    assert status == 400, body


def test_who_may_not_change_rules_cannot_begin_to(target):
    for token in (target.a, target.other, None):
        status, _ = target.ask(token, "POST", "/v1/access/rules", {
            "principals": ["*"], "operations": ["access"], "resource": "cluster",
        })  # fmt: skip
        assert status in (401, 403)
    for name in ("boss", "a"):
        status, body = target.ask(target.boss, "POST", "/v1/access/tokens", {"name": name})
        assert (status, json.loads(body)["code"]) == (409, "access_exists"), "no second token gets the name of another"


def test_who_changes_rules_cannot_be_made_to_lock_everyone_out_or_become_a_superuser(target):
    """`keeper` may change rules. It gives itself everything, which is its right, and does not become a superuser."""
    status, body = target.ask(target.boss, "POST", "/v1/access/tokens", {"name": "keeper"})
    assert status == 201
    keeper = json.loads(body)["token"]
    own = {"principals": ["token:keeper"], "operations": ["access"], "resource": "cluster", "id": "keeper"}
    assert target.ask(target.boss, "POST", "/v1/access/rules", own)[0] == 201
    for principals in (["*"], ["token:keeper"]):
        rule = own | {"principals": principals, "effect": "deny", "id": "deny"}
        status, body = target.ask(keeper, "POST", "/v1/access/rules", rule)
        assert (status, json.loads(body)["code"]) == (409, "access_locks_out")
    for path in ("/v1/access/rules/keeper", "/v1/access/tokens/keeper"):
        assert target.ask(keeper, "DELETE", path)[0] == 409
    deny_boss = own | {"principals": ["token:boss"], "effect": "deny", "id": "boss"}
    assert target.ask(keeper, "POST", "/v1/access/rules", deny_boss)[0] == 201
    assert target.ask(target.boss, "GET", "/v1/access/rules")[0] == 200, "a superuser is none by a rule"
    assert target.ask(target.boss, "DELETE", "/v1/access/rules/boss")[0] == 200
    assert target.ask(target.boss, "DELETE", "/v1/access/tokens/keeper")[0] == 200
    assert target.ask(keeper, "GET", "/v1/topics")[0] == 401


def test_a_deny_beats_every_allow_however_it_is_written(target):
    add = {"operations": ["read"], "resource": "topic"}
    assert add_rule(target, target.boss, id="all", pattern="all", name="", **add)[0] == 201
    path = f"/v1/topics/{SECRET}/partitions/0/offsets"
    try:
        assert target.ask(target.other, "GET", path)[0] == 200
        for fields in ({"pattern": "prefix", "name": SECRET[:3]}, {"name": SECRET}, {"pattern": "all", "name": ""}):
            assert add_rule(target, target.boss, id="no", effect="deny", **add | fields)[0] == 201
            assert_kept_out(*target.ask(target.other, "GET", path), fields)
            assert target.ask(target.boss, "DELETE", "/v1/access/rules/no")[0] == 200
        assert add_rule(target, target.boss, id="no", effect="deny", principals=["*"], name=SECRET)[0] == 201
        assert_kept_out(*target.ask(target.other, "GET", path), "a deny for all")
    finally:
        for rule in ("no", "all"):
            target.ask(target.boss, "DELETE", f"/v1/access/rules/{rule}")


# Net


def test_bytes_that_two_parsers_could_read_differently_are_refused(target):
    inner = f"GET /v1/topics/{SECRET} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.boss}\r\n\r\n".encode()
    auth = f"Authorization: Bearer {target.a}"
    path = "/v1/topics/a.own/records"
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
    for headers, body in (
        (("Content-Length: 4", "Transfer-Encoding: chunked"), chunk),
        (("Transfer-Encoding: chunked", "Content-Length: 4"), chunk),
        (("Content-Length: 0", f"Content-Length: {len(inner)}"), inner),
        ((f"Content-Length: {len(inner)}, 0",), inner),
        (("Content-Length: +0",), inner),
        (("Content-Length: -1",), inner),
        (("Content-Length: 0x10",), inner),
        (("Transfer-Encoding: xchunked",), chunk),
        (("Transfer-Encoding: chunked, identity",), chunk),
        (("Transfer-Encoding:\x0bchunked",), chunk),
        (("Transfer-Encoding : chunked",), chunk),
        (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), chunk),
    ):
        head = request_head("POST", path, auth, *headers).replace(b"Connection: close\r\n", b"")
        raw = exchange(target.process.port, head + body, answer_s=1.0)
        statuses = re.findall(rb"HTTP/1\.1 (\d{3})", raw)
        assert statuses[0] in (b"400", b"501"), (headers, raw)
        assert len(statuses) == 1, (headers, raw)
        assert SECRET.encode() not in raw


def test_a_proxy_header_and_a_host_of_others_give_nothing(target):
    get = request_head("GET", "/v1/topics")
    for before in (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)):
        status, body = answer_of(exchange(target.process.port, before + get, answer_s=2.0))
        assert status in (0, 400, 401, 501)
        assert SECRET.encode() not in body
    for host in ("evil.example", "127.0.0.1@evil", "[::1", "x" * 300, "a\x00b"):
        raw = get.replace(b"Host: 127.0.0.1", b"Host: " + host.encode("latin-1"))
        assert_kept_out(*answer_of(exchange(target.process.port, raw)), host)
    status, _ = answer_of(
        exchange(target.process.port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), answer_s=2.0)
    )
    assert status in (0, 400, 501), "TLS to a plain port"


@pytest.mark.parametrize("who", ["a", "boss"])
def test_push_reaches_no_address_that_the_operator_did_not_list(target, who):
    token = target.a if who == "a" else target.boss
    for url in (
        *("http://169.254.169.254/latest", "http://10.0.0.1/", "http://[::1]/", "http://[::ffff:10.0.0.1]/"),
        *("http://0.0.0.0/", "http://0/", "http://127.1@10.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/"),
        *(
            "http://localhost.evil.example/",
            "http://2130706433@evil.example/",
            "http://[fe80::1%25lo]/",
            "//127.0.0.1/",
        ),
        *("http://user:pass@127.0.0.1/", "http://127.0.0.1\r\nX: y/", "http://127.0.0.2/", "http://0177.0.0.1/"),
    ):
        name = f"a.{abs(hash(url)) % 10**8}"
        status, body = target.ask(token, "PUT", f"/v1/subscriptions/{name}", {"url": url, "topics": ["a.own"]})
        assert status in (400, 403, 422), (url, status, body)


# Secrets


def test_no_secret_is_where_others_can_read_it(target):
    """In logs at debug, metrics, answers, command lines, the trail, or files that others may open."""
    process, directory = target.process, target.directory
    _, metrics = target.ask(target.boss, "GET", "/metrics")
    _, tokens = target.ask(target.boss, "GET", "/v1/access/tokens")
    secrets = [one.rpartition("_")[2].encode() for one in (target.boss, target.a, target.other)]
    hashes = [one.encode() for one in re.findall(r'sha256 = "(\w+)"', (directory / "tokens.toml").read_text())]
    pids = [
        process.pid,
        *(int(one) for one in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()),
    ]
    lines = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
    trail = b"".join(one.read_bytes() for one in (directory / "data" / "audit").iterdir())
    assert len(pids) >= 3
    assert trail.count(b"\n") > 50
    log = process.errors.encode()
    places = {"log": log, "metrics": metrics, "tokens": tokens, "cmdline": lines, "trail": trail}
    for place, text in places.items():
        assert [one for one in (*secrets, CANARY.encode(), b"whsec_") if one in text] == [], place
        assert [one for one in hashes if one in text] == [], place
    stored = b"".join(one.read_bytes() for one in (directory / "data").rglob("*") if one.is_file())
    assert [one for one in secrets if one in stored] == [], "only hashes are stored"
    for one in [*(directory / "data" / "audit").iterdir(), directory / "data" / "audit"]:
        assert not stat.S_IMODE(one.stat().st_mode) & stat.S_IRWXO, one


# Three nodes, ZooKeeper, and TLS between all


class Secured(NamedTuple):
    nodes: dict[int, ClusterNode]
    zookeeper: Zookeeper
    authority: Authority
    cluster_id: str
    boss: str
    weak: str
    directory: Path

    def internal_ports(self) -> list[int]:
        """Return the ports of the nodes for each other."""
        return [int(str(node.settings["internal-port-base"])) for node in self.nodes.values()]


def processes_of(pid: int) -> list[int]:
    """Return a process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[Secured]:
    if not is_installed():
        pytest.skip(WHY_NOT)
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "tls")
    zookeeper = Zookeeper(directory / "zookeeper", TICK_MS, tls=authority.issue_for_zookeeper("server", "IP:127.0.0.1"))
    login = directory / "login"
    login.write_text(LOGIN)
    path = directory / "tokens.toml"
    boss, weak = add_token(path, "boss"), add_token(path, "weak", read=["a."])
    access = {"tokens-file": path, "superusers": "token:boss", "log-level": "debug"}
    ports = {number: reserve_port() for number in NODES}
    with ExitStack() as reserved, running_nodes(directory, ROOT, zookeeper, **access) as nodes:
        for port in ports.values():
            reserved.enter_context(port)
        cluster_id = ask(boss, f"{nodes[1].url}/v1/cluster")[1]["cluster_id"]
        for node in nodes.values():
            assert node.stop() == 0
        for number, node in nodes.items():
            own = authority.issue(f"node{number}", f"URI:{uri_of(cluster_id, number)}", f"DNS:node{number}")
            files = {"tls-ca": authority.ca, "tls-cert": own.cert, "tls-key": own.key}
            node.settings |= {
                "internal-tls": "require",
                "internal-port-base": ports[number].getsockname()[1],
                **{f"internal-{name}": file for name, file in files.items()},
                **{f"zookeeper-{name}": file for name, file in files.items()},
                "zookeeper-login-file": login,
                "zookeeper-acl": True,
                "coordination": f"zookeeper://127.0.0.1:{zookeeper.tls_port}/penstock",
            }
        for node in nodes.values():
            node.begin_start()
        for node in nodes.values():
            node.wait_until_ready()
        settings = {name: one for name, one in nodes[1].settings.items() if name.startswith("zookeeper-")}
        run("secure", settings, str(nodes[1].settings["coordination"]))
        body = {"partitions": 1, "replication_factor": 3}
        assert ask(boss, f"{nodes[1].url}/v1/topics/{SECRET}", "PUT", body)[0] == 201
        records = {"records": [{"value": CANARY}]}
        assert ask(boss, f"{nodes[1].url}/v1/topics/{SECRET}/records", "POST", records)[0] == 200
        yield Secured(nodes, zookeeper, authority, cluster_id, boss, weak, directory)


REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    f"GET /v1/topics/{SECRET} HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    b"GET /link HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: penstock\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    bytes(64),
    b"\x16",
    b"\x16\x03\x01\xff\xff" + bytes(1000),
)


def test_the_ports_of_nodes_answer_no_client(secured):
    ports = secured.internal_ports()
    assert ports
    for port in ports:
        for request in REQUESTS:
            raw = exchange(port, request, answer_s=1.5)
            assert raw == b"", (request, raw)


def test_a_certificate_that_is_not_a_nodes_opens_no_port_of_nodes(secured, tmp_path):
    other = Authority(tmp_path, "other")
    uri = uri_of(secured.cluster_id, 2)
    wrong = {
        "no certificate": None,
        "of another CA": other.issue("node2", f"URI:{uri}", "DNS:node2"),
        "of another cluster": secured.authority.issue("x1", f"URI:{uri_of('0' * 32, 2)}", "DNS:node2"),
        "of a server alone": secured.authority.issue("x2", f"URI:{uri}", purpose="serverAuth"),
        "without a URI": secured.authority.issue("x3", "DNS:node2"),
        "with the URI as a name": secured.authority.issue("x4", f"DNS:{uri.replace('://', '.').replace('/', '.')}"),
        "with two URIs": secured.authority.issue("x5", f"URI:{uri}", f"URI:{uri_of(secured.cluster_id, 3)}"),
        "with a URI below it": secured.authority.issue("x6", f"URI:{uri}/admin"),
        "expired": secured.authority.issue("x7", f"URI:{uri}", days=0),
    }
    for what, certificate in wrong.items():
        for port in secured.internal_ports():
            for request in REQUESTS[:3]:
                raw = asked_by_tls(secured.authority.ca, certificate, port, request)
                assert raw is None or not raw.startswith((b"HTTP/1.1 2", b"HTTP/1.1 101")), (what, request, raw)
                assert CANARY.encode() not in (raw or b"")


def test_a_certificate_of_a_node_without_the_secret_of_the_cluster_opens_nothing_either(secured):
    """Also the control of the test above: the handshake succeeds, and an answer comes."""
    uri = uri_of(secured.cluster_id, 2)
    certificate = secured.authority.issue("x8", f"URI:{uri}", "DNS:node2")
    for port in secured.internal_ports():
        for request in REQUESTS[:3]:
            raw = asked_by_tls(secured.authority.ca, certificate, port, request)
            assert re.match(rb"HTTP/1\.1 4", raw or b""), (request, raw)
            assert CANARY.encode() not in (raw or b"")


def asked_by_tls(ca: Path, certificate: Certificate | None, port: int, request: bytes) -> bytes | None:
    """Return the answer to a request over TLS; None without a handshake."""
    context = ssl.create_default_context(cafile=str(ca))
    context.check_hostname = False
    if certificate is not None:
        context.load_cert_chain(certificate.cert, certificate.key)
    raw = None
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 2) as plain,
        context.wrap_socket(plain, server_hostname="node1") as connection,
    ):
        raw = b""
        connection.settimeout(1.5)
        connection.sendall(request)
        while piece := connection.recv(65536):
            raw += piece
    return raw


def test_zookeeper_gives_nothing_without_the_login_and_the_log_does_not_have_it(secured):
    client = KazooClient(f"127.0.0.1:{secured.zookeeper.port}")  # plain: the port that the road leaves open for a while
    client.start()
    tried = set()
    try:
        for wrong in (None, "penstock:wrong", f"x:{LOGIN.partition(':')[2]}", "super:"):
            if wrong is not None:
                client.add_auth("digest", wrong)
            for key in ("/penstock/cluster", "/penstock/nodes", "/penstock/topics", "/penstock/access/head"):
                if client.exists(key):
                    tried.add(key)
                    with pytest.raises(NoAuthError):
                        client.get(key)
                    with pytest.raises(NoAuthError):
                        client.set(key, b"{}")
                    with pytest.raises(NoAuthError):
                        client.create(f"{key}/mine", b"{}")
    finally:
        client.stop()
        client.close()
    assert "/penstock/cluster" in tried
    password = LOGIN.partition(":")[2]
    for node in secured.nodes.values():
        command = Path(f"/proc/{node.pid}/cmdline").read_bytes().decode()
        for secret in (password, secured.boss[18:], secured.weak[18:]):
            assert secret not in node.errors
            assert secret not in command


def test_no_node_of_the_cluster_takes_what_another_refuses(secured):
    for node in secured.nodes.values():
        for token in (secured.weak, secured.boss[:-1] + "x", "penstock_00000000_x"):
            for method, path, body in attempts_on_the_secret(SECRET):
                if method == "HEAD":
                    continue
                status, document = ask(token, node.url + path, method, body)
                text = json.dumps(document)
                assert CANARY not in text, (node, path)
                assert status in REFUSED or (path == "/v1/fetch" and "forbidden" in text), (node, path, status, text)
    assert ask(secured.boss, f"{secured.nodes[2].url}/v1/topics/{SECRET}")[0] == 200


def test_what_was_tried_is_in_the_trail_of_each_node(secured):
    for number in secured.nodes:
        directory = Path(str(secured.nodes[number].settings["data-dir"])) / "audit"
        events: list[dict[str, Any]] = [
            orjson.loads(line) for file in directory.glob("audit-*") for line in file.read_bytes().splitlines()
        ]
        denied = [event["data"] for event in events if event["type"].endswith(".denied")]
        assert {event["principal"] for event in denied} == {"token:weak"}
        assert any(event["resource"] == {"kind": "topic", "name": SECRET} for event in denied)
        assert any(event["type"].endswith(".refused") for event in events)
        text = json.dumps(events)
        assert secured.boss[18:] not in text
        assert CANARY not in text


def test_a_change_during_the_absence_of_the_store_is_refused_and_the_last_rules_hold(secured):
    """Runs last: it ends ZooKeeper."""
    secured.zookeeper.kill()
    url = secured.nodes[1].url
    rule = {"principals": ["token:weak"], "operations": ["read"], "resource": "topic", "name": SECRET}
    status, document = ask(secured.boss, f"{url}/v1/access/rules", "POST", rule)
    assert status in (503, 504), document
    assert ask(secured.weak, f"{url}/v1/topics/{SECRET}/partitions/0/offsets")[0] == 403
    assert ask(secured.boss[:-1] + "x", f"{url}/v1/topics")[0] == 401
    assert ask(secured.boss, f"{url}/v1/topics")[0] == 200
