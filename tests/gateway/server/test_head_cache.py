"""A request whose head is kept gets what it gets otherwise: status, headers, body, log line and counters."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from engine.format import batch as record_batch
from gateway.access.tokens import Tokens
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from tests.gateway.server.served import served
from tests.scale.count import SCALE
from tests.tokens import add_token

REQUESTS = min(2 * SCALE, 2000)
PRODUCER_ID = 0  # the first that a node gives
SEED = 22
SHORT, LONG = "topic-1", "topic-2"
BATCH = bytes(record_batch.encode_values([b"1", b"{}"], 5))

METHODS = ("POST",) * 4 + ("GET",) * 4 + ("HEAD", "PUT", "OPTIONS")
PATHS = (
    *("/v1/topics/T/records",) * 4,
    *("/v1/topics/T/partitions/0/records",) * 6,
    "/v1/topics/T/partitions/1/records",
    "/v1/topics/T/partitions/7/records",
    "/v1/topics/T/partitions/00/records",
    "/v1/topics/T/partitions/99999999999/records",
    "/v1/topics/T/partitions/0/records/",
    "/v1/topics/none/records",
    "/v1/topics/../records",
    "/v1/topics/%54/records",
    "/v1/topics//records",
)
QUERIES = (
    *("",) * 4,
    *("offset=0", "offset=2&max_records=3", "from=earliest&value=text", "from=latest", "offset=1&ndjson=values") * 2,
    *("acks=all", "acks=1", "acks=0", "acks=-1", "acks=2", "key=k", "partition=1", "partition=9", "timeout_ms=1000"),
    *("ndjson=records", "key_pointer=/a", "key_pointer=a", "key=%C3%A4", "key=%ff", "key=a+b", "key", "=1", "&&"),
    *("offset=x", "offset=1&from=latest", "offset=-1", "offset=999", "wait_ms=1", "unknown=1", "key=1&key=2"),
    *("timestamp=5", "timestamp=yesterday", "max_records=1&cloudevents=binary", "offset=0&max_bytes=1"),
)
HEADERS = (
    *(("Content-Type", "application/json"), ("Content-Type", "application/x-ndjson")) * 6,
    ("Content-Type", "application/json; charset=latin-1"),
    ("Content-Type", "application/json; charset=UTF-8"),
    ("Content-Type", record_batch.MEDIA_TYPE),
    ("Content-Type", "text/plain"),
    ("Content-Type", "nonsense"),
    ("Content-Type", "application/cloudevents+json"),
    *(("Accept", "application/x-ndjson"), ("Accept", "application/json")) * 2,
    ("Accept", record_batch.MEDIA_TYPE),
    ("Accept", "text/html, */*;q=0.1"),
    ("Accept", "image/png"),
    ("Accept-Encoding", "gzip, zstd"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "br"),
    ("Idempotency-Key", "k1"),
    ("Idempotency-Key", "k2"),
    ("Penstock-Key", "k"),
    ("Penstock-Forward", "never"),
    ("Penstock-Forward", "now"),
    ("Penstock-Expected-End", "0"),
    ("Penstock-Expected-End", "soon"),
    ("Penstock-Client-Id", "me"),
    ("Penstock-Client-Id", "not me"),
    ("Penstock-Leader-Epoch", "0"),
    ("Penstock-Rack", "r"),
    ("Idempotency-Key", "two words"),
    ("Producer-Id", "1"),
    ("Producer-Epoch", "0"),
    ("Producer-Seq", "0"),
    ("Producer-Seq", "x"),
    ("ce-id", "1"),
    ("ce-specversion", "1.0"),
    ("X-Request-Id", "mine"),
    ("X-Other", "1"),
    ("If-None-Match", "*"),
    ("Host", "example.org"),
    ("Origin", "http://example.org"),
    ("Origin", "http://127.0.0.1"),
    ("Expect", "100-continue"),
    ("User-Agent", "a test"),
)
BODIES = (
    *(b'{"records":[{"value":1}]}', b'{"a":"x"}\n{"a":"y"}\n') * 5,
    b"",
    b"text",
    b'{"records":[]}',
    b'{"records":[{"value":1,"partition":1},{"key":"a","value":2}]}',
    b'{"records":[{"value":1,"partition":9}]}',
    b'{"value":1}',
    b"{",
    b"[" * 300,
    b"\xff\n",
    BATCH,
    BATCH[:-1],
    b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1}',
    b'{"records":[' + b",".join([b'{"value":"%b"}' % (b"x" * 100)] * 100) + b"]}",
)


def request_of(random: Random, tokens: Sequence[str] = ()) -> bytes:
    """Returns a request to the topic `T`, often one of the short path with one thing that it does not know."""
    method, path = random.choice(METHODS), random.choice(PATHS)
    query, body = random.choice(QUERIES), b"" if method in ("GET", "HEAD") else random.choice(BODIES)
    headers = random.sample(HEADERS, random.choice((0, 1, 1, 1, 1, 2, 3)))
    if random.random() < 0.05:
        headers += headers[:1]
    lines = [f"{method} {path}{'?' * bool(query)}{query} HTTP/1.1"]
    if random.random() < 0.97:
        lines.append("Host: 127.0.0.1")
    lines += [f"{name}: {value}" for name, value in headers]
    if random.random() < 0.1:
        lines += [f"Producer-Id: {PRODUCER_ID}", "Producer-Epoch: 0", f"Producer-Seq: {random.choice((0, 0, 1, 2, 9))}"]
    if tokens and random.random() < 0.9:
        lines.append(f"Authorization: Bearer {random.choice(tokens)}")
    if random.random() < 0.1 and body:
        lines.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    elif body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


async def exchange(place: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*place)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


_VARIES = (
    (re.compile(rb"(?i)(date|penstock-request-id|penstock-idempotency-window): [^\r]*"), rb"\1: x"),
    (re.compile(rb'"request_id":"[^"]*"'), b'"request_id":"x"'),
    (re.compile(rb'"timestamp":[0-9]{13}'), b'"timestamp":1'),
    (re.compile(rb'"token":"[^"]*"'), b'"token":"x"'),
    (re.compile(rb'(?i)(etag: (?:W/)?")[^"]*'), rb"\1x"),  # names the topic
    (re.compile(rb"topic-[12]"), b"topic-x"),
)


def comparable(answer: bytes) -> tuple[list[bytes], bytes]:
    """Returns the head in sorted lines and the body, without what differs between two equal requests."""
    for pattern, replacement in _VARIES:
        answer = pattern.sub(replacement, answer)
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = sorted(head.lower().split(b"\r\n"))
    if b"content-encoding: zstd" in lines or b"content-type: application/vnd.penstock.recordbatch" in lines:
        return [line for line in lines if not line.startswith(b"content-length")], b""  # they have timestamps
    return lines, body


@asynccontextmanager
async def node_of(directory: Path, **settings: Any) -> AsyncIterator[Node]:
    async with running_node(NodeSettings(data_dir=str(directory / "data"), request_log=True, **settings)) as node:
        for name in (SHORT, LONG):
            await node.shard.create_topic(name, 1, 1, {})
        yield node


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, object]]]:
    """Returns the log lines of requests since the last call, without what differs between two equal requests."""
    caplog.set_level(logging.INFO, "penstock.requests")

    def taken() -> list[dict[str, object]]:
        found = [vars(record) for record in caplog.records if record.name == "penstock.requests"]
        caplog.clear()
        names = (
            "msg",
            "levelname",
            "method",
            "route",
            "operation",
            "status",
            "bytes_in",
            "client_id",
            "caller",
            "code",
        )
        return [{name: line.get(name) for name in names} | {"has_topic": "topic" in line} for line in found]

    return taken


BARRIER = (
    b"POST /v1/topics/%b/partitions/0/records?acks=all HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: 2\r\n%b\r\n\r\n1\n"
)


async def wait_committed(node: Node, topic: str) -> None:
    """Waits until readers see what is stored: an answer with acks=1 does not wait for that."""
    partition = node.shard.topics[topic].partitions[0]
    async with asyncio.timeout(60):
        while partition.high_watermark < partition.log_end:
            await asyncio.sleep(0.001)


async def differing(node: Node, requests: Sequence[bytes], lines: Callable[[], list[dict[str, object]]]) -> set[bytes]:
    """Sends requests over both paths and compares. Returns the statuses."""
    statuses, answers = set(), node.server.metrics.answers
    async with served(node, is_short=True) as (short_place, short), served(node, is_short=False) as (long_place, _):
        for request in requests:
            found = []
            for place, topic in ((short_place, SHORT), (long_place, LONG)):
                before = {key: one.count for key, one in answers.items()}
                answer = await exchange(place, request.replace(b"/T/", f"/{topic}/".encode()))
                if answer[9:12] == b"202":  # stored later, before the next record
                    token = next(
                        (line for line in request.split(b"\r\n") if line.startswith(b"Authorization")), b"A: b"
                    )
                    await exchange(place, BARRIER % (topic.encode(), token))
                await wait_committed(node, topic)
                counted = {key: one.count - before.get(key, 0) for key, one in answers.items()}
                found.append((comparable(answer), lines(), {key: more for key, more in counted.items() if more}))
            assert found[0] == found[1], request
            statuses.add(answer[9:12])
        assert short.answered > len(requests) / 20, short.answered
    return statuses


async def test_both_paths_give_the_same_answers(tmp_path: Path, lines: Callable[[], list[dict[str, object]]]) -> None:
    random = Random(SEED)
    async with node_of(tmp_path) as node:
        await node.server.produce.producer_ids.take()
        statuses = await differing(node, [request_of(random) for _ in range(REQUESTS)], lines)
    assert len(statuses) > 8, statuses


async def test_requests_that_can_be_repeated_take_the_short_path(tmp_path: Path) -> None:
    """Our client's producers send these headers with each request."""
    sequenced = f"Penstock-Client-Id: me\r\nProducer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\n"
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, short):
        await node.server.produce.producer_ids.take()
        for headers in (sequenced % 0, sequenced % 1, sequenced % 1, "Idempotency-Key: k\r\nX-Request-Id: mine\r\n"):
            head = f"POST /v1/topics/{SHORT}/partitions/0/records HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}"
            rest = "Content-Type: application/x-ndjson\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1"
            answer = await exchange(place, (head + rest).encode())
            assert answer[9:12] == b"200", answer
            assert (b"penstock-request-id: mine" in answer.lower()) == ("mine" in headers)
        assert short.answered == 4
        assert node.shard.topics[SHORT].partitions[0].log_end == 3


