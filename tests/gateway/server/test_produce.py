"""Produces without a task: answers, log lines and counters are those of requests in tasks, with heads that are new."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

from engine.runtime.loop_waits import loop_waits
from gateway.wire import hpack
from gateway.wire.http1 import Http1
from gateway.wire.messages import AnswerForm, WireLimits
from node.node import Node
from tests.gateway.server.served import served
from tests.gateway.server.test_head_cache import (
    BODIES,
    LONG,
    SEED,
    SHORT,
    comparable,
    lines,
    node_of,
    wait_committed,
)
from tests.scale.count import SCALE
from tests.tokens import add_token

__all__ = ["lines"]

CONVERSATIONS = min(SCALE, 60)
EACH = 5  # requests of a connection: the first one or two make its head known
Lines = Callable[[], list[dict[str, object]]]
Sender = Callable[[tuple[str, int], str, Sequence[tuple[str, str]], Sequence[bytes]], Awaitable[list[bytes]]]

PATHS = ("/v1/topics/T/records", "/v1/topics/T/partitions/0/records")
QUERIES = ("", "acks=1", "acks=0", "acks=all", "acks=-1&timeout_ms=9000", "key=k", "ndjson=records", "key_pointer=/a")
TYPES = ("application/json", "application/x-ndjson", "text/plain", "image/png", "application/cloudevents+json")
MORE = (
    *((),) * 6,
    (("X-Request-Id", "mine"),),
    (("X-Request-Id", "not mine"),),
    (("Penstock-Client-Id", "me"),),
    (("Penstock-Key", "k"),),
    (("Idempotency-Key", "one"),),
    *((("Idempotency-Key", "@-#"),),) * 4,
    (("Idempotency-Key", "@-#"), ("X-Request-Id", "#")),
    *((("Producer-Id", "0"), ("Producer-Epoch", "0"), ("Producer-Seq", "#")),) * 3,
    (("Producer-Id", "0"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")),
    (("Producer-Id", "5000"), ("Producer-Epoch", "0"), ("Producer-Seq", "#")),
    (("Content-Encoding", "identity"),),
    (("Penstock-Expected-End", "3"),),
    (("Penstock-Forward", "never"),),
    (("Expect", "100-continue"),),
)
SMALL = (b'{"records":[{"value":1}]}', b'{"records":[{"key":"k","value":1}]}', b"1\n", b'{"a":"x"}\n', b"text", b"null")


async def over_http1(
    place: tuple[str, int], target: str, headers: Sequence[tuple[str, str]], bodies: Sequence[bytes]
) -> list[bytes]:
    """Sends requests one after another over a connection. Returns the answers as far as it is kept."""
    reader, writer = await asyncio.open_connection(*place)
    answers = []
    try:
        for number, body in enumerate(bodies):
            writer.write(http1(target, numbered(headers, number), body))
            answers.append(await http1_answer(reader))
    except (asyncio.IncompleteReadError, ConnectionError):
        answers.append(b"closed")
    finally:
        writer.close()
    return answers


def numbered(headers: Sequence[tuple[str, str]], number: int) -> list[tuple[str, str]]:
    """Returns the headers of a request of a conversation; two in a row have the same key."""
    return [(name, value.replace("#", str(number // 2))) for name, value in headers]


def http1(target: str, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    own = [f"{name}: {value}" for name, value in [("Host", "127.0.0.1"), *headers, ("Content-Length", str(len(body)))]]
    return "\r\n".join([f"POST {target} HTTP/1.1", *own, "", ""]).encode() + body


async def http1_answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100"):
            head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        assert found is not None, head
        return head + await reader.readexactly(int(found[1]))


async def over_http2(
    place: tuple[str, int], target: str, headers: Sequence[tuple[str, str]], bodies: Sequence[bytes]
) -> list[bytes]:
    """Sends two requests one after another, and the rest at once. Returns the answers in the order of requests."""
    client = Http2Client(*await asyncio.open_connection(*place))
    try:
        for number, body in enumerate(bodies):
            client.post(target, numbered(headers, number), body)
            if number < 2:
                await client.send_until_answered()
        return await client.send_until_answered()
    finally:
        client.writer.close()


class Http2Client:
    """A connection of HTTP/2. What `post` makes leaves with `send_until_answered`, in one write."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.answers: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def post(self, target: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        stream_id = self.h2.get_next_available_stream_id()
        self.answers[stream_id] = b""
        pseudo = [(":method", "POST"), (":path", target), (":scheme", "http"), (":authority", "127.0.0.1")]
        own = [(name.lower(), value) for name, value in headers]
        self.h2.send_headers(stream_id, [*pseudo, *own, ("content-length", str(len(body)))])
        self.h2.send_data(stream_id, body, end_stream=True)

    async def send_until_answered(self) -> list[bytes]:
        async with asyncio.timeout(60):
            while self.ended < self.answers.keys():
                self.writer.write(self.h2.data_to_send())
                data = await self.reader.read(65536)
                assert data, "the node has left"
                for event in self.h2.receive_data(data):
                    self._on(event)
        return [self.answers[stream_id] for stream_id in sorted(self.answers)]

    def _on(self, event: Any) -> None:
        if isinstance(event, ResponseReceived):
            fields = [(bytes(name), bytes(value)) for name, value in event.headers]
            first = b"HTTP/2   " + dict(fields)[b":status"]
            head = [b"%b: %b" % field for field in fields if field[0] != b":status"]
            self.answers[event.stream_id] = b"\r\n".join([first, *head, b"", b""])
        elif isinstance(event, DataReceived):
            self.answers[event.stream_id] += event.data
        elif isinstance(event, StreamEnded | StreamReset):
            self.ended.add(event.stream_id)


