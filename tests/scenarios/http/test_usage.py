"""The usage of tenants over HTTP: it equals what the clients themselves have noted, and each sees its own."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.tokens import add_token, bearer

RULES = {"topic": ["read", "write", "create", "delete"], "group": ["read"], "tenant": ["describe"]}
VALUE = b"a value of a record"


class Client:
    """A client of a tenant that notes what it sends and receives, as the meters define it."""

    def __init__(self, port: int, token: str, version: str = "1.1") -> None:
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            http1=version == "1.1",
            http2=version == "2",
            headers=bearer(token) | {"Accept-Encoding": "identity"},
            timeout=30,
        )
        self.noted: Counter[str] = Counter()

    def __call__(
        self, kind: str, method: str, path: str, body: bytes = b"", records: int = 0, **headers: str
    ) -> httpx.Response:
        answer = self.http.request(
            method, path, content=body, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        self.note(kind, answer, len(body), len(answer.content), records)
        return answer

    def note(self, kind: str, answer: httpx.Response, bytes_in: int, bytes_out: int, records: int = 0) -> None:
        kind = kind if answer.status_code < 400 else "refused" if answer.status_code == 429 else "failed"
        self.noted[f"{kind}_requests"] += 1
        if kind != "failed":
            self.noted[f"{kind}_bytes_in"] += bytes_in
            self.noted[f"{kind}_bytes_out"] += bytes_out
            self.noted["records"] += records if answer.is_success else 0

    def usage(self, tenant: str, **query: object) -> dict:
        """Ask for the usage, and note that afterwards: it counts once it is answered."""
        answer = self.http.get(f"/v1/tenants/{tenant}/usage", params=query)
        assert answer.status_code == 200, answer.content
        self.note("other", answer, 0, len(answer.content))
        return answer.json()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, str]:
    directory = tmp_path_factory.mktemp("usage")
    every = {"read": [""], "write": [""], "admin": [""], "group": [""]}
    return directory, add_token(directory / "tokens.toml", "boss", **every, metrics=True)


@pytest.fixture(scope="module")
def port(files) -> Iterator[int]:
    settings = {"tokens_file": files[0] / "tokens.toml", "superusers": "token:boss", "shards": 2}
    with running_process(files[0], **settings) as process:
        yield process.port


@pytest.fixture
def boss(port, files) -> Client:
    return Client(port, files[1])


def make_tenant(boss: Client, rules: dict[str, list[str]] = RULES) -> tuple[str, str]:
    tenant = f"t{secrets.token_hex(5)}"
    assert boss("other", "PUT", f"/v1/tenants/{tenant}").status_code == 201
    inside = {"Penstock_Tenant": tenant, "Content_Type": "application/json"}
    made = boss("other", "POST", "/v1/access/tokens", b'{"name":"all"}', **inside)
    for resource, operations in rules.items():
        rule = {"principals": ["token:all"], "operations": operations, "resource": resource, "pattern": "all"}
        assert boss("other", "POST", "/v1/access/rules", orjson.dumps(rule), **inside).status_code == 201
    return tenant, made.json()["token"]


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_the_usage_is_what_the_client_has_noted(port, boss, version):
    tenant, token = make_tenant(boss)
    before = boss.usage(tenant)["total"]  # the requests of the operator inside of the tenant
    client = Client(port, token, version)
    json, records = {"Content_Type": "application/json"}, "/v1/topics/t/records"
    assert client("other", "PUT", "/v1/topics/t", b'{"partitions":2}', **json).is_success
    for number in range(20):
        acks = ("0", "1", "all")[number % 3]
        assert client(
            "produce", "POST", f"/v1/topics/t/partitions/{number % 2}/records?acks={acks}", VALUE, 1
        ).is_success
    lines = b"".join(b'{"topic":"t","key":"%d","value":%d}\n' % (number, number) for number in range(30))
    assert client("produce", "POST", "/v1/records", lines, 30, Content_Type="application/x-ndjson").is_success
    assert client("produce", "POST", f"{records}?key=k", b"x" * 300_000, 1).is_success
    for is_repeat in (False, True):
        answer = client.http.post(records, content=VALUE, headers={"Idempotency-Key": '"one"'})
        assert ("Penstock-Duplicate" in answer.headers) == is_repeat
        client.note("produce", answer, 0 if is_repeat else len(VALUE), len(answer.content), int(not is_repeat))
    assert client("produce", "POST", records, b'{"records": 1', **json).status_code == 400
    assert client("read", "GET", "/v1/topics/none/partitions/0/records?from=earliest").status_code == 404
    for path in ("/v1/topics/t/partitions/0/records?from=earliest", "/v1/topics/t/partitions/1/records?from=latest"):
        assert client("read", "GET", path).is_success
        assert client("read", "HEAD", path).is_success
    noted = client.noted.copy()
    usage = client.usage(tenant)
    assert usage["complete"]
    used = {meter: value - before[meter] for meter, value in usage["total"].items()}
    assert used == {meter: noted[meter] for meter in used}


def test_an_event_stream_counts_while_it_is_written(port, boss):
    tenant, token = make_tenant(boss)
    client = Client(port, token)
    assert client("other", "PUT", "/v1/topics/t", b"{}", Content_Type="application/json").is_success
    assert client("produce", "POST", "/v1/topics/t/records", VALUE, 1).is_success
    path, events = "/v1/topics/t/partitions/0/records?from=earliest", {"Accept": "text/event-stream"}
    with client.http.stream("GET", path, headers=events) as answer:
        received = next(answer.iter_raw())
        total = Client(port, token).usage(tenant)["total"]
        assert total["read_requests"] == 1
        assert total["read_bytes_out"] >= len(received)


def test_a_refused_request_counts_apart(port, boss):
    tenant, token = make_tenant(boss)
    json = {"Content_Type": "application/json"}
    client = Client(port, token)
    assert client("other", "PUT", "/v1/topics/t", b"{}", **json).is_success
    assert boss("other", "PUT", f"/v1/access/quotas/tenant/{tenant}", b'{"bytes_in": 1}', **json).is_success
    client.noted.clear()
    before = boss.usage(tenant)["total"]
    statuses = [client("produce", "POST", "/v1/topics/t/records", VALUE, 1).status_code for _ in range(3)]
    assert statuses[-1] == 429, "the first debt lasts for seconds"
    total = boss.usage(tenant)["total"]
    for meter in ("refused_requests", "refused_bytes_out", "produce_requests", "records", "failed_requests"):
        assert total[meter] - before[meter] == client.noted[meter], meter


def test_a_tenant_sees_its_own_usage_alone(port, boss):
    tenant, token = make_tenant(boss)
    other, its_token = make_tenant(boss)
    client = Client(port, token)
    own = client.usage(tenant)
    assert own["hours"][0]["id"].endswith(f"/{tenant}/{own['hours'][0]['hour_ms'] // 3_600_000}")
    assert not own.keys() & {"missing_nodes", "unreadable_files"}
    for name in (other, "none"):
        assert client("other", "GET", f"/v1/tenants/{name}/usage").status_code == 403
    _, poor = make_tenant(boss, {"topic": ["read"]})
    assert Client(port, poor)("other", "GET", f"/v1/tenants/{tenant}/usage").status_code == 403
    assert boss("other", "GET", "/v1/tenants/none/usage").status_code == 404
    assert Client(port, its_token).usage(other)["total"]["other_requests"] == 4, "the operator has made four inside"


def test_a_later_tenant_with_the_same_id_does_not_see_the_hours_before_it(port, boss):
    tenant, token = make_tenant(boss)
    Client(port, token).usage(tenant)
    hour_ms = boss.usage(tenant)["hours"][0]["hour_ms"]
    assert Client(port, token).usage(tenant, **{"from": hour_ms - 7_200_000})["from_ms"] == hour_ms
    assert boss.usage(tenant, **{"from": hour_ms - 7_200_000})["from_ms"] == hour_ms - 7_200_000
    assert boss("other", "DELETE", f"/v1/tenants/{tenant}").is_success
    assert boss.usage(tenant)["total"]["other_requests"] > 0, "the operator can still write the bill"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("from=yesterday", "invalid_query"),
        ("to=2025-01-01", "invalid_query"),
        ("from=-1", "invalid_query"),
        ("from=2025-01-02T00:00:00Z&to=2025-01-01T00:00:00Z", "invalid_query"),
        ("from=0&to=2025-01-01T00:00:00Z", "invalid_query"),
        ("to=0", "invalid_query"),
        ("hour=3", "unknown_query"),
        ("from=9007199254740990&to=9007199254740991", None),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(port, boss, query, code):
    tenant, _ = make_tenant(boss)
    answer = boss("other", "GET", f"/v1/tenants/{tenant}/usage?{query}")
    assert (answer.status_code, answer.json().get("code")) == (400 if code else 200, code), answer.content
