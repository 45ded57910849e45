"""Quotas over HTTP at a node of one process: what is delayed, what is refused, and what never is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import JSON, Answer, over_http2
from tests.scenarios.raw_http1 import exchange, request_head
from tests.tokens import add_token, bearer

RECORDS = "/v1/topics/t/records"
ONE = orjson.dumps({"records": [{"value": 1}]})
FETCH = "/v1/topics/t/partitions/0/records"


class Client:
    """One connection of one token."""

    def __init__(self, gateway, token: str) -> None:
        self._gateway = gateway
        self._token = token

    async def send(self, method: str, path: str, body: object = b"", headers=None, **query: object) -> Answer:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        given = {"Content-Type": JSON, **bearer(self._token), **(headers or {})}
        return await self._gateway.send(method, path, data, given, **query)

    async def produce(self, body: bytes = ONE, **headers: str) -> Answer:
        return await self.send("POST", RECORDS, body, {name.replace("_", "-"): text for name, text in headers.items()})


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    directory = tmp_path_factory.mktemp("quotas")
    path = directory / "tokens.toml"
    tokens = {"boss": add_token(path, "boss", admin=[""])}
    tokens |= {name: add_token(path, name, read=[""], write=[""], group=[""]) for name in ("shop", "other")}
    return directory, tokens


@pytest.fixture(scope="module")
def port(files) -> Iterator[int]:
    directory, _ = files
    settings = {"tokens_file": directory / "tokens.toml", "superusers": "token:boss", "long_poll_partitions_max": 100}
    with running_process(directory, **settings) as process:
        yield process.port


@pytest.fixture
async def boss(port, files):
    async with over_http2(port) as gateway:
        boss = Client(gateway, files[1]["boss"])
        await boss.send("PUT", "/v1/topics/t", {"partitions": 1})
        yield boss
        for quota in (await boss.send("GET", "/v1/access/quotas")).json["quotas"]:
            await boss.send("DELETE", f"/v1/access/quotas/{quota['owner']}/{quota['name']}")


@pytest.fixture
def client(port, files):
    @asynccontextmanager
    async def connect(name: str = "shop"):
        async with over_http2(port) as gateway:
            yield Client(gateway, files[1][name])

    return connect


async def limit(boss: Client, owner: str, name: str, **limits: object) -> None:
    answer = await boss.send("PUT", f"/v1/access/quotas/{owner}/{name}", limits)
    assert answer.status == 200, answer.json


async def test_a_request_over_its_quota_is_delayed_and_says_so(boss, client):
    await limit(boss, "principal", "token:shop", requests=10)
    async with client() as shop, client("other") as other:
        answers = await asyncio.gather(*(shop.produce() for _ in range(16)))  # in one write: no machine is too slow
        assert [answer.status for answer in answers] == [200] * 16
        throttled = [answer.headers for answer in answers if "Penstock-Throttle-Ms" in answer.headers]
        assert 0 < len(throttled) <= 6
        assert all(0 < int(headers["Penstock-Throttle-Ms"]) <= 610 for headers in throttled)
        assert {headers["RateLimit-Policy"] for headers in throttled} == {'"requests";q=10;w=1'}
        assert {headers["RateLimit"] for headers in throttled} == {'"requests";r=0;t=1'}
        assert "RateLimit" not in answers[0].headers, "a request below its limits pays nothing"
        assert "Penstock-Throttle-Ms" not in (await other.produce()).headers


async def test_a_request_whose_right_ends_while_it_is_delayed_changes_nothing(boss, client):
    made = await boss.send("POST", "/v1/access/tokens", {"name": "late"})
    rule = {"id": "late", "principals": ["token:late"], "operations": ["write"], "resource": "topic", "name": "t"}
    assert (await boss.send("POST", "/v1/access/rules", rule)).status == 201
    await limit(boss, "principal", "token:late", requests=1.2, burst_s=1, per="node")
    late = {**bearer(made.json["token"]), "Content-Type": JSON}
    before = (await boss.send("GET", FETCH, offset=0)).json
    async with client() as other:
        for _ in range(2):
            assert (await other.send("POST", RECORDS, ONE, late)).status == 200
        waiting = asyncio.create_task(other.send("POST", RECORDS, ONE, late))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert (await boss.send("DELETE", "/v1/access/tokens/late")).status == 200
        assert (await waiting).status == 401
    after = (await boss.send("GET", FETCH, offset=0)).json
    assert after["next_offset"] == before["next_offset"] + 2
    assert (await boss.send("DELETE", "/v1/access/rules/late")).status == 200


async def test_beyond_the_delay_it_is_refused_with_the_time_to_wait(boss, client):
    await limit(boss, "principal", "token:shop", requests=4)
    async with client() as shop:
        began = time.monotonic()
        answers = await asyncio.gather(*(shop.produce() for _ in range(30)))
        refused = [answer for answer in answers if answer.status == 429]
        assert 18 - 4 * (time.monotonic() - began) <= len(refused) <= 22, "what the seconds give back is taken"
        problem = assert_problem(
            refused[0], "quota_exceeded", quota="requests", owner="principal:token:shop", limit=4, retryable=True
        )
        assert problem["no_side_effects"] is True
        assert problem["violated-policies"] == ["requests"]
        wait_s = int(refused[0].headers["Retry-After"])
        assert wait_s in (1, 2)
        await asyncio.sleep(wait_s)
        assert (await shop.produce()).status == 200, "what Retry-After says is true"


async def test_a_body_debits_its_bytes_and_an_answer_those_that_it_has(boss, client):
    body = orjson.dumps({"records": [{"value": "x" * 50_000}]})
    await limit(boss, "principal", "token:shop", bytes_in=20_000)
    async with client() as shop:
        assert (await shop.produce(body)).status == 200
        assert_problem(await shop.produce(), "quota_exceeded", quota="bytes_in")
        await limit(boss, "principal", "token:shop", bytes_out=20_000)
        first = await shop.send("GET", FETCH, offset=0, max_bytes=1_000_000)
        assert len(first.body) > 50_000
        assert_problem(await shop.send("GET", FETCH, offset=0), "quota_exceeded", quota="bytes_out")


async def test_a_fetch_in_debt_waits_inside_its_wait(boss, client):
    await limit(boss, "principal", "token:shop", requests=0.5)
    async with client() as shop:
        end = (await shop.send("GET", FETCH, **{"from": "latest"})).headers["Penstock-Next-Offset"]
        began = time.monotonic()
        waited = await shop.send("GET", FETCH, offset=end, wait_ms=2500)
        assert waited.status == 200
        assert 2.2 < time.monotonic() - began < 3.2
        assert int(waited.headers["Penstock-Throttle-Ms"]) > 900


async def test_a_refused_request_stores_no_key_and_a_repeated_answer_costs_no_bytes(boss, client):
    body = orjson.dumps({"records": [{"value": "y" * 3000}]})
    await limit(boss, "principal", "token:shop", bytes_in=1000)
    async with client() as shop:
        assert (await shop.produce(body, Idempotency_Key="k1")).status == 200
        assert_problem(await shop.produce(body, Idempotency_Key="k2"), "quota_exceeded")
        await limit(boss, "principal", "token:shop", bytes_in=1_000_000)
        assert "Penstock-Duplicate" not in (await shop.produce(body, Idempotency_Key="k2")).headers
        await limit(boss, "principal", "token:shop", bytes_in=10_000)
        for _ in range(20):
            assert (await shop.produce(body, Idempotency_Key="k2")).headers["Penstock-Duplicate"] == "true"


async def test_heartbeats_and_commits_go_on_and_the_operator_can_raise_the_quota(boss, client):
    await limit(boss, "principal", "*", requests=1)
    async with client() as shop:
        assert 429 in [one.status for one in await asyncio.gather(*(shop.produce() for _ in range(5)))]
        member = {"member": "m", "member_epoch": 1}
        for _ in range(5):
            assert (await shop.send("POST", "/v1/groups/g/heartbeat", member)).status != 429
        for _ in range(20):
            assert (await boss.send("GET", "/v1/access/quotas")).status == 200
            assert (await shop.send("GET", "/healthz")).status == 200
        await limit(boss, "principal", "*", requests=1000)
        assert (await shop.produce()).status == 200


async def test_a_client_id_divides_the_quota_of_its_principal(boss, client):
    await limit(boss, "client", "token:shop+batch", requests=1)
    await limit(boss, "principal", "token:shop", requests=20)
    async with client() as shop:
        batch = await asyncio.gather(*(shop.produce(Penstock_Client_Id="batch") for _ in range(10)))
        assert_problem(max(batch, key=lambda one: one.status), "quota_exceeded", owner="client:token:shop+batch")
        assert (await shop.produce(Penstock_Client_Id="web")).status == 200
        many = await asyncio.gather(*(shop.produce(Penstock_Client_Id=f"id-{n}") for n in range(60)))
        refused = [one for one in many if one.status == 429]
        assert refused, "another id for each request changes nothing"
        assert refused[0].json["owner"] == "principal:token:shop"


async def test_a_topic_prefix_is_limited_for_all_callers_together(boss, client):
    await limit(boss, "topic", "t", requests=4)
    async with client() as shop, client("other") as other:
        answers = await asyncio.gather(*(one.produce() for one in (shop, other) for _ in range(10)))
        assert sum(answer.status == 200 for answer in answers) in (9, 10)
        assert_problem(max(answers, key=lambda one: one.status), "quota_exceeded", owner="topic:t")


async def test_a_produce_to_many_topics_is_refused_whole_for_one_of_them(boss, client):
    await limit(boss, "topic", "t", bytes_in=1000)
    await boss.send("PUT", "/v1/topics/free", {"partitions": 1})
    body = {"records": [{"topic": "t", "value": "x" * 9000}, {"topic": "free", "value": 1}]}
    async with client() as shop:
        assert (await shop.send("POST", "/v1/records", body)).status == 200
        end = (await shop.send("GET", "/v1/topics/free/partitions/0/offsets")).json
        assert_problem(await shop.send("POST", "/v1/records", body), "quota_exceeded", owner="topic:t")
        assert_problem(await shop.produce(), "quota_exceeded", owner="topic:t")
        assert (await shop.send("GET", "/v1/topics/free/partitions/0/offsets")).json == end, "nothing was stored"
        only_free = {"records": [{"topic": "free", "value": 1}]}
        assert (await shop.send("POST", "/v1/records", only_free)).status == 200


READS = {
    "fetch": ("/v1/fetch", {"partitions": [{"topic": name, "partition": 0, "offset": 0} for name in ("read.a", "b")]}),
    "poll": ("/v1/groups/g/members/m/poll", {"topics": ["read.a"]}),
    "acquire": ("/v1/groups/s/acquire", {"topics": ["read.a"], "max_records": 1}),
}


@pytest.mark.parametrize("read", READS)
async def test_a_read_whose_body_names_topics_debits_each_by_its_records(boss, client, read):
    path, body = READS[read]
    async with client() as shop:
        for topic in ("read.a", "b"):
            await boss.send("PUT", f"/v1/topics/{topic}", {"partitions": 1})
            values = {"records": [{"value": "x" * 1000}] * 20}
            assert (await shop.send("POST", f"/v1/topics/{topic}/records", values)).status == 200
        await shop.send("PUT", "/v1/groups/s", {"type": "share", "start": "earliest"})
        await limit(boss, "topic", "read.", bytes_out=10)
        first = await shop.send("POST", path, body)
        assert (first.status, b"xxx" in first.body) == (200, True), first.body
        second = await shop.send("POST", path, body)
        if read == "poll":  # it has made its commit, so that it is not refused
            assert (second.status, second.json["partitions"]) == (200, [])
        else:
            assert_problem(second, "quota_exceeded", owner="topic:read.", quota="bytes_out")
        other = {"partitions": [{"topic": "b", "partition": 0, "offset": 0}]}
        assert (await shop.send("POST", "/v1/fetch", other)).status == 200, "it has no debt"


async def test_the_time_of_the_loop_is_a_quota(boss, client):
    await limit(boss, "principal", "token:shop", loop_ms=0.1)
    body = orjson.dumps({"records": [{"value": {"n": n}} for n in range(20_000)]})
    async with client() as shop:
        assert (await shop.produce(body)).status == 200
        assert_problem(await shop.produce(body), "quota_exceeded", quota="loop_ms")


async def test_long_polls_and_connections_are_counted_while_they_are_open(boss, client, port):
    await limit(boss, "principal", "token:shop", long_polls=2)
    async with client() as shop:
        end = (await shop.send("GET", FETCH, **{"from": "latest"})).headers["Penstock-Next-Offset"]
        polls = [asyncio.create_task(shop.send("GET", FETCH, offset=end, wait_ms=2000)) for _ in range(2)]
        await asyncio.sleep(0.3)
        assert_problem(await shop.send("GET", FETCH, offset=end, wait_ms=2000), "quota_exceeded", quota="long_polls")
        assert (await shop.send("GET", FETCH, offset=0)).status == 200, "an answer that is there waits for nothing"
        assert (await shop.produce()).status == 200
        assert [one.status for one in await asyncio.gather(*polls)] == [200, 200]
    await limit(boss, "principal", "token:shop", connections=1)
    async with client() as one:
        assert (await one.produce()).status == 200
        async with client() as two:
            assert_problem(await two.produce(), "quota_exceeded", quota="connections", limit=1, used=1)
        assert (await one.produce()).status == 200
    await asyncio.sleep(0.2)
    async with client() as three:
        assert (await three.produce()).status == 200


async def test_an_event_stream_has_the_rate_of_its_owner(boss, client, port, files):
    async with client("other") as other:
        first = (await other.produce(orjson.dumps({"records": [{"value": "s" * 4000}] * 20}))).json["results"][0]
    await limit(boss, "principal", "token:shop", bytes_out=20_000)
    began = time.monotonic()
    async with event_source(port, f"{FETCH}?offset={first['base_offset']}", bearer(files[1]["shop"])) as stream:
        for _ in range(20):
            assert await stream.next() is not None
    assert 1.5 < time.monotonic() - began < 8, "80 kB at 20 kB a second; the last event may be in debt"


def raw_head(token: str, *headers: str, media_type: str = JSON) -> bytes:
    return request_head("POST", RECORDS, f"Authorization: Bearer {token}", f"Content-Type: {media_type}", *headers)


async def test_a_body_over_the_quota_is_not_read(boss, client, port, files):
    """The client announces 5 MB and waits for 100 Continue, which does not come."""
    await limit(boss, "principal", "token:shop", bytes_in=1000)
    async with client() as shop:
        await shop.produce(orjson.dumps({"records": [{"value": "z" * 9000}]}))
    head = raw_head(files[1]["shop"], "Content-Length: 5000000", "Expect: 100-continue")
    answer = await asyncio.to_thread(exchange, port, head)
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b'"quota_exceeded"' in answer


async def test_announced_bytes_that_are_not_sent_come_back(boss, client, port, files):
    await limit(boss, "principal", "token:shop", bytes_in=1000)
    length = ("Content-Length: 7000000", "Expect: 100-continue")
    head = raw_head(files[1]["shop"], *length).replace(RECORDS.encode(), b"/v1/topics/absent/records")
    assert (await asyncio.to_thread(exchange, port, head)).startswith(b"HTTP/1.1 404 ")
    async with client() as shop:
        assert (await shop.produce()).status == 200


async def test_chunks_are_debited_as_they_come_and_bodies_of_one_owner_compete(boss, client, port, files):
    await limit(boss, "principal", "token:shop", bytes_in=100_000)
    piece = b'{"value": "%s"}\n' % (b"a" * 100_000)
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    head = raw_head(files[1]["shop"], "Transfer-Encoding: chunked", media_type="application/x-ndjson")
    upload = (port, head, *[chunk] * 8, b"0\r\n\r\n")
    assert (await asyncio.to_thread(exchange, *upload)).startswith(b"HTTP/1.1 200 "), "whole, as with a length"
    async with client() as shop:
        assert_problem(await shop.produce(), "quota_exceeded", quota="bytes_in")
    await limit(boss, "principal", "token:shop", bytes_in=101_000)
    answers = await asyncio.gather(*(asyncio.to_thread(exchange, *upload) for _ in range(4)))
    statuses = sorted(answer.split()[1] for answer in answers if answer)
    assert statuses[-1] == b"429", "each has the debt of the others"


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"requests": 0}, "requests"),
        ({"bytes_in": -1}, "bytes_in"),
        ({}, "limits nothing"),
        ({"connections": 0}, "conn"),
    ],
)
async def test_a_limit_that_cannot_be_used_is_refused_with_its_field(boss, limits, field):
    answer = await boss.send("PUT", "/v1/access/quotas/tenant/acme", limits)
    problem = assert_problem(answer, "invalid_quota")
    assert field in problem["detail"]
    assert_problem(await boss.send("PUT", "/v1/access/quotas/tenant/acme", b'{"requests": NaN}'), "malformed_json")
    assert_problem(await boss.send("PUT", "/v1/access/quotas/who/acme", {"requests": 1}), "invalid_quota")
    assert_problem(await boss.send("DELETE", "/v1/access/quotas/tenant/acme"), "unknown_access")


async def test_the_metrics_count_by_dimension(boss, client):
    await limit(boss, "principal", "token:shop", requests=1)
    async with client() as shop:
        await asyncio.gather(*(shop.produce() for _ in range(5)))
    page = (await boss.send("GET", "/metrics")).body.decode()
    assert 'penstock_quota_refused_total{dimension="requests"}' in page
    assert 'penstock_quota_throttled_total{dimension="requests"}' in page
    assert "token:shop" not in page