async def test_what_is_kept_of_a_head_has_the_keys_and_sequences_of_no_other_request(tmp_path: Path) -> None:
    steps = (
        ("Idempotency-Key: k1", b"200", 1),
        ("Idempotency-Key: k2", b"200", 2),
        ("Idempotency-Key: k1", b"200", 2),  # a repeat
        ("Idempotency-Key: two words", b"400", 2),
        (f"Idempotency-Key: k3\r\nProducer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0\r\nProducer-Seq: 0", b"400", 2),
        (f"Producer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0\r\nProducer-Seq: 0", b"200", 3),
        (f"Producer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0\r\nProducer-Seq: 1", b"200", 4),
        (f"Producer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0\r\nProducer-Seq: 1", b"200", 4),
        (f"Producer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0\r\nProducer-Seq: 9", b"409", 4),
        (f"Producer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0\r\nProducer-Seq: x", b"400", 4),
        (f"Producer-Id: {PRODUCER_ID}\r\nProducer-Epoch: 0", b"400", 4),
        ("X-Request-Id: a", b"200", 5),
        ("X-Request-Id: b\r\nIdempotency-Key: k1", b"200", 5),
    )
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, short):
        await node.server.produce.producer_ids.take()
        for headers, status, log_end in steps:
            head = f"POST /v1/topics/{SHORT}/partitions/0/records HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n"
            rest = "Content-Type: application/x-ndjson\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1"
            answer = await exchange(place, (head + rest).encode())
            assert answer[9:12] == status, (headers, answer)
            assert node.shard.topics[SHORT].partitions[0].log_end == log_end, headers
        assert repr(short.heads) == "HeadCache(headers=6, produces=4, fetches=0)", (
            "for each set of headers, whatever their values"
        )


