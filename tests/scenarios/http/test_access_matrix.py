"""Every operation of the contract asked by every kind of caller, over HTTP/1.1 and HTTP/2.

What is expected follows from `x-penstock-access` alone. A query that no route knows comes with each request, so that a
request that may go on is refused for that, and changes nothing. Callers take turns on one connection.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson
import pytest

from gateway.access.access import IN_TENANTS
from openapi import load_contract, operations
from openapi.contract import Operation
from tests.e2e.node_process import running_process
from tests.scenarios.gateways import JSON, over_http2
from tests.tokens import add_token, bearer

OURS, OTHERS = "x.one", "other."
NAMES = {"topic": OURS, "group": OURS, "subscription": OURS, "tenant": OURS, "partition": "0", "node_id": "1"}
OPERATIONS = [*operations(load_contract())]
RIGHTS = {
    "topic": ["describe", "read", "write", "create", "alter", "delete"],
    "group": ["describe", "read", "alter", "delete"],
    "subscription": ["describe", "create", "alter", "delete"],
    "tenant": ["describe", "access"],
    "cluster": ["describe", "operate", "metrics", "access"],
}
TENANT = "t"
Access = Mapping[str, str]


class Kind(NamedTuple):
    """A kind of caller: the status that an operation refuses it with, and the rule that does; None: it may go on."""

    refused: Callable[[Access], int | None]
    rule: str | None = None


def never(access: Access) -> int:
    return 401


def always(access: Access) -> None:
    return None


def of_the_file(access: Access) -> int | None:
    is_of_tenant = access["resource"] == "tenant" and access["where"] == "path"
    return 403 if access["operation"] == "access" or is_of_tenant else None


def of_the_file_for_others(access: Access) -> int | None:
    """Handlers ask for the right to read the topics of a subscription; every token of the file sees the cluster."""
    if access["resource"] == "subscription" or access["where"] in ("list", "any"):
        return None
    return None if (access["resource"], access["operation"]) == ("cluster", "describe") else 403


def for_others(access: Access) -> int | None:
    return None if access["where"] in ("list", "any") else 403


def of_a_tenant(access: Access) -> int | None:
    """It has all rights in its tenant, where our names are others' names, and none to the cluster or another tenant."""
    if access["operationId"] in IN_TENANTS or access["operationId"] == "describe_cluster" or access["where"] == "list":
        return None
    is_of_another = access["resource"] == "tenant" and access["where"] == "path"
    return 403 if access["resource"] == "cluster" or is_of_another else None


KINDS = {
    "anonymous": Kind(never),
    "unknown": Kind(never),
    "expired": Kind(never),
    "revoked": Kind(never),
    "superuser": Kind(always),
    "file": Kind(of_the_file),
    "file for others": Kind(of_the_file_for_others),
    "store": Kind(always),
    "store for others": Kind(for_others),
    "without rules": Kind(lambda access: None if access["where"] == "list" else 403),
    "denied": Kind(for_others, rule="deny"),
    "other tenant": Kind(of_a_tenant),
}


class Node(NamedTuple):
    port: int
    tokens: Mapping[str, str | None]


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("matrix")
    path = directory / "tokens.toml"
    every = {"read": [""], "write": [""], "admin": [""], "group": [""]}
    of_others = {"read": [OTHERS], "write": [OTHERS], "admin": [OTHERS], "group": [OTHERS]}
    tokens: dict[str, str | None] = {
        "superuser": add_token(path, "boss"),
        "file": add_token(path, "every", **every, metrics=True),
        "file for others": add_token(path, "others", **of_others),
        "anonymous": None,
    }
    settings = {"tokens_file": path, "superusers": "token:boss", "bad_attempts_burst": 1_000_000}
    with running_process(directory, **settings) as process:
        connection = http.client.HTTPConnection("127.0.0.1", process.port)

        def send(method: str, path: str, document: object = None, kind: str = "") -> Any:
            headers = bearer(str(tokens["superuser"])) | {"Content-Type": JSON}
            if kind == "other tenant":
                headers["Penstock-Tenant"] = TENANT
            connection.request(method, path, orjson.dumps(document), headers)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status in (200, 201), body
            return orjson.loads(body)

        def make(kind: str, **fields: object) -> None:
            document = {"name": kind.replace(" ", "-"), **fields}
            answer = send("POST", "/v1/access/tokens", document, kind)
            tokens[kind] = answer["token"]

        def add(kind: str, resource: str, rule_id: str, **fields: object) -> None:
            principals = [f"token:{kind.replace(' ', '-')}"]
            rule = {"principals": principals, "operations": RIGHTS[resource], "resource": resource, "pattern": "all"}
            send("POST", "/v1/access/rules", rule | {"id": rule_id} | fields, kind)

        send("PUT", f"/v1/topics/{OURS}", {"partitions": 1})
        send("PUT", f"/v1/tenants/{TENANT}", {})
        for kind in ("store", "store for others", "without rules", "denied", "revoked", "expired", "other tenant"):
            make(kind, **({"life_ms": 1} if kind == "expired" else {}))
        for resource in RIGHTS:
            for kind in ("store", "denied", "revoked", "expired"):
                add(kind, resource, f"{kind}-{resource}")
            if resource != "cluster":
                add("other tenant", resource, f"tenant-{resource}")
                of_name = {"pattern": "prefix", "name": OTHERS}
                add("store for others", resource, f"others-{resource}", **of_name)
            which = {} if resource == "cluster" else {"pattern": "literal", "name": OURS}
            add("denied", resource, f"deny-{resource}", effect="deny", **which)
        send("DELETE", "/v1/access/tokens/revoked")
        tokens["unknown"] = str(tokens["store"])[:-1] + ("A" if str(tokens["store"])[-1] != "A" else "B")
        time.sleep(0.01)  # the token of one millisecond has ended
        yield Node(process.port, tokens)


