"""Polls of groups whose heads are kept: the same answers, counters and log lines as otherwise."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import orjson
import pytest

from node.node import Node
from tests.gateway.server.served import served
from tests.gateway.server.test_head_cache import (
    LONG,
    SEED,
    SHORT,
    comparable,
    differing,
    exchange,
    lines,
    node_of,
)
from tests.scale.count import SCALE
from tests.tokens import add_token

__all__ = ["lines"]

REQUESTS = min(SCALE, 300)
Lines = Callable[[], list[dict[str, object]]]

PATHS = (
    *("/v1/groups/T/members/m/poll",) * 8,
    "/v1/groups/T/members/a:b-c._/poll",
    "/v1/groups/T/members/%61/poll",
    "/v1/groups/T/members/a b/poll",
    "/v1/groups/T/members/../poll",
    "/v1/groups/T/members//poll",
    f"/v1/groups/T/members/{'m' * 201}/poll",
    f"/v1/groups/{'g' * 201}/members/m/poll",
    "/v1/groups/T/members/m/poll/",
    "/v1/groups/.g/members/m/poll",
    "/v1/groups/none/members/m/poll",
)
BODIES = (
    *(b'{"topics":["%b"]}' % SHORT.encode(),) * 8,
    b'{"topics":["%b"],"wait_ms":1,"max_records":1,"value":"text"}' % SHORT.encode(),
    b'{"topics":["%b"],"max_bytes":1,"filter":["value:1"]}' % SHORT.encode(),
    b'{"topics":["%b"],"paused":[{"topic":"%b","partition":0}]}' % (SHORT.encode(), SHORT.encode()),
    b'{"topics":["none"]}',
    b'{"topics":["__groups"]}',
    b'{"topics":[]}',
    b'{"wait_ms":-1}',
    b'{"unknown":1}',
    b'{"token":"x"}',
    b"{}",
    b"",
    b"[",
    b'"\xff"',
)
HEADERS = (
    *(("Content-Type", "application/json"),) * 6,
    ("Content-Type", "text/plain"),
    ("Content-Type", "application/json; charset=latin-1"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "br"),
    ("Accept-Encoding", "gzip, zstd"),
    ("Accept", "text/event-stream"),
    ("Penstock-Client-Id", "me"),
    ("Penstock-Client-Id", "not me"),
    ("Penstock-Rack", "r"),
    ("Penstock-Rack", "r" * 500),
    ("Penstock-Forward", "never"),
    ("X-Request-Id", "mine"),
    ("Idempotency-Key", "k"),
    ("Host", "example.org"),
    ("Origin", "http://127.0.0.1"),
)


def request_of(random: Random, tokens: Sequence[str] = ()) -> bytes:
    method, body = random.choice(("POST",) * 9 + ("GET",)), random.choice(BODIES)
    query = random.choice(("",) * 9 + ("?wait_ms=1", "?"))
    headers = random.sample(HEADERS, random.choice((0, 1, 1, 1, 2)))
    head = [f"{method} {random.choice(PATHS)}{query} HTTP/1.1"]
    if random.random() < 0.97:
        head.append("Host: 127.0.0.1")
    head += [f"{name}: {value}" for name, value in headers]
    if tokens and random.random() < 0.9:
        head.append(f"Authorization: Bearer {random.choice(tokens)}")
    if random.random() < 0.1 and body:
        head.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "Connection: close", "", ""]).encode() + body


async def produce(node: Node, *values: object) -> None:
    async with served(node, is_short=True) as (place, _):
        body = b"".join(orjson.dumps(value) + b"\n" for value in values)
        head = f"POST /v1/topics/{SHORT}/records HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
        assert b" 200 " in await exchange(place, head.encode() + body)


async def test_both_paths_answer_polls_of_groups(tmp_path: Path, lines: Lines) -> None:
    random = Random(SEED)
    async with node_of(tmp_path) as node:
        await produce(node, 1, "x" * 2000, {"a": "b"})
        lines()
        statuses = await differing(node, [request_of(random) for _ in range(REQUESTS)], lines)
    assert statuses >= {b"200", b"400", b"404", b"405", b"415"}, statuses


async def test_both_paths_check_the_tokens_of_polls(tmp_path: Path, lines: Lines) -> None:
    random, path = Random(SEED), tmp_path / "tokens.toml"
    groups = [SHORT, LONG]
    tokens = [
        *[add_token(path, "both", read=[SHORT], group=groups)] * 4,
        add_token(path, "reader", read=[SHORT]),
        add_token(path, "member", group=groups),
        "penstock_wrong",
    ]
    async with node_of(tmp_path, tokens_file=str(path)) as node:
        statuses = await differing(node, [request_of(random, tokens) for _ in range(REQUESTS // 4)], lines)
    assert statuses >= {b"200", b"401", b"403"}, statuses


@pytest.mark.parametrize("wait_ms", [0, 20])
async def test_both_paths_deliver_and_commit_the_same_records(tmp_path: Path, wait_ms: int) -> None:
    tokens = {SHORT: "", LONG: ""}
    async with (
        node_of(tmp_path) as node,
        served(node, is_short=True) as (short_place, short),
        served(node, is_short=False) as (long_place, _),
    ):
        delivered = 0
        for step in range(6):
            found = []
            for place, group in ((short_place, SHORT), (long_place, LONG)):
                body = orjson.dumps({"topics": [SHORT], "token": tokens[group], "wait_ms": wait_ms})
                head = f"POST /v1/groups/{group}/members/m/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                answer = await exchange(place, head.encode() + body)
                document = orjson.loads(answer.partition(b"\r\n\r\n")[2])
                if step % 3 != 1:  # else this delivery is repeated
                    tokens[group] = document["token"]
                found.append(comparable(answer))
                delivered += sum(len(part["records"]) for part in document["partitions"])
            assert found[0] == found[1], step
            if step % 2 == 0:
                await produce(node, step, step)
        assert short.answered == 6
        assert delivered > 0


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_large_answers_are_whole_on_both_paths(tmp_path: Path, version: str, encoding: str) -> None:
    async with (
        node_of(tmp_path) as node,
        served(node, is_short=True) as (short_place, short),
        served(node, is_short=False) as (long_place, _),
    ):
        await produce(node, *(["x" * 4000] * 100))
        found = []
        for place, group in ((short_place, SHORT), (long_place, LONG)):
            body = orjson.dumps({"topics": [SHORT]})
            head = f"POST /v1/groups/{group}/members/m/poll HTTP/{version}\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            head += f"Accept-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
            answer = await exchange(place, head.encode() + body)
            lines, content = answer.split(b"\r\n\r\n", 1)
            assert f"content-length: {len(content)}\r\n".encode() in lines.lower() + b"\r\n"
            document = orjson.loads(content if encoding == "identity" else gzip.decompress(content))
            assert [len(record["value"]) for record in document["partitions"][0]["records"]] == [4000] * 100
            found.append([line for line in comparable(answer)[0] if encoding == "identity" or b"length" not in line])
        assert short.answered == 1
        assert found[0] == found[1]
