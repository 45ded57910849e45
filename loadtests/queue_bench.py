"""`make bench-queues`: share groups, push and compaction. Each case has its own node, and prints one line of figures.

The callers run in this process; the receiver of push is a process of its own. They share the machine with the node.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

from loadtests.group_bench import HOST, Connection, connections, fresh_node, running

RECORD = b'{"text":"' + b"x" * 80 + b'"}\n'
NDJSON = "Content-Type: application/x-ndjson"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 # a secret of this node, which is thrown away


async def fill(connection: Connection, count: int) -> None:
    for _ in range(count // 10_000):
        await connection.call("POST", "/v1/topics/t/records", RECORD * 10_000, NDJSON)


async def share_outcomes(options: argparse.Namespace) -> str:
    """Acquires and accepts records, a hundred a request, by four callers."""
    accepted = 0
    with fresh_node() as node:
        async with connections(node, 1) as [admin], connections(node, 4) as calling:
            await admin.call("PUT", "/v1/topics/t", {"partitions": 4})
            await fill(admin, options.records)

            async def call(connection: Connection) -> None:
                nonlocal accepted
                while True:
                    wish = {"topics": ["t"], "max_records": 100, "wait_ms": 1000}
                    found = await connection.json("POST", "/v1/groups/g/acquire", wish)
                    if found["records"]:
                        done = await connection.json("POST", "/v1/groups/g/acknowledge", {"lock": found["lock"]})
                        accepted += done.get("acknowledged", len(found["records"]))

            cpu_s, began = node.cpu_s, time.monotonic()
            async with running(*map(call, calling)):
                while accepted < options.records and time.monotonic() < began + 60:
                    await asyncio.sleep(0.01)
                took_s, used_s = time.monotonic() - began, node.cpu_s - cpu_s
    return (
        f"{accepted / took_s:,.0f} records/s accepted, {accepted / used_s:,.0f} for each second of CPU "
        f"({used_s / took_s:.0%} of a core, caller and node on one machine)"
    )


async def push(options: argparse.Namespace, form: str, count: int) -> str:
    with receiving() as port, fresh_node("--push-targets", "127.0.0.0/8", "--push-http", "--push-unconfirmed") as node:
        async with connections(node, 1) as [admin]:
            await admin.call("PUT", "/v1/topics/t", {"partitions": 4})
            await fill(admin, count)
            delivery = {"form": form, "concurrency_max": 32, "order": "none"}
            target = {"url": f"http://{HOST}:{port}/hook", "secrets": [SECRET]}
            wish = {**target, "topics": ["t"], "start": "earliest", "delivery": delivery}
            cpu_s, began = node.cpu_s, time.monotonic()
            await admin.call("PUT", "/v1/subscriptions/s", wish)
            delivered = 0
            while delivered < count and time.monotonic() < began + 60:
                await asyncio.sleep(0.1)
                delivered = (await admin.json("GET", "/v1/subscriptions/s"))["delivered"]
            took_s, used_s = time.monotonic() - began, node.cpu_s - cpu_s
    return f"{delivered / took_s:,.0f} events/s, {delivered / used_s:,.0f} for each second of the node's CPU"


async def push_batches(options: argparse.Namespace) -> str:
    """Pushes batches of a hundred events."""
    return await push(options, "batch", options.records)


async def push_single(options: argparse.Namespace) -> str:
    """Pushes one event a request."""
    return await push(options, "structured", 20_000)


async def compaction(options: argparse.Namespace) -> str:
    """Compacts a log with ten records of each key, as fast as it can."""
    keys, rounds = 20_000, 10
    flags = ("--compaction-check-ms", "50", "--compaction-bytes-per-second", str(4 << 30))
    with fresh_node(*flags) as node:
        async with connections(node, 1) as [admin]:
            await admin.call("PUT", "/v1/topics/t", {"partitions": 1})
            for number in range(rounds):
                for first in range(0, keys, 2000):
                    value = f"{number} " + "x" * 1000
                    records = [{"key": f"key-{n}", "value": value} for n in range(first, first + 2000)]
                    await admin.call("POST", "/v1/topics/t/records", {"records": records})
            await admin.call("POST", "/v1/topics/t/roll")
            log_bytes = await metric(admin, "penstock_log_bytes")
            cpu_s, began = node.cpu_s, time.monotonic()
            await admin.call("PATCH", "/v1/topics/t", {"config": {"cleanup_policy": "compact"}})
            removed, wanted = 0.0, keys * (rounds - 1)
            while removed < wanted and time.monotonic() < began + 120:
                await asyncio.sleep(0.05)
                removed = await metric(admin, "penstock_compaction_removed_records_total")
            took_s, used_s = time.monotonic() - began, node.cpu_s - cpu_s
            rss_mb = node.rss_mb
    return (
        f"{log_bytes / 1e6:.0f} MB in {took_s:.1f} s, {log_bytes / 1e6 / used_s:.0f} MB for each second of CPU, "
        f"{removed:,.0f} of {wanted:,} records removed, {rss_mb:.0f} MB of memory"
    )


async def metric(connection: Connection, name: str) -> float:
    text = (await connection.call("GET", "/metrics")).decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))


@contextmanager
def receiving() -> Iterator[int]:
    """Runs a receiver that takes everything. Yields its port."""
    process = subprocess.Popen([sys.executable, "-m", "loadtests.queue_bench", "receive"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def receive() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


CASES: dict[str, Callable[[argparse.Namespace], Coroutine[None, None, str]]] = {
    "share-outcomes": share_outcomes,
    "push-batches": push_batches,
    "push-single": push_single,
    "compaction": compaction,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--records", type=int, default=200_000)
    options = parser.parse_args()
    if options.cases == ["receive"]:
        asyncio.run(receive())
        return
    for name in options.cases or CASES:
        print(f"{name}: {asyncio.run(CASES[name](options))}", flush=True)


if __name__ == "__main__":
    main()
