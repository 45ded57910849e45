"""Two tenants use every operation of the contract; no byte that one receives names the other, or its own prefix.

The ids are random, so that a search of all that was received is a proof as far as the requests go. Timing and the ids
of producers are not covered: SECURITY.md has them. Positions in tokens are base64, and are searched decoded.
"""

from __future__ import annotations

import base64
import re
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import orjson
import pytest

from openapi import load_contract, operations
from tests.e2e.node_process import running_process
from tests.scenarios.conformity import operation_of
from tests.tokens import add_token, bearer

RIGHTS = {
    "topic": ["describe", "read", "write", "create", "alter", "delete"],
    "group": ["describe", "read", "alter", "delete"],
    "subscription": ["describe", "create", "alter", "delete"],
    "tenant": ["describe", "access"],
}
EVENTS = {"Accept": "text/event-stream"}
STREAM_S = 1.5  # an event stream is read for that time
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"
# No caller of a tenant has them, and they are asked for all the same.
BASE64 = re.compile(rb"[A-Za-z0-9_-]{24,}")


class Hook:
    """A receiver of webhooks: it keeps all bytes, and refuses those of a path that ends in `refuse`."""

    def __init__(self) -> None:
        hook = self
        self.received: dict[str, list[bytes]] = {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.received.setdefault(self.path, []).append(str(self.headers).encode() + body)
                self.send_response(500 if self.path.endswith("refuse") else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Caller:
    """A caller with a token, which keeps all bytes that it receives."""

    def __init__(self, port: int, token: str, version: str) -> None:
        self.client, self.streams = (
            httpx.Client(
                base_url=f"http://127.0.0.1:{port}",
                http1=version == "1.1",
                http2=version == "2",
                headers=bearer(token),
                timeout=30,
            )
            for _ in range(2)
        )
        self.received: list[tuple[str, bytes]] = []
        self.asked: set[str] = set()

    def __call__(
        self, method: str, path: str, document: Any = None, headers: Any = None, **query: Any
    ) -> httpx.Response:
        body = document if isinstance(document, bytes | None) else orjson.dumps(document)
        given = {} if body is None else {"Content-Type": "application/json"}
        answer = self.client.request(method, path, content=body, headers=given | (headers or {}), params=query)
        self._keep(method, path, answer, answer.content)
        return answer

    def stream(self, path: str, **query: Any) -> bytes:
        """Read an event stream for a while."""
        received = b""
        with self.streams.stream("GET", path, headers=EVENTS, params=query, timeout=STREAM_S) as answer:
            try:
                for piece in answer.iter_raw():
                    received += piece
            except httpx.ReadTimeout:
                pass
        self._keep("GET", path, answer, received)
        return received

    def _keep(self, method: str, path: str, answer: httpx.Response, body: bytes) -> None:
        head = b"\n".join(name + b": " + value for name, value in answer.headers.raw)
        self.received.append((f"{method} {path} {answer.status_code}", head + b"\n\n" + body))
        operation = operation_of(method, path)
        if operation is not None:
            self.asked.add(operation.operation_id)

    def faults(self, *canaries: str) -> list[str]:
        """Return where a canary is in what was received."""
        found = []
        for what, data in self.received:
            decoded = b"".join(base64.urlsafe_b64decode(one[: len(one) // 4 * 4]) for one in BASE64.findall(data))
            for canary in canaries:
                at = (data + b"|" + decoded).find(canary.encode())
                if at >= 0:
                    found.append(f"{what}: {(data + b'|' + decoded)[max(0, at - 60) : at + 60]!r}")
        return found


class Node:
    def __init__(self, port: int, boss: str, hook: Hook) -> None:
        self.port, self.boss, self.hook = port, boss, hook

    def caller(self, token: str, version: str = "1.1") -> Caller:
        return Caller(self.port, token, version)

    def tenant(self, tenant: str) -> str:
        """Create a tenant and return a token of it with all rights in it."""
        boss = self.caller(self.boss)
        assert boss("PUT", f"/v1/tenants/{tenant}").status_code == 201
        inside = {"Penstock-Tenant": tenant}
        made = boss("POST", "/v1/access/tokens", {"name": "all"}, inside)
        assert made.status_code == 201, made.content
        for resource, rights in RIGHTS.items():
            rule = {"principals": ["token:all"], "operations": rights, "resource": resource, "pattern": "all"}
            assert boss("POST", "/v1/access/rules", rule, inside).status_code == 201
        return str(made.json()["token"])


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("tenants")
    path = directory / "tokens.toml"
    every = {"read": [""], "write": [""], "admin": [""], "group": [""]}
    boss = add_token(path, "boss", **every, metrics=True)
    settings = {
        "tokens_file": path, "superusers": "token:boss", "auto_create_topics": True, "push_targets": "127.0.0.0/8",
        "push_http": True, "push_unconfirmed": True, "shards": 2,
    }  # fmt: skip
    hook = Hook()
    with running_process(directory, **settings) as process:
        yield Node(process.port, boss, hook)
    hook.server.shutdown()


def use_topics(ask: Caller, other: str) -> None:
    for name, config in (("orders", {}), ("dead", {}), ("state", {"cleanup_policy": "compact"})):
        assert ask("PUT", f"/v1/topics/{name}", {"partitions": 2, "config": config}).status_code == 201
    ask("PUT", "/v1/topics/orders", {"partitions": 3})
    for bad in ("..", "__groups", f"{other}.orders", "x" * 248, "%20", "."):
        ask("PUT", f"/v1/topics/{bad}")
    ask("PATCH", "/v1/topics/orders", {"config": {"retention_ms": 86_400_000}})
    ask("PATCH", "/v1/topics/none", {"config": {"retention_ms": 1}})
    record = {"key": "k", "value": {"n": 1}}
    for topic in ("orders", "state", "fresh", "__groups", f"{other}.orders"):
        ask("POST", f"/v1/topics/{topic}/records", {"records": [record, record]})
        ask("POST", f"/v1/topics/{topic}/partitions/0/records", {"records": [record]})
    ask("POST", "/v1/topics/orders/partitions/9/records", {"records": [record]})
    ask("POST", "/v1/topics/orders/records", b'{"x', {"Content-Type": "application/x-ndjson"})
    ask("POST", "/v1/topics/state/records", {"records": [{"value": 1}]})
    assert ask("POST", "/v1/producers").status_code == 201
    many = [{"topic": topic, "value": 1} for topic in ("orders", "fresher")]
    many.append({"topic": "orders", "partition": 9, "value": 1})
    produced = ask("POST", "/v1/records", {"records": many})
    assert produced.status_code == 207, produced.content
    ask("POST", "/v1/records", {"records": [{"topic": "state", "value": 1}]})
    ask("POST", "/v1/records", {"records": [{"topic": "", "value": 1}]})
    listed = ask("GET", "/v1/topics").json()
    assert {row["topic"] for row in listed["topics"]} >= {"orders", "dead", "state", "fresh", "fresher"}
    assert "limited_to" not in listed
    for topic in ("orders", "none", f"{other}.orders"):
        ask("GET", f"/v1/topics/{topic}")
        ask("POST", f"/v1/topics/{topic}/roll")
        ask("GET", f"/v1/topics/{topic}/tier")
        ask("DELETE", f"/v1/topics/{topic}/partitions/1/records", before=0)
        ask("GET", f"/v1/topics/{topic}/partitions/1/fence")
        ask("PUT", f"/v1/topics/{topic}/partitions/1/fence", {"token": "f1"})
        ask("POST", f"/v1/topics/{topic}/partitions/1/records", {"records": [record]})
        ask("PUT", f"/v1/topics/{topic}/partitions/1/fence", {"token": None})
        sourced = {"Penstock-Source": "s", "Penstock-Source-First": "1", "Penstock-Source-Last": "1"}
        ask("POST", f"/v1/topics/{topic}/partitions/1/records", {"records": [record]}, sourced)
        ask("GET", f"/v1/topics/{topic}/partitions/1/source", name="s")


def use_records(ask: Caller, other: str) -> None:
    forms = ("application/json", "application/x-ndjson", "application/vnd.penstock.recordbatch",
             "application/cloudevents-batch+json")  # fmt: skip
    for topic in ("orders", "nowhere", "__groups", f"{other}.orders"):
        records = f"/v1/topics/{topic}/partitions/0/records"
        for form in forms:
            ask("GET", records, None, {"Accept": form}, **{"from": "earliest"})
        ask("GET", records, None, {"Accept": "application/cloudevents+json"}, offset=0, max_records=1)
        ask("GET", records, offset=0, max_records=1, cloudevents="binary")
        ask("GET", records, offset=0, wait_ms=50, min_bytes=100_000)
        ask("GET", records, offset=999)
        ask("GET", records, offset=0, topic_id="0")
        ask("HEAD", records, offset=0)
        ask("GET", f"/v1/topics/{topic}/partitions/0/offsets")
        ask("GET", f"/v1/topics/{topic}/partitions/7/offsets")
        ask("GET", f"/v1/topics/{topic}/table")
        ask("GET", f"/v1/topics/{topic}/records")
    fetched = ask("GET", "/v1/topics/orders/partitions/0/records", **{"from": "earliest"})
    assert fetched.json()["topic"] == "orders"
    assert "max-age" not in fetched.headers.get("Cache-Control", "") or "private" in fetched.headers["Cache-Control"]
    events = ask("GET", "/v1/topics/orders/partitions/0/records", None, {"Accept": forms[3]}, **{"from": "earliest"})
    assert {one["source"] for one in events.json()} == {"/v1/topics/orders/partitions/0"}
    assert ask("GET", "/v1/topics/state/table").json()["topic"] == "state"
    ask("GET", "/v1/topics/state/table/k")
    ask("GET", "/v1/topics/state/table/none")
    wanted = [{"topic": topic, "partition": 0, "offset": 0} for topic in ("orders", "nowhere", "state")]
    many = ask("POST", "/v1/fetch", {"partitions": wanted})
    assert [one["topic"] for one in many.json()["partitions"]] == ["orders", "nowhere", "state"]
    ask("POST", "/v1/fetch", {"partitions": wanted[1:2]})
    ask("POST", "/v1/fetch", {"partitions": [wanted[0], wanted[0]]})
    for path in ("/v1/topics/orders/partitions/0/records", "/v1/topics/orders/records", "/v1/topics/state/table"):
        assert b"data:" in ask.stream(path, **({} if "table" in path else {"from": "earliest"}))
    old = {"Last-Event-ID": "AAAAAAAA.0-0"} | EVENTS  # of a topic that was deleted
    with ask.streams.stream("GET", "/v1/topics/orders/records", headers=old, timeout=STREAM_S) as answer:
        ask._keep("GET", "/v1/topics/orders/records", answer, next(answer.iter_raw()))


def use_groups(ask: Caller, other: str) -> None:
    group, member = "/v1/groups/g", "/v1/groups/g/members/m"
    settings = {
        "deliveries_max": 2,
        "dead_letter_topic": "dead",
        "topics_priority": "orders,state",
        "start": "earliest",
    }
    configured = ask("PUT", group, {"config": settings})
    assert configured.json()["config"]["dead_letter_topic"] == "dead", configured.content
    assert configured.json()["config"]["topics_priority"] == "orders,state"
    ask("PATCH", group, {"config": {"dead_letter_topic": f"{other}.orders"}})
    polled = ask("POST", f"{member}/poll", {"topics": ["orders", "state"], "wait_ms": 10_000}).json()
    assert {one["topic"] for one in polled["partitions"]} <= {"orders", "state"}
    for _ in range(3):
        one = next(one for one in polled["partitions"] if one["records"])
        failed = [{"topic": one["topic"], "partition": one["partition"], "offset": one["records"][0]["offset"]}]
        polled = ask("POST", f"{member}/poll", {"token": polled["token"], "failed": failed, "wait_ms": 3000}).json()
        if not any(one["records"] for one in polled["partitions"]):
            break
    ask("POST", f"{member}/poll", {"token": polled["token"], "paused": [{"topic": "orders", "partition": 0}]})
    ask("POST", f"{member}/poll", {"token": "x"})
    ask("POST", f"{member}/poll", {"topics": ["nowhere"]})
    ask("POST", f"{member}/poll", {"topics": ["__groups"]})
    ask("POST", f"{member}/poll", {"topics": [f"{other}.orders"]})
    for pattern in (".*", "o.*|s.*", r"\Qo", "x)|(?:.*", f"{other}.*", "("):
        ask("POST", "/v1/groups/p/members/m/poll", {"topics_pattern": pattern, "topics_exclude": "d.*", "wait_ms": 300})
        ask("GET", "/v1/groups/p")
    ask("POST", "/v1/groups/p/members/n/poll", {"topics_pattern": ".*", "wait_ms": 3000})
    described = ask("GET", "/v1/groups/p").json()
    assert {one["topic"] for one in described["partitions"]} >= {"orders", "state", "dead"}
    assert ".*" in {one["topics_pattern"] for one in described["members"]}
    joined = ask("POST", "/v1/groups/h/heartbeat", {"topics": ["orders"]}).json()
    ask("POST", "/v1/groups/i/heartbeat", {"topics": [f"{other}.orders"]})
    who = {"member_id": joined["member_id"], "member_epoch": joined["member_epoch"]}
    owned = [{"topic": "orders", "partition": 0}]
    ask("POST", "/v1/groups/h/heartbeat", who | {"owned": owned})
    ask("PUT", "/v1/groups/h/offsets", who | {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]})
    ask("PUT", "/v1/groups/h/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 9999}]})
    ask("PUT", "/v1/groups/h/offsets", {"offsets": [{"topic": f"{other}.orders", "partition": 0, "offset": 0}]})
    assert ask("GET", "/v1/groups/h/offsets").json()["group"] == "h"
    ask("DELETE", f"/v1/groups/h/members/{joined['member_id']}")
    ask("POST", "/v1/groups/h/reset", {"to": "earliest", "topics": ["orders"]})
    ask("POST", "/v1/groups/h/reset", {"to": "earliest", "topics": ["nowhere"]})
    forgotten = ask("DELETE", "/v1/groups/h/offsets", topic="orders")
    assert forgotten.status_code == 200, forgotten.content
    ask("DELETE", "/v1/groups/h/offsets", topic="nowhere")
    stream = ask.stream("/v1/groups/e/members/m/events", topics="orders,state")
    assert b'"topic":"orders"' in stream
    ask("GET", "/v1/groups/e/members/m/events", None, EVENTS, topics="nowhere")
    share = {"kind": "share", "deliveries_max": 1, "dead_letter_topic": "dead", "start": "earliest"}
    assert ask("PUT", "/v1/groups/q", {"config": share}).status_code == 201
    acquired = ask("POST", "/v1/groups/q/acquire", {"topics": ["orders"], "wait_ms": 3000}).json()
    assert {one["topic"] for one in acquired["records"]} == {"orders"}
    place = {
        "topic": "orders",
        "partition": acquired["records"][0]["partition"],
        "offset": acquired["records"][0]["offset"],
    }
    ask("POST", "/v1/groups/q/acknowledge", {"lock": acquired["lock"], "records": [place], "outcome": "reject"})
    ask("POST", "/v1/groups/q/acknowledge", {"lock": acquired["lock"], "records": [place]})
    ask("POST", "/v1/groups/q/acquire", {"topics": ["nowhere"]})
    ask("POST", "/v1/groups/q/acquire", {"topics": [f"{other}.orders"]})
    for name in ("g", "p", "h", "q", "e", "nowhere", f"{other}.g"):
        ask("GET", f"/v1/groups/{name}")
        ask("GET", f"/v1/groups/{name}/explanation")
        ask("GET", f"/v1/groups/{name}/offsets")
    assert {row["group"] for row in ask("GET", "/v1/groups").json()["groups"]} >= {"g", "p", "h", "q", "e"}
    letters = wait_for_letters(ask)
    assert {letter["dead-letter-topic"] for letter in letters} <= {"orders", "state"}
    assert {letter.get("dead-letter-group") for letter in letters} <= {"g", "q"}
    ask("DELETE", "/v1/groups/none")
    ask("DELETE", "/v1/groups/h")


def wait_for_letters(ask: Caller) -> list[dict[str, str]]:
    """Return the headers of dead letters, once there are some."""
    for _ in range(100):
        found = []
        for partition in (0, 1):
            answer = ask("GET", f"/v1/topics/dead/partitions/{partition}/records", **{"from": "earliest"})
            found += [dict(record["headers"]) for record in answer.json()["records"]]
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("no dead letter came")


def use_subscriptions(ask: Caller, other: str, hook: Hook, version: str) -> None:
    path = f"/{version}-{secrets.token_hex(4)}"
    for name, end in (("s", ""), ("r", "/refuse")):
        wish = {"url": hook.url + path + end, "topics": ["orders"], "secrets": [SECRET], "start": "earliest"}
        delivery = {"deliveries_max": 1, "dead_letter_topic": "dead", "backoff_ms_min": 10, "backoff_ms_max": 20}
        made = ask("PUT", f"/v1/subscriptions/{name}", wish | {"delivery": delivery})
        assert made.status_code == 201, made.content
        assert (made.json()["topics"], made.json()["delivery"]["dead_letter_topic"]) == (["orders"], "dead")
        ask("PUT", f"/v1/subscriptions/{name}", wish | {"topics": ["nowhere"]})
        ask("PUT", f"/v1/subscriptions/{name}", wish | {"topics": [f"{other}.orders"]})
        outside = {"deliveries_max": 1, "dead_letter_topic": f"{other}.orders"}
        ask("PUT", f"/v1/subscriptions/{name}", wish | {"delivery": outside})
    ask("PATCH", "/v1/subscriptions/s", {"delivery": {"dead_letter_topic": "state"}})
    ask("PATCH", "/v1/subscriptions/s", {"delivery": {"dead_letter_topic": f"{other}.orders"}})
    deadline = time.monotonic() + 30
    while not (hook.received.get(path) and hook.received.get(f"{path}/refuse")):
        assert time.monotonic() < deadline, "nothing was pushed"
        time.sleep(0.1)
    time.sleep(0.5)  # for the dead letters
    for name in ("s", "r", "nowhere", f"{other}.s"):
        ask("GET", f"/v1/subscriptions/{name}")
        for action in ("pause", "resume"):
            ask("POST", f"/v1/subscriptions/{name}/{action}")
        ask("POST", f"/v1/subscriptions/{name}/replay", {"to": "latest"})
        ask("POST", f"/v1/subscriptions/{name}/replay", {"offsets": [{"topic": "orders", "partition": 7, "offset": 0}]})
    assert {row["subscription"] for row in ask("GET", "/v1/subscriptions").json()["subscriptions"]} == {"s", "r"}
    wait_for_letters(ask)
    ask("DELETE", "/v1/subscriptions/s")
    ask.received += [(f"push {path}", data) for end in ("", "/refuse") for data in hook.received[path + end]]


def use_rest(ask: Caller, own: str, other: str) -> None:
    open_paths = ("/healthz", "/readyz", "/", "/assets/x/app.js", "/v1", "/openapi.json", "/docs", "/docs/start")
    for path in (*open_paths, "/metrics", "/v1/cluster/reassignments"):
        ask("GET", path)
    assert {row["topic"] for row in ask("GET", "/v1/topics", include="summary", sort="log_bytes").json()["topics"]}
    first = ask("GET", "/v1/topics", limit=1).json()
    assert ask("GET", "/v1/topics", limit=1, after=first["next"]).json()["topics"] != first["topics"]
    overview = ask("GET", "/v1/overview").json()
    assert overview.keys() & {"totals", "nodes", "disks", "cluster_id"} == set()
    assert ask("GET", "/v1/history", topic=first["topics"][0]["topic"]).status_code == 200
    for path in (
        "/v1/history",
        "/v1/settings",
        "/v1/cluster/nodes/1/may-restart",
        "/v1/cluster/nodes/1/audit",
        "/v1/cluster/nodes/1/disks",
        "/v1/cluster/jobs",
        "/v1/cluster/nodes/1/disks",
    ):
        assert ask("GET", path).status_code == 403
    me = ask("GET", "/v1/me").json()
    assert {"resource": "topic", "operation": "read", "prefixes": [""], "names": []} in me["rights"]
    cluster = ask("GET", "/v1/cluster").json()
    assert [*cluster] == ["nodes"]
    assert all([*row] == ["url"] for row in cluster["nodes"])
    ask("POST", "/v1/cluster/reassignments", {"topic": "orders", "partitions": {"0": [1]}})
    ask("DELETE", "/v1/cluster/reassignments/orders/0")
    ask("POST", "/v1/cluster/nodes/1/drain")
    ask("POST", "/v1/cluster/nodes/1/decommission")
    ask("POST", "/v1/cluster/balance", {"apply": False})
    ask("POST", "/v1/cluster/nodes/1/disks/moves", {"balance": True, "dry_run": True})
    ask("DELETE", "/v1/cluster/nodes/1/disks/moves/orders/0")
    assert [one["name"] for one in ask("GET", "/v1/access/tokens").json()["tokens"]] == ["all"]
    assert ask("POST", "/v1/access/tokens", {"name": "boss"}).status_code == 201
    ask("POST", "/v1/access/tokens", {"name": "boss"})
    assert ask("POST", "/v1/access/tokens/boss/rotate").status_code == 201
    rule = {"principals": ["token:boss"], "operations": ["read"], "resource": "topic", "name": "orders", "id": "r1"}
    assert ask("POST", "/v1/access/rules", rule).status_code == 201
    ask("POST", "/v1/access/rules", rule)
    ask("POST", "/v1/access/rules", rule | {"resource": "cluster", "operations": ["operate"], "name": "", "id": "r2"})
    assert len(ask("GET", "/v1/access/rules").json()["rules"]) == 1 + len(RIGHTS)
    question = {"principal": "token:boss", "operation": "read", "resource": "topic", "name": "orders"}
    assert ask("POST", "/v1/access/check", question).json()["rule"] == "r1"
    assert ask("DELETE", "/v1/access/rules/r1").status_code == 200
    assert ask("DELETE", "/v1/access/tokens/boss").status_code == 200
    assert ask("POST", "/v1/access/signed-urls", {"url": "/v1/topics/orders/records"}).status_code == 201
    assert ask("POST", "/v1/access/signed-urls", {"url": f"/v1/topics/{other}.orders/records"}).status_code == 201
    for method, path in (("GET", "keys"), ("POST", "keys"), ("DELETE", "keys/k"), ("GET", "quotas")):
        assert ask(method, f"/v1/access/{path}").status_code == 403
    for method, body in (("PUT", {"requests": 1}), ("DELETE", None)):
        assert ask(method, f"/v1/access/quotas/tenant/{other}", body).status_code == 403
    for header in (other, own, "nowhere"):
        assert ask("GET", "/v1/topics", None, {"Penstock-Tenant": header}).status_code == 403
    assert [one["tenant"] for one in ask("GET", "/v1/tenants").json()["tenants"]] == [own]
    for tenant, status in ((own, 200), (other, 403), ("absent", 403)):
        assert ask("GET", f"/v1/tenants/{tenant}").status_code == status
        assert ask("GET", f"/v1/tenants/{tenant}/usage").status_code == status
        for method, body in (("PUT", {}), ("PATCH", {"limits": {}}), ("DELETE", None)):
            assert ask(method, f"/v1/tenants/{tenant}", body).status_code == 403
    for path in ("/v1/nothing", "/v1/v1/topics", "/v1/topics/orders/"):
        ask("GET", path)


def test_no_byte_that_a_tenant_receives_names_another_one_or_its_own_prefix(node: Node) -> None:
    """Each of two acts over one version of HTTP, at once. The name of a third is guessed: answers repeat guesses."""
    assert node.caller(node.boss)("POST", "/v1/access/keys").status_code == 201
    ids = [f"q{secrets.token_hex(8)}" for _ in range(3)]
    versions = ("1.1", "2")
    callers = [node.caller(node.tenant(tenant), version) for tenant, version in zip(ids, versions, strict=False)]
    third = node.caller(node.tenant(ids[2]))
    for topic in ("orders", "dead", "state"):
        assert third("PUT", f"/v1/topics/{topic}").status_code == 201

    def use_all(own: str, version: str, ask: Caller) -> None:
        use_topics(ask, ids[2])
        use_records(ask, ids[2])
        use_groups(ask, ids[2])
        use_subscriptions(ask, ids[2], node.hook, version)
        use_rest(ask, own, ids[2])

    with ThreadPoolExecutor(len(callers)) as threads:
        list(threads.map(use_all, ids, versions, callers))
    boss = node.caller(node.boss)
    boss("GET", "/v1/topics")
    assert len(boss.faults(*ids)) == 3, "the search finds what is there"
    assert callers[0].faults(ids[1], f"{ids[0]}.", f"{ids[0]}\\.") == []
    assert callers[1].faults(ids[0], f"{ids[1]}.", f"{ids[1]}\\.") == []
    for ask in callers:
        for path in ("/v1/topics/dead", "/v1/topics/orders"):
            assert ask("DELETE", path).status_code == 204
        missing = {one.operation_id for one in operations(load_contract())} - ask.asked
        assert missing == set(), "an operation that the story leaves out"


def test_a_signed_url_acts_in_the_tenant_of_its_signer(node: Node) -> None:
    """Tokens of two tenants have one name, and so have their topics."""
    boss, ids = node.caller(node.boss), [f"q{secrets.token_hex(8)}" for _ in range(2)]
    key = boss("POST", "/v1/access/keys").json()["id"]
    urls = []
    for tenant in ids:
        ask = node.caller(node.tenant(tenant))
        assert ask("PUT", "/v1/topics/orders", {"partitions": 1}).status_code == 201
        assert ask("POST", "/v1/topics/orders/records", {"records": [{"value": tenant}]}).status_code in (200, 201)
        signed = ask("POST", "/v1/access/signed-urls", {"url": "/v1/topics/orders/partitions/0/records?offset=0"})
        urls.append(signed.json()["url"])
        others = {"url": f"/v1/topics/{ids[0]}.orders/partitions/0/records?offset=0"}
        stolen = ask("POST", "/v1/access/signed-urls", others).json()["url"]
        assert httpx.get(str(ask.client.base_url.join(stolen))).status_code == 404, "a name in the own tenant"
    base = boss.client.base_url
    for tenant, url in zip(ids, urls, strict=True):
        answer = httpx.get(str(base.join(url)))
        assert (answer.json()["topic"], [one["value"] for one in answer.json()["records"]]) == ("orders", [tenant])
        moved = url.replace(f"sig_tenant={ids[0]}", f"sig_tenant={ids[1]}") if tenant == ids[0] else None
        for other in filter(None, (moved, url.replace(f"&sig_tenant={tenant}", ""))):
            assert other != url
            assert httpx.get(str(base.join(other))).status_code == 401
    boss("PUT", "/v1/topics/orders", {"partitions": 1})
    place = {"url": "/v1/topics/orders/partitions/0/records?offset=0"}
    inside = {"Penstock-Tenant": ids[0]}
    assert boss("POST", "/v1/access/signed-urls", place, inside).json()["code"] == "forbidden", "it would be outside"
    outside = base.join(boss("POST", "/v1/access/signed-urls", place).json()["url"])
    assert httpx.get(str(outside)).json()["records"] == []
    led_in = httpx.get(str(outside), headers=inside)
    assert (led_in.status_code, led_in.json()["code"]) == (400, "invalid_header"), "the tenant is not signed"
    assert boss("DELETE", "/v1/topics/orders").status_code == 204
    assert boss("DELETE", f"/v1/access/keys/{key}").status_code == 200


def test_an_operator_inside_of_a_tenant_reaches_nothing_outside_also_on_one_connection(node: Node) -> None:
    tenant = f"q{secrets.token_hex(8)}"
    token, boss = node.tenant(tenant), node.caller(node.boss)
    inside = {"Penstock-Tenant": tenant}
    boss("PUT", "/v1/topics/outer", {"partitions": 1})
    assert boss("PUT", f"/v1/topics/{tenant}.t").json()["rule"] == "names-of-tenants"
    assert boss("PUT", "/v1/topics/outer", {"partitions": 1}, inside).status_code == 201
    boss("POST", "/v1/topics/outer/records", {"records": [{"value": "out"}]})
    boss("POST", "/v1/topics/outer/records", {"records": [{"value": "in"}]}, inside)
    place = "/v1/topics/outer/partitions/0/records"
    for _ in range(3):  # equal heads but for the header and the token, on one connection
        for headers, value in ((inside, "in"), ({}, "out"), (bearer(token), "in")):
            answer = boss("GET", place, None, headers, offset=0).json()
            assert (answer["topic"], [one["value"] for one in answer["records"]]) == ("outer", [value])
    assert {row["topic"] for row in boss("GET", "/v1/topics", None, inside).json()["topics"]} == {"outer"}
    assert boss("GET", "/v1/topics/state", None, inside).status_code == 404
    assert boss("GET", f"/v1/topics/{tenant}.outer").json()["topic"] == f"{tenant}.outer"
    assert boss("GET", "/v1/topics", None, {"Penstock-Tenant": "none"}).json()["code"] == "invalid_header"
    assert boss("GET", "/metrics", None, inside).status_code == 403
    problem = boss("DELETE", f"/v1/tenants/{tenant}").json()
    assert (problem["code"], problem["topics"]) == ("tenant_not_empty", [f"{tenant}.outer"])
    assert boss("DELETE", "/v1/topics/outer", None, inside).status_code == 204
    assert node.caller(token)("GET", "/v1/topics").status_code == 200
    assert boss("DELETE", f"/v1/tenants/{tenant}").status_code == 200
    assert node.caller(token)("GET", "/v1/topics").status_code == 401, "its tokens go with it"


def test_a_tenant_learns_nothing_by_guessing(node: Node) -> None:
    """What exists outside gets the answer of what does not: status, document and headers but for ids and times."""
    ours, theirs = f"q{secrets.token_hex(8)}", f"q{secrets.token_hex(8)}"
    ask, other = node.caller(node.tenant(ours)), node.caller(node.tenant(theirs))
    rule = {"principals": ["*"], "operations": ["read"], "resource": "topic", "name": "secret", "id": "r"}
    assert other("PUT", "/v1/topics/secret").status_code == 201
    assert other("POST", "/v1/access/rules", rule).status_code == 201
    assert other("PUT", "/v1/groups/g", {"config": {}}).status_code == 201
    absent = "q" + "0" * 16

    def answer(method: str, path: str, body: Any = None) -> str:
        given = ask(method, path, body)
        text = re.sub(r'"request_id":"[^"]*"|"generation":[0-9]+', "", given.text)
        return f"{given.status_code} {text}"

    for method, path, body in (
        ("GET", "/v1/topics/{}.secret", None),
        ("GET", "/v1/topics/{}.secret/partitions/0/records?offset=0", None),
        ("DELETE", "/v1/topics/{}.secret", None),
        ("GET", "/v1/groups/{}.g", None),
        ("DELETE", "/v1/groups/{}.g", None),
        ("GET", "/v1/tenants/{}", None),
        ("DELETE", "/v1/tenants/{}", None),
        ("PUT", "/v1/tenants/{}", {}),
        ("POST", "/v1/groups/x/members/m/poll", {"topics": ["{}.secret"]}),
    ):
        answers = set()
        for name in (theirs, absent):
            text = None if body is None else orjson.dumps(body).replace(b"{}.", f"{name}.".encode())
            answers.add(answer(method, path.replace("{}", name), text).replace(name, ""))
        assert len(answers) == 1, answers
    assert ask("POST", "/v1/access/rules", rule).status_code == 201, "ids of rules are the tenant's own"
    assert ask("PUT", "/v1/topics/secret").status_code == 201, "no 409 of another tenant"


def test_a_tenant_gets_no_more_topics_and_partitions_than_its_ceiling(node: Node) -> None:
    tenant = f"q{secrets.token_hex(8)}"
    ask, boss = node.caller(node.tenant(tenant)), node.caller(node.boss)
    path = f"/v1/tenants/{tenant}"
    ceilings = boss("PATCH", path, {"limits": {"topics": 2, "partitions": 4}}).json()["limits"]
    assert {name: limit for name, limit in ceilings.items() if limit is not None} == {"topics": 2, "partitions": 4}
    assert ask("PUT", "/v1/topics/a", {"partitions": 3}).status_code == 201
    refused = ask("PUT", "/v1/topics/b", {"partitions": 2})
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["retryable"]) == (403, "quota_exhausted", False)
    assert (problem["quota"], problem["limit"], problem["used"]) == ("partitions", 4, 3)
    assert ask("PATCH", "/v1/topics/a", {"partitions": 5}).json()["code"] == "quota_exhausted"
    assert ask("POST", "/v1/topics/b/records", {"records": [{"value": 1}]}).status_code == 200, "made by the produce"
    assert ask("POST", "/v1/topics/c/records", {"records": [{"value": 1}]}).json()["quota"] == "topics"
    many = {"records": [{"topic": name, "value": 1} for name in ("b", "d")]}
    results = ask("POST", "/v1/records", many).json()["results"]
    assert [one.get("problem", {}).get("code") for one in results] == [None, "quota_exhausted"]
    assert boss("PUT", f"/v1/topics/{tenant}s", {"partitions": 1}).status_code == 201, (
        "the names of others have no ceiling"
    )
    described = boss("GET", path).json()
    assert (described["topics"], described["partitions"]) == (2, 4)
    assert boss("PATCH", path, {"limits": {"topics": None}}).json()["limits"] == ceilings | {"topics": None}
    for limits in ({"topics": -1}, {"topics": "many"}, {"records": 1}):
        assert boss("PATCH", path, {"limits": limits}).status_code == 400
    assert ask("PATCH", path, {"limits": {"partitions": None}}).status_code == 403, "it is the operator's to give"
    assert ask("GET", path).json()["limits"] == ceilings | {"topics": None}


def test_a_tenant_with_a_subscription_is_not_removed(node: Node) -> None:
    """It would go on, to the same receiver, for a later tenant of this id."""
    tenant = f"q{secrets.token_hex(8)}"
    ask, boss = node.caller(node.tenant(tenant)), node.caller(node.boss)
    assert ask("PUT", "/v1/topics/t", {"partitions": 1}).status_code == 201
    wish = {"url": f"{node.hook.url}/{tenant}", "topics": ["t"], "secrets": [SECRET]}
    assert ask("PUT", "/v1/subscriptions/s", wish).status_code == 201
    assert ask("DELETE", "/v1/topics/t").status_code == 204
    refused = boss("DELETE", f"/v1/tenants/{tenant}").json()
    assert (refused["code"], refused["subscriptions"]) == ("tenant_not_empty", ["s"])
    assert boss("DELETE", "/v1/subscriptions/s", None, {"Penstock-Tenant": tenant}).status_code == 204
    assert boss("DELETE", f"/v1/tenants/{tenant}").status_code == 200


def test_what_is_open_ends_when_its_tenant_goes(node: Node) -> None:
    tenant = f"q{secrets.token_hex(8)}"
    ask, boss = node.caller(node.tenant(tenant)), node.caller(node.boss)
    assert ask("PUT", "/v1/topics/t", {"partitions": 1}).status_code == 201
    answers: list[httpx.Response] = []
    poll = threading.Thread(
        target=lambda: answers.append(ask("GET", "/v1/topics/t/partitions/0/records", offset=0, wait_ms=25_000))
    )
    poll.start()
    with ask.streams.stream("GET", "/v1/topics/t/records", headers=EVENTS, timeout=25) as stream:
        pieces = stream.iter_raw()
        assert b"id:" in next(pieces)
        assert boss("DELETE", f"/v1/topics/{tenant}.t").status_code in (204, 404)
        assert boss("DELETE", f"/v1/tenants/{tenant}").status_code == 200
        rest = b"".join(pieces)
    poll.join(timeout=20)
    assert not poll.is_alive()
    assert answers[0].status_code in (401, 403, 404), answers[0].content
    assert b"event: problem" in rest
    ask._keep("GET", "/v1/topics/t/records", stream, rest)
    assert ask.faults(f"{tenant}.") == []


def test_ceilings_of_groups_members_subscriptions_and_stored_bytes(node):
    boss, tenant = node.caller(node.boss), f"t{secrets.token_hex(5)}"
    ask = node.caller(node.tenant(tenant))
    assert ask("PUT", "/v1/topics/a", {"partitions": 4}).status_code == 201

    def limit(**limits: int | None) -> None:
        assert boss("PATCH", f"/v1/tenants/{tenant}", {"limits": limits}).status_code == 200

    def poll(group: str, member: str) -> httpx.Response:
        return ask("POST", f"/v1/groups/{group}/members/{member}/poll", {"topics": ["a"], "wait_ms": 0})

    def wait_refused(send: Any, quota: str) -> dict[str, Any]:
        """Add things until the ceiling is met: another process knows it a moment later."""
        deadline = time.monotonic() + 30
        while (answer := send()).status_code != 403:
            assert answer.is_success, answer.content
            assert time.monotonic() < deadline
            time.sleep(0.05)
        problem = answer.json()
        assert (problem["code"], problem["quota"], problem["retryable"]) == ("quota_exhausted", quota, False)
        return problem

    assert poll("g0", "m0").status_code == 200
    limit(groups=1)
    assert poll("g0", "m0").status_code == 200, "a group that is there goes on"
    wait_refused(lambda: poll(f"g{secrets.token_hex(4)}", "m"), "groups")
    problem = wait_refused(lambda: ask("PUT", f"/v1/groups/g{secrets.token_hex(4)}", {"config": {}}), "groups")
    assert problem["limit"] == 1 <= problem["used"]
    limit(groups=None, members=1)
    wait_refused(lambda: poll("g0", f"m{secrets.token_hex(4)}"), "members")
    limit(members=None, subscriptions=0)
    push = {"topics": ["a"], "url": f"{node.hook.url}/x", "secrets": [SECRET]}
    wait_refused(lambda: ask("PUT", f"/v1/subscriptions/s{secrets.token_hex(4)}", push), "subscriptions")
    limit(subscriptions=None, stored_bytes=10_000)
    wait_refused(lambda: ask("POST", "/v1/topics/a/records", {"records": [{"value": "x" * 1000}]}), "stored_bytes")
    wait_refused(lambda: ask("POST", "/v1/records", {"records": [{"topic": "a", "value": 1}]}), "stored_bytes")
    shown = boss("GET", f"/v1/tenants/{tenant}").json()
    assert shown["stored_bytes"] >= 10_000
    assert shown["groups"] >= 1 <= shown["members"]
    assert shown["subscriptions"] == 0
    limit(stored_bytes=None)
    assert ask("POST", "/v1/topics/a/records", {"records": [{"value": 1}]}).status_code == 200