def target_of(path: str, query: str, topic: str) -> str:
    return path.replace("/T/", f"/{topic}/") + "?" * bool(query) + query


async def same_over_both(node: Node, send: Sender, lines: Lines, tokens: Sequence[str] = ()) -> set[bytes]:
    """Has the same conversations over the short path and the long one. Returns the statuses."""
    random, statuses, answers = Random(SEED), set(), node.server.metrics.answers
    assert await node.server.produce.producer_ids.take() == 0
    records, taken = node.server.metrics.produce_records, node.server.metrics.produce_bytes
    async with served(node, is_short=True) as (short_place, short), served(node, is_short=False) as (long_place, _):
        for number in range(CONVERSATIONS):
            path, query = random.choice(PATHS), random.choice(QUERIES)
            own = [(name, value.replace("@", str(number))) for name, value in random.choice(MORE)]
            headers = [("Content-Type", random.choice(TYPES)), *own]
            if send is over_http2 and "acks=0" in query:  # such a request may be over or not when its key comes again
                headers = [one for one in headers if one[0] != "Idempotency-Key"]
            if tokens and random.random() < 0.9:
                headers.append(("Authorization", f"Bearer {random.choice(tokens)}"))
            bodies = [random.choice(random.choice((SMALL, BODIES))) for _ in range(EACH)]
            found = []
            for place, topic in ((short_place, SHORT), (long_place, LONG)):
                before = {key: one.count for key, one in answers.items()}
                before_both = records.value, taken.value
                given = await send(place, target_of(path, query, topic), headers, bodies)
                await node.server.produce.queue.wait_drained()
                await wait_committed(node, topic)
                counted = {key: one.count - before.get(key, 0) for key, one in answers.items()}
                more = records.value - before_both[0], taken.value - before_both[1]
                kept = sorted(map(str, lines()))
                found.append((list(map(comparable, given)), kept, {key: n for key, n in counted.items() if n}, more))
                statuses |= {answer[9:12] for answer in given}
            assert found[0] == found[1], (number, path, query, headers, bodies)
        assert short.without_task > CONVERSATIONS / 2, short.without_task
    metrics = node.server.metrics
    assert (metrics.requests_in_flight.value, metrics.delayed_produces.value) == (0, 0)
    assert node.server.bodies.held_bytes == 0
    assert repr(node.server.produce.keys) == "KeysInFlight(0)"
    return statuses


@pytest.mark.parametrize("send", [over_http1, over_http2])
async def test_kept_connections_get_the_answers_of_the_long_path(tmp_path: Path, send: Sender, lines: Lines) -> None:
    async with node_of(tmp_path) as node:
        statuses = await same_over_both(node, send, lines)
    assert statuses >= {b"200", b"202", b"400", b"422"}, statuses


async def test_tokens_are_checked_without_a_task(tmp_path: Path, lines: Lines) -> None:
    path, both = tmp_path / "tokens.toml", [SHORT, LONG]
    tokens = [add_token(path, "writer", write=both)] * 3 + [add_token(path, "reader", read=both), "penstock_wrong"]
    async with node_of(tmp_path, tokens_file=str(path)) as node:
        statuses = await same_over_both(node, over_http1, lines, tokens)
    assert statuses >= {b"200", b"401", b"403"}, statuses


