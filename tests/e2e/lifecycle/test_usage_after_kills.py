"""Usage after kills: it has all that was answered, nothing twice, and no more than the log has."""

from __future__ import annotations

import base64
import http.client
import os
import random
import threading
import time
from collections import Counter
from typing import Any

import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.tokens import add_token, bearer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", "2"))
CLIENTS = 3
RECORDS = "/v1/topics/t/records"
FORMS = [
    pytest.param({}, id="one process"),
    pytest.param({"shards": 2}, id="two shards", marks=pytest.mark.long),
]


def ask(port: int, token: str, method: str, path: str, document: object = None, **headers: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = None if document is None else orjson.dumps(document)
    given = {"Content-Type": "application/json", **headers}
    connection.request(
        method, path, body, bearer(token) | {name.replace("_", "-"): text for name, text in given.items()}
    )
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status < 300, data
    return data


def make_tenant(port: int, boss: str) -> str:
    """Create the tenant acme with a topic, and return a token of it."""
    ask(port, boss, "PUT", "/v1/tenants/acme", {})
    made = ask(port, boss, "POST", "/v1/access/tokens", {"name": "shop"}, Penstock_Tenant="acme")
    for resource, operations in (("topic", ["read", "write", "create"]), ("tenant", ["describe"])):
        rule = {"principals": ["token:shop"], "operations": operations, "resource": resource, "pattern": "all"}
        ask(port, boss, "POST", "/v1/access/rules", rule, Penstock_Tenant="acme")
    token = str(orjson.loads(made)["token"])
    ask(port, token, "PUT", "/v1/topics/t", {"partitions": 4})
    return token


class Client(threading.Thread):
    """A client that sends one request after the other until its connection breaks. A kill takes at most one answer."""

    def __init__(self, port: int, token: str, seed: int) -> None:
        super().__init__()
        self.answered: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = bearer(token) | {"Content-Type": "application/octet-stream"}
        self._chance = random.Random(seed)

    def run(self) -> None:
        while not self.unknown:
            value = self._chance.randbytes(self._chance.randrange(1, 2000))
            is_produce = self._chance.random() < 0.8
            if is_produce:
                noted = Counter(produce_requests=1, produce_bytes_in=len(value), records=1)
            else:
                noted = Counter(read_requests=1)
            try:
                if is_produce:
                    self._connection.request("POST", RECORDS, value, self._headers)
                else:
                    path = f"/v1/topics/t/partitions/{self._chance.randrange(4)}/records?from=earliest&max_records=3"
                    self._connection.request("GET", path, None, self._headers)
                answer = self._connection.getresponse()
                size = len(answer.read())
            except (OSError, http.client.HTTPException):
                self.unknown = noted
            else:
                assert answer.status == 200
                self.answered.update(noted)
                self.answered["produce_bytes_out" if is_produce else "read_bytes_out"] += size


def recount(port: int, token: str) -> Counter[str]:
    """Return the records and the bytes of values that the log has."""
    found: Counter[str] = Counter()
    for partition in range(4):
        offset = 0
        while True:
            path = f"/v1/topics/t/partitions/{partition}/records?offset={offset}"
            records = orjson.loads(ask(port, token, "GET", path))["records"]
            if not records:
                break
            for record in records:
                found["records"] += 1
                found["produce_bytes_in"] += len(base64.b64decode(record["value_base64"]))
            offset = records[-1]["offset"] + 1
    return found


@pytest.mark.parametrize("form", FORMS)
def test_usage_after_kills_is_what_clients_have_noted_and_what_the_log_has(tmp_path, form):
    every: dict[str, Any] = {"read": [""], "write": [""], "admin": [""]}
    settings = {"tokens_file": tmp_path / "tokens.toml", "superusers": "token:boss", **form}
    boss, token, chance = add_token(tmp_path / "tokens.toml", "boss", **every), "", random.Random(7)
    answered: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for number in range(KILLS):
        with running_process(tmp_path, **settings) as node:
            token = token or make_tenant(node.port, boss)
            clients = [Client(node.port, token, number * CLIENTS + one) for one in range(CLIENTS)]
            for client in clients:
                client.start()
            time.sleep(chance.uniform(0.05, 0.6))
            node.kill_all()
            for client in clients:
                client.join()
                answered += client.answered
                unknown += client.unknown
    with running_process(tmp_path, **settings) as node:
        usage = orjson.loads(ask(node.port, boss, "GET", "/v1/tenants/acme/usage"))
        in_log = recount(node.port, token)
    used = usage["total"]
    assert answered["produce_requests"] > KILLS, "the clients were at work"
    for meter in ("produce_requests", "read_requests", "produce_bytes_in", "records"):
        assert answered[meter] <= used[meter] <= answered[meter] + unknown[meter], (meter, answered, unknown)
    for meter in ("produce_bytes_out", "read_bytes_out"):
        assert answered[meter] <= used[meter], meter
    for meter in in_log:
        assert used[meter] <= in_log[meter] <= answered[meter] + unknown[meter], (meter, used, in_log)
    assert used["failed_requests"] == used["refused_requests"] == 0
    assert usage["complete"]
