"""Records what a real node answers for the overview: `python -m tests.console.recording --minutes 30`.

The load has a fixed seed: three topics, a group that keeps up, and one whose only member ends after four fifths of the
time. pictures.py shows the answers of RECORDED, so that a picture has the same bytes until it is recorded again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from penstock import Client
from tests.console.node import CITIES, Node, start_node
from tests.console.pictures import RECORDED

CALLS = ("overview", "history")
DATA_DIR = "/var/lib/penstock"  # in place of the temporary directory
TOPICS = {"rides": (4, 40), "payments": (3, 8), "clicks": (8, 120)}  # partitions, records a request
REQUESTS_PER_S = 12
READERS = {"analytics": ("rides", 1.0), "billing": ("payments", 0.8)}  # topic, part of the time
DIGITS = 4


async def produce(client: Client, topic: str, ends_at: float) -> None:
    random, count = Random(topic), TOPICS[topic][1]
    while (now := time.monotonic()) < ends_at:
        wave = 1 + 0.3 * math.sin((ends_at - now) / 140) + random.uniform(-0.05, 0.05)
        rides = [{"city": random.choice(CITIES), "fare": random.randrange(400, 6000)} for _ in range(int(count * wave))]
        await client.post_records(topic, b"".join(json.dumps(ride).encode() + b"\n" for ride in rides))
        await asyncio.sleep(max(0.0, now + 1 / REQUESTS_PER_S - time.monotonic()))


async def consume(client: Client, group: str, topic: str, ends_at: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(ends_at - time.monotonic()), client.consumer(group=group, topics=[topic]) as reader:
            async for _ in reader:
                pass


async def load(url: str, seconds: float) -> None:
    begins_at = time.monotonic()
    async with Client(url) as client, asyncio.TaskGroup() as tasks:
        for topic, (partitions, _) in TOPICS.items():
            await client.create_topic(topic, partitions=partitions)
        for topic in TOPICS:
            tasks.create_task(produce(client, topic, begins_at + seconds))
        for group, (topic, part) in READERS.items():
            tasks.create_task(consume(client, group, topic, begins_at + part * seconds))


def rounded(value: Any) -> Any:
    """Returns a document with numbers of few digits, so that the file is small."""
    if isinstance(value, dict):
        return {name: rounded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [rounded(member) for member in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.console.recording")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--port", type=int, default=18090)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        with start_node(Path(directory), options.port, sys.executable) as node:
            asyncio.run(load(node.url, options.minutes * 60))
            answers = answers_of(node)
        text = json.dumps(rounded(answers), separators=(",", ":")).replace(f"{directory}/data", DATA_DIR)
    assert directory not in text
    RECORDED.write_text(text + "\n")
    return 0


def answers_of(node: Node) -> dict[str, Any]:
    return {call: node.ask("GET", f"/v1/{call}") for call in CALLS}


if __name__ == "__main__":
    sys.exit(main())