TARGET = f"/v1/topics/{SHORT}/records?acks=1"
NDJSON = [("Content-Type", "application/x-ndjson")]


@pytest.mark.parametrize("kind", ["write failed", "disk full", "timeout", "no room", "queue full", "bug", "stopping"])
async def test_failures_have_the_problems_of_the_long_path(
    tmp_path: Path, kind: str, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    async with (
        node_of(tmp_path) as node,
        served(node, is_short=False) as (long_place, _),
        served(node, is_short=True) as (short_place, short),
    ):
        for place, topic in ((short_place, SHORT), (long_place, LONG)):
            target = f"/v1/topics/{topic}/records?acks=1&timeout_ms={30 if kind == 'timeout' else 9000}"
            partition, stages = node.shard.topics[topic].partitions[0], node.server.produce.stages
            reader, writer = await asyncio.open_connection(*place)
            for _ in range(2):
                writer.write(http1(target, NDJSON, b"1\n"))
                await http1_answer(reader)
            lines()
            acks, without_task = stages.ack.cumulative()[-1], short.without_task
            with monkeypatch.context() as planted:
                plant(planted, node, kind)
                async with node.server.produce.queue.pause(partition):
                    writer.write(http1(target, NDJSON, b"22\n"))
                    answer = await http1_answer(reader) if kind not in ("write failed", "disk full") else b""
                answer = answer or await http1_answer(reader)
            assert short.without_task - without_task == (topic == SHORT)
            found.append(
                (comparable(answer), lines(), stages.ack.cumulative()[-1] - acks, node.server.bodies.held_bytes)
            )
            writer.close()
    assert found[0] == found[1]
    assert not re.match(rb"HTTP/1.1 2", b"".join(found[0][0][0])), found


def plant(planted: pytest.MonkeyPatch, node: Node, kind: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC if kind == "disk full" else errno.EIO, "planted")

    def bug(*_: object) -> None:
        raise ZeroDivisionError("planted")

    match kind:
        case "write failed" | "disk full":
            planted.setattr(node.shard.disk, "pwritev", fail)
        case "no room":
            planted.setattr(node.server.bodies, "_bytes_max", 1)
        case "queue full":
            planted.setattr(node.server.produce.queue, "queued_bytes", 1 << 40)
        case "bug":
            planted.setattr("gateway.produce.accumulator.encode_all", bug)
        case "stopping":
            planted.setattr(node.lifecycle, "is_refusing", True)


async def test_a_client_that_leaves_is_counted_and_its_record_is_stored(tmp_path: Path, lines: Lines) -> None:
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, _):
        partition, metrics = node.shard.topics[SHORT].partitions[0], node.server.metrics
        reader, writer = await asyncio.open_connection(*place)
        for _ in range(2):
            writer.write(http1(TARGET, NDJSON, b"1\n"))
            await http1_answer(reader)
        lines()
        async with node.server.produce.queue.pause(partition):
            writer.write(http1(TARGET, NDJSON, b"2\n"))
            await until(lambda: metrics.delayed_produces.value == 1)
            assert (metrics.requests_in_flight.value, metrics.delayed_produces.value) == (1, 1)
            assert node.server.bodies.held_bytes == 2
            writer.close()
            await until(lambda: metrics.requests_in_flight.value == 0)
            assert (metrics.delayed_produces.value, node.server.bodies.held_bytes) == (1, 0)
        await until(lambda: partition.log_end == 3)
        await until(lambda: metrics.delayed_produces.value == 0)
        assert [line["msg"] for line in lines()] == ["client disconnected"]
        assert metrics.answers["produce", 200].count == 2