async def test_a_connection_that_is_kept_has_the_key_of_each_request(tmp_path: Path) -> None:
    """Its heads are like the first one, from which the rest is taken."""
    request = (
        f"POST /v1/topics/{SHORT}/partitions/0/records HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: %s\r\n"
        "Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s"
    )
    steps = (("a", "k1", "1", 200, 1), ("b", "k1", "1", 200, 1), ("c", "k2", "11", 200, 2), ("c", "k1", "1", 200, 2),
             ("d", "k1", "2", 422, 2), ("e", "two words", "1", 400, 2), ("f", "k3", "x" * 9, 200, 3))  # fmt: skip
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, short):
        reader, writer = await asyncio.open_connection(*place)
        for request_id, key, body, status, log_end in steps:
            writer.write((request % (request_id, key, len(body), body)).encode())
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode().lower()
            length = re.search(r"content-length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            assert f" {status} " in head.splitlines()[0], (key, head)
            assert f"penstock-request-id: {request_id}\r\n" in head
            assert node.shard.topics[SHORT].partitions[0].log_end == log_end, key
        writer.close()
        assert short.answered == len(steps)


async def test_fetches_that_differ_by_their_offset_share_what_follows_from_the_rest(tmp_path: Path) -> None:
    """Also where the server knows the head of the connection, and where a request has headers of its own."""
    targets = ("offset={}", "max_records=1&offset={}", "offset={}&value=text&max_records=1", "from=earliest")
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, short):
        body = b"0\n1\n2\n3\n"
        head = (
            f"POST /v1/topics/{SHORT}/records?acks=all HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        )
        await exchange(place, head.encode() + b"Content-Type: application/x-ndjson\r\nConnection: close\r\n\r\n" + body)
        reader, writer = await asyncio.open_connection(*place)
        steps = [
            (target, offset, own)
            for target in targets
            for own in ("", "X-Request-Id: r{}\r\n")
            for offset in (0, 2, 1, 3)
        ]
        wrong = [
            ("offset={}&from=latest", 1, ""),
            ("offset={}&offset=2", 1, ""),
            ("offset=-{}", 1, ""),
            ("offset={}", 10**20, ""),
        ]
        for target, offset, own in steps + wrong + steps[:4]:
            path = f"/v1/topics/{SHORT}/partitions/0/records?{target.format(offset)}"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{own.format(offset)}\r\n".encode())
            found = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            length = re.search(rb"(?i)content-length: (\d+)", found)
            assert length is not None
            answer = orjson.loads(await reader.readexactly(int(length[1])))
            if (target, offset, own) in wrong:
                assert answer["code"] == "invalid_query", target
                continue
            assert "records" in answer, (target, offset, own, answer)
            first = offset if "{}" in target else 0
            assert answer["records"][0]["offset"] == first, (target, offset)
            assert len(answer["records"]) == (1 if "max_records" in target else 4 - first)
            assert (f"penstock-request-id: r{offset}\r\n".encode() in found.lower()) == bool(own)
        writer.close()
        assert repr(short.heads) == "HeadCache(headers=3, produces=1, fetches=8)"
        assert short.answered == 1 + len(steps) + 4


async def test_both_paths_check_tokens(tmp_path: Path, lines: Callable[[], list[dict[str, object]]]) -> None:
    random, path = Random(SEED), tmp_path / "tokens.toml"
    both = [SHORT, LONG]
    tokens = [
        *[add_token(path, "both", read=both, write=both)] * 4,
        add_token(path, "reader", read=both),
        add_token(path, "writer", write=both),
        add_token(path, "other", read=["other"], write=["other"], admin=["other"]),
        "penstock_wrong",
    ]
    async with node_of(tmp_path, tokens_file=str(path)) as node:
        statuses = await differing(node, [request_of(random, tokens) for _ in range(REQUESTS // 4)], lines)
    assert statuses >= {b"200", b"401", b"403"}, statuses


async def test_a_revoked_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    header = f"Authorization: Bearer {add_token(path, 'writer', write=[SHORT])}"
    request = f"POST /v1/topics/{SHORT}/records HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}\r\nContent-Length: 1\r\n"
    request += "Content-Type: application/x-ndjson\r\nConnection: close\r\n\r\n1"
    async with node_of(tmp_path, tokens_file=str(path)) as node, served(node, is_short=True) as (place, short):
        assert (await exchange(place, request.encode()))[9:12] == b"200"
        node.server.access.use_tokens(Tokens([]))
        assert (await exchange(place, request.encode()))[9:12] == b"401"
        assert short.answered == 2