def request_of(operation: Operation) -> tuple[str, bytes]:
    """Return target and body of a request to an operation, with our names."""
    path = operation.path
    for part in operation.path.split("/"):
        if part.startswith("{"):
            path = path.replace(part, NAMES.get(part[1:-1], "unknown"))
    access = operation.spec["x-penstock-access"]
    if access["where"] != "body":
        return f"{path}?matrix=1", b""
    if access["operation"] == "read":
        return path, orjson.dumps({"partitions": [{"topic": OURS, "partition": 0, "offset": 0}]})
    return path, orjson.dumps({"records": [{"topic": OURS, "value": 1}]})


def fault_of(operation: Operation, kind: str, status: int, headers: Mapping[str, str], body: bytes) -> str | None:
    """Return how an answer differs from what the contract says; None: it does not."""
    access = operation.spec["x-penstock-access"] | {"operationId": operation.operation_id}
    expected = None if access["where"] == "open" else KINDS[kind].refused(access)
    if expected is None:
        return f"refused with {status}" if status in (401, 403) or status >= 500 else None
    if status != expected:
        return f"{status} in place of {expected}"
    problem = orjson.loads(body)
    if expected == 401:
        is_whole = problem["code"] == "unauthorized" and headers["www-authenticate"].startswith("Bearer")
        return None if is_whole else f"an incomplete 401: {problem}"
    rule = KINDS[kind].rule and f"{KINDS[kind].rule}-{access['resource']}"
    named = (problem["code"], problem["operation"], problem["resource"], problem.get("rule"))
    wanted = ("forbidden", access["operation"], access["resource"], rule)
    return None if named == wanted else f"{named} in place of {wanted}"


def test_every_operation_says_what_it_needs() -> None:
    for operation in OPERATIONS:
        access = operation.spec["x-penstock-access"]
        assert access == {"where": "open"} or access["operation"] in RIGHTS[access["resource"]], operation.path
    assert len(OPERATIONS) * len(KINDS) > 700


def test_every_operation_refuses_each_kind_of_caller_over_http1(node: Node) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
    faults = []
    for operation in OPERATIONS:
        target, body = request_of(operation)
        for kind in KINDS:
            token = node.tokens[kind]
            headers = {} if token is None else bearer(token)
            connection.request(
                operation.method, target, body or None, headers | ({"Content-Type": JSON} if body else {})
            )
            answer = connection.getresponse()
            given = {name.lower(): value for name, value in answer.getheaders()}
            fault = fault_of(operation, kind, answer.status, given, answer.read())
            if fault is not None:
                faults.append(f"{operation.method} {operation.path}, {kind}: {fault}")
    assert faults == []


async def test_every_operation_refuses_each_kind_of_caller_over_http2(node: Node) -> None:
    faults = []
    async with over_http2(node.port) as gateway:
        for operation in OPERATIONS:
            target, body = request_of(operation)
            path, _, query = target.partition("?")
            for kind in KINDS:
                token = node.tokens[kind]
                headers = ({} if token is None else bearer(token)) | ({"Content-Type": JSON} if body else {})
                options = {"matrix": 1} if query else {}
                answer = await gateway.send(operation.method, path, body, headers, **options)
                given = {name.lower(): value for name, value in answer.headers.items()}
                fault = fault_of(operation, kind, answer.status, given, answer.body)
                if fault is not None:
                    faults.append(f"{operation.method} {operation.path}, {kind}: {fault}")
    assert faults == []