@pytest.mark.parametrize("is_over", [False, True], ids=["before its task runs", "while it waits for its turn"])
@pytest.mark.parametrize("kind", ["a key that is known", "a key", "a large body", "an encoded body"])
async def test_a_client_that_leaves_before_the_work_began_leaves_nothing_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_over: bool
) -> None:
    """A task that is cancelled in these places never runs the coroutine of the handler."""
    keyed = [("Idempotency-Key", "k")] if "key" in kind else []
    encoded = [("Content-Encoding", "identity")] if "encoded" in kind else []
    body = b"1\n" * (30_000 if "large" in kind else 1)
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, _):
        metrics, turns = node.server.metrics, loop_waits().turns
        if kind == "a key that is known":
            assert (await over_http1(place, TARGET, [*NDJSON, *keyed], [body]))[0].startswith(b"HTTP/1.1 200")
        before = metrics.requests_in_flight.value
        _, writer = await asyncio.open_connection(*place)
        with monkeypatch.context() as planted:
            if is_over:
                planted.setattr(turns, "must_wait", lambda _: True)
                planted.setattr(turns, "wait", lambda _: asyncio.Event().wait())
            writer.write(http1(TARGET, [*NDJSON, *keyed, *encoded], body))
            for _ in range(20 if is_over else 1):
                await asyncio.sleep(0)
            writer.transport.abort()
            await asyncio.sleep(0.05)
        await until(lambda: metrics.requests_in_flight.value == before == 0)
        await until(lambda: metrics.delayed_produces.value == 0)
        assert node.server.bodies.held_bytes == 0
        assert repr(node.server.produce.keys) == "KeysInFlight(0)"


async def test_keys_of_a_produce_to_many_topics_are_held_until_its_outcome(tmp_path: Path) -> None:
    headers = [("Content-Type", "application/x-ndjson"), ("Idempotency-Key", "k")]
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, _):
        partition, keys = node.shard.topics[SHORT].partitions[0], node.server.produce.keys
        _, writer = await asyncio.open_connection(*place)
        async with node.server.produce.queue.pause(partition):
            writer.write(http1("/v1/records", headers, b'{"topic":"%b","value":1}\n' % SHORT.encode()))
            await until(lambda: node.server.metrics.delayed_produces.value == 1)
            writer.transport.abort()
            await until(lambda: node.server.metrics.requests_in_flight.value == 0)
            assert repr(keys) == "KeysInFlight(1)"
        await until(lambda: repr(keys) == "KeysInFlight(0)")
        assert partition.log_end == 1


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_pipelined_requests_are_stored_and_answered_in_their_order(tmp_path: Path) -> None:
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, short):
        reader, writer = await asyncio.open_connection(*place)
        requests = [http1(TARGET, NDJSON, b"%d\n" % number) for number in range(9)]
        for one in requests[:2]:
            writer.write(one)
            await http1_answer(reader)
        writer.write(requests[2])  # alone: it is taken without a task
        await until(lambda: short.without_task == 3)
        writer.write(b"".join(requests[3:]))
        for number in range(2, 9):
            assert b'"base_offset":%d,' % number in await http1_answer(reader)
        writer.close()


async def test_requests_of_http2_are_stored_in_their_order_whatever_path_they_take(tmp_path: Path) -> None:
    """A key, an encoding or a large body needs a task, and what follows it must not overtake."""
    random = Random(SEED)
    forms = ([], [], [], [("Idempotency-Key", "k")], [("Content-Encoding", "identity")])
    async with node_of(tmp_path) as node, served(node, is_short=True) as (place, short):
        client = Http2Client(*await asyncio.open_connection(*place))
        number = 0
        for _ in range(20):
            for _ in range(10):
                extra = [(name, f"{value}{number}" if value == "k" else value) for name, value in random.choice(forms)]
                client.post(TARGET, [*NDJSON, *extra], b"1\n" * random.choice((1, 1, 1, 3000)))
                number += 1
            answers = await client.send_until_answered()
        offsets = [int(re.findall(rb'"base_offset":(\d+)', answer)[0]) for answer in answers]
        assert offsets == sorted(offsets)
        assert number > short.without_task > 5, short.without_task
        client.writer.close()


def test_a_form_makes_the_bytes_of_its_headers() -> None:
    before, after = (("Content-Type", "application/json"),), (("Server", "penstock"),)
    form = AnswerForm(200, before, "Penstock-Request-Id", after)
    for date in (("Date", "Tue, 24 Nov 2026 20:00:00 GMT"), ("Date", "Tue, 24 Nov 2026 20:00:01 GMT")):
        for value, size_bytes in ((b"0.0-1", 0), (b"x" * 126, 12345)):
            headers = form.headers(value, size_bytes, date)
            assert hpack.encode_form(form, value, size_bytes, date) == hpack.encode(200, headers)
            one, other = Http1(WireLimits()), Http1(WireLimits())
            for core in (one, other):
                core.receive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0)
            one.answer_as(1, form, value, date, b"b" * size_bytes)
            other.answer(1, 200, headers, b"b" * size_bytes)
            assert one.take_output(10**6) == other.take_output(10**6)
