"""`make bench-groups`: groups, share groups, event streams and tables under many clients. Each case has its own node.

Prints one line of figures for each case. The clients run in this process, and share the machine with the node.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import orjson
import psutil  # type: ignore[import-untyped]

from loadtests.tail_reader import Reading

HOST = "127.0.0.1"
READY_S = 60.0
POLLS_A_SECOND = 150  # that begin
TICKS_A_SECOND = 20  # at which records are produced for event streams
CASES: dict[str, Callable[[Node, argparse.Namespace], Coroutine[None, None, str]]] = {}


class Node:
    """A node of this tree. `cpu_s` and `rss_mb` are of all of its processes."""

    def __init__(self, directory: str, *flags: str) -> None:
        command = [sys.executable, "-m", "penstock.cli.main", "serve", "--insecure", "--port", "0", "--data-dir"]
        self._log = Path(directory) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, f"{directory}/data", *flags], stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while " is ready on " not in self._log.read_text():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)
        self.port = int(self._log.read_text().partition(" is ready on ")[2].split()[0].rsplit(":", 1)[1])

    def _processes(self) -> list[psutil.Process]:
        own = psutil.Process(self._process.pid)
        return [own, *own.children(recursive=True)]

    @property
    def cpu_s(self) -> float:
        return float(sum(sum(one.cpu_times()[:2]) for one in self._processes()))

    @property
    def rss_mb(self) -> float:
        return float(sum(one.memory_info().rss for one in self._processes()) / 1e6)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


class Connection:
    """One connection: one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    def send(self, method: str, path: str, body: bytes = b"", *headers: str) -> None:
        head = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(body)}", *headers]
        self._writer.write("\r\n".join([*head, "", ""]).encode() + body)

    async def head(self) -> tuple[int, int]:
        """Return the status and the length of the body."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        lengths = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
        return int(lines[0].split()[1]), lengths[0] if lengths else 0

    async def call(self, method: str, path: str, body: object = None, *headers: str) -> bytes:
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        self.send(method, path, data, *(headers or ("Content-Type: application/json",)))
        status, length = await self.head()
        found = await self.reader.readexactly(length)
        assert status < 300, found[:500]
        return found

    async def json(self, method: str, path: str, body: object = None) -> Any:
        return orjson.loads(await self.call(method, path, body))

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connections(node: Node, count: int) -> AsyncIterator[list[Connection]]:
    made = [Connection(*await asyncio.open_connection(HOST, node.port, limit=1 << 24)) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.close()


@asynccontextmanager
async def running(*works: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        if errors := [one for one in ended if isinstance(one, Exception)]:
            raise errors[0]


def case(
    function: Callable[[Node, argparse.Namespace], Coroutine[None, None, str]],
) -> Callable[..., Coroutine[None, None, str]]:
    CASES[function.__name__.replace("_", "-")] = function
    return function


def percentiles(times_s: list[float]) -> str:
    times = sorted(times_s)
    return f"p50 {times[len(times) // 2] * 1e3:.1f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.1f} ms"


async def idle_cost(node: Node, seconds: float) -> str:
    cpu_s, began = node.cpu_s, time.monotonic()
    await asyncio.sleep(seconds)
    share = (node.cpu_s - cpu_s) / (time.monotonic() - began)
    return f"{share:.1%} of a core over {seconds:.0f} s, {node.rss_mb:.0f} MB"


@case
async def open_polls(node: Node, options: argparse.Namespace) -> str:
    """Opens polls of groups of one member each, which wait 30 s for records."""
    count = options.polls
    async with connections(node, 1) as [admin]:
        await admin.call("PUT", "/v1/topics/t", {"partitions": options.partitions})
        before_mb = node.rss_mb

        answers: dict[int, int] = {}  # of each group

        async def poll(number: int) -> None:
            body: dict[str, object] = {"topics": ["t"], "wait_ms": 30_000}
            await asyncio.sleep(number / POLLS_A_SECOND)
            async with connections(node, 1) as [connection]:
                while True:
                    found = await connection.json("POST", f"/v1/groups/g{number}/members/m/poll", body)
                    body["token"] = found["token"]
                    answers[number] = answers.get(number, 0) + 1

        async with running(*map(poll, range(count))):
            while len(answers) < count:  # each has waited once
                await asyncio.sleep(1)
            await asyncio.sleep(5)
            before, began = sum(answers.values()), time.monotonic()
            cost = await idle_cost(node, 60)
            rate = (sum(answers.values()) - before) / (time.monotonic() - began)
            async with connections(node, 1) as [admin]:
                groups = len((await admin.json("GET", "/v1/groups"))["groups"])
    return (
        f"{groups} groups with a poll each of {options.partitions} partitions, {rate:.0f} polls/s: {cost} "
        f"({before_mb:.0f} MB before)"
    )


@case
async def idle_callers(node: Node, options: argparse.Namespace) -> str:
    """Measures callers of one share group that wait 30 s for records, and the time until one gets a record."""
    got: list[float] = []
    async with connections(node, 1) as [admin], connections(node, options.callers) as calling:
        await admin.call("PUT", "/v1/topics/t", {"partitions": 1})

        async def call(connection: Connection) -> None:
            while True:
                found = await connection.json("POST", "/v1/groups/g/acquire", {"topics": ["t"], "wait_ms": 30_000})
                if found["records"]:
                    got.append(time.monotonic())
                    await connection.call("POST", "/v1/groups/g/acknowledge", {"lock": found["lock"]})

        async with running(*map(call, calling)):
            await asyncio.sleep(5)
            cost = await idle_cost(node, 40)
            times, cpu_s = [], node.cpu_s
            async with connections(node, 1) as [producer]:
                for number in range(50):
                    began = time.monotonic()
                    await producer.call("POST", "/v1/topics/t/records", b"x", "Content-Type: text/plain")
                    while len(got) <= number:
                        await asyncio.sleep(0.001)
                    times.append(got[number] - began)
                    await asyncio.sleep(0.1)
            each = (node.cpu_s - cpu_s) / 50
    return (
        f"{options.callers} callers: {cost}; a record reaches one in {percentiles(times)}, {each * 1e3:.0f} ms of CPU"
    )


@case
async def poll_throughput(node: Node, options: argparse.Namespace) -> str:
    """Reads one partition to its end by fetches and by polls, in turn, in answers of 1 MiB."""
    async with connections(node, 1) as [connection]:
        await connection.call("PUT", "/v1/topics/t", {"partitions": 1})
        lines = b"".join(orjson.dumps({"number": n, "text": "x" * 80}) + b"\n" for n in range(10_000))
        for _ in range(20):
            await connection.call("POST", "/v1/topics/t/records", lines, "Content-Type: application/x-ndjson")
        rates: dict[str, list[float]] = {"fetch": [], "poll": []}
        for number in range(5):
            began, position = time.monotonic(), 0
            while position < 200_000:
                path = f"/v1/topics/t/partitions/0/records?offset={position}&max_bytes=1048576"
                position = _next_offset(await connection.call("GET", path))
            rates["fetch"].append(200_000 / (time.monotonic() - began))
            began, position, token = time.monotonic(), 0, ""
            while position < 200_000:
                body = {"topics": ["t"], "max_bytes": 1 << 20, "token": token}
                found = await connection.call("POST", f"/v1/groups/g{number}/members/m/poll", body)
                token, position = _text(found, b'"token":"'), _next_offset(found)
            rates["poll"].append(200_000 / (time.monotonic() - began))
    fetch, poll = max(rates["fetch"]), max(rates["poll"])
    return f"fetch {fetch:,.0f} records/s, poll {poll:,.0f} records/s: {poll / fetch:.0%} (best of 5 each)"


def _text(document: bytes, name: bytes) -> str:
    return document.partition(name)[2].partition(b'"')[0].decode()


def _next_offset(document: bytes) -> int:
    return int(document.partition(b'"next_offset":')[2].partition(b",")[0].rstrip(b"}]"))


@asynccontextmanager
async def tail_reader(node: Node, tails: int, timed: int) -> AsyncIterator[Callable[[], Awaitable[Reading]]]:
    """Reads tails in a process of its own. Yields a function that returns what it has read."""
    command = [sys.executable, "-m", "loadtests.tail_reader", *map(str, (node.port, tails, timed))]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 24
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def reading() -> Reading:
        stdin.write(b"\n")
        return msgspec.json.decode(await stdout.readline(), type=Reading)

    try:
        assert await stdout.readline() == b"ready\n"
        yield reading
    finally:
        stdin.close()
        await process.wait()


@case
async def event_streams(node: Node, options: argparse.Namespace) -> str:
    """Reads tails of one topic in a process of its own, ten of them with the age of the oldest event of each chunk."""
    seconds, rate = 20, 1000
    async with connections(node, 2) as [admin, producer]:
        await admin.call("PUT", "/v1/topics/t", {"partitions": 1})
        async with tail_reader(node, options.tails, 10) as reading:
            cpu_s, began = node.cpu_s, time.monotonic()
            for tick in range(seconds * TICKS_A_SECOND):
                lines = (orjson.dumps(f"at {time.monotonic()} x") + b"\n") * (rate // TICKS_A_SECOND)
                await producer.call("POST", "/v1/topics/t/records", lines, "Content-Type: application/x-ndjson")
                await asyncio.sleep(max(0.0, began + (tick + 1) / TICKS_A_SECOND - time.monotonic()))
            await asyncio.sleep(0.5)
            took_s, used_s = time.monotonic() - began, node.cpu_s - cpu_s
            read = await reading()
    events = seconds * rate * options.tails
    return (
        f"{options.tails} tails, {seconds * rate / took_s:.0f} records/s: oldest event of a chunk "
        f"{percentiles(read.ages_s)} over {len(read.ages_s)} chunks, {read.received_bytes / events:.0f} bytes and "
        f"{used_s / events * 1e6:.1f} us of CPU for each delivered event, {used_s / took_s:.0%} of a core, "
        f"and {read.cpu_s / took_s:.0%} of one for the reader"
    )


@case
async def table(node: Node, options: argparse.Namespace) -> str:
    """Reads the latest values of random keys, one request at a time, each beside a fetch of no records."""
    keys, times, others = options.keys, [], []
    async with connections(node, 1) as [connection]:
        config = {"cleanup_policy": "compact"}
        await connection.call("PUT", "/v1/topics/t", {"partitions": 1, "config": config})
        for first in range(0, keys, 10_000):
            records = [{"key": f"key-{n}", "value": n} for n in range(first, min(keys, first + 10_000))]
            await connection.call("POST", "/v1/topics/t/records", {"records": records})
        draw = random.Random(1)
        began = time.monotonic()
        await connection.call("GET", "/v1/topics/t/table/key-0")
        first_s = time.monotonic() - began
        for _ in range(5000):
            key = draw.randrange(keys)
            began = time.monotonic()
            found = await connection.call("GET", f"/v1/topics/t/table/key-{key}")
            times.append(time.monotonic() - began)
            assert str(key).encode() in found
            began = time.monotonic()
            await connection.call("GET", f"/v1/topics/t/partitions/0/records?offset={keys}")
            others.append(time.monotonic() - began)
    return (
        f"{keys:,} keys: {percentiles(times)} (a fetch of no records between: {percentiles(others)}); "
        f"the first took {first_s:.1f} s; {node.rss_mb:.0f} MB"
    )


@case
async def rebalance(node: Node, options: argparse.Namespace) -> str:
    """Adds a member to a group of 100 with 1,000 partitions, while records flow."""
    members, heartbeat_ms = 100, 5000
    deliveries: list[tuple[float, float, str, int]] = []  # when, latency, member, partition
    async with connections(node, 2) as [admin, producer], connections(node, members + 1) as polling:
        await admin.call("PUT", "/v1/topics/t", {"partitions": 1000})

        async def poll(number: int) -> None:
            body: dict[str, object] = {"topics": ["t"], "wait_ms": heartbeat_ms}
            while True:
                found = await polling[number].json("POST", f"/v1/groups/g/members/m{number}/poll", body)
                body["token"], now = found["token"], time.monotonic()
                for part in found["partitions"]:
                    for record in part["records"]:
                        deliveries.append((now, now - record["value"], f"m{number}", part["partition"]))

        async def produce() -> None:
            while True:
                for partition in range(0, 1000, 5):
                    path = f"/v1/topics/t/partitions/{partition}/records"
                    await producer.call(
                        "POST", path, orjson.dumps(time.monotonic()), "Content-Type: application/x-ndjson"
                    )
                    await asyncio.sleep(0.005)

        async def stable() -> float:
            began = time.monotonic()
            while (await admin.json("GET", "/v1/groups"))["groups"][0]["state"] != "stable":
                await asyncio.sleep(0.02)
            return time.monotonic() - began

        async with running(*map(poll, range(members)), produce()):
            await asyncio.sleep(2)
            first_s = await stable()
            await asyncio.sleep(10)
            began = time.monotonic()
            async with running(poll(members)):
                await asyncio.sleep(0.1)
                second_s = 0.1 + await stable()
                await asyncio.sleep(5)
                until = time.monotonic()
    before = [latency for at, latency, *_ in deliveries if began - 8 < at < began]
    owners: dict[int, set[str]] = {}
    for at, _, member, partition in deliveries:
        if at > began - 8:
            owners.setdefault(partition, set()).add(member)
    stay = [latency for at, latency, _, partition in deliveries if began < at < until and len(owners[partition]) == 1]
    return (
        f"stable {second_s:.2f} s after a member more (at the start after {first_s:.1f} s); partitions that stay: "
        f"{percentiles(stay)}, max {max(stay) * 1e3:.0f} ms; "
        f"before: {percentiles(before)}, max {max(before) * 1e3:.0f} ms"
    )


@contextmanager
def fresh_node(*flags: str) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        node = Node(directory, *flags)
        try:
            yield node
        finally:
            node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--polls", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=8, help="of each open poll")
    parser.add_argument("--callers", type=int, default=1_000)
    parser.add_argument("--tails", type=int, default=200)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    for name in options.cases or CASES:
        with fresh_node() as node:
            print(f"{name}: {asyncio.run(CASES[name](node, options))}", flush=True)


if __name__ == "__main__":
    main()
