"""`make push-kills`: push in a cluster whose leaders die, to a receiver that is slow and answers 429 and 500.

Exits with 1 if a record is missed, or the records of a key come in another order. Repeats are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, web

from engine.format.paths import GROUPS_TOPIC
from loadtests.cluster.nodes import ClusterNode
from loadtests.cluster.zookeeper import Zookeeper, reserve_port
from tests.scenarios.push.receiver import Receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NODES = (1, 2, 3)
SESSION_MS = 2000
PARTITIONS, KEYS = 3, 12
EACH = 20  # records of a produce request, all of one key
QUIET_S = 120.0  # for what is left after the last kill
ANSWERS = (None, None, None, None, 429, 500)


class Report(NamedTuple):
    """What the receiver took. `missed` and `disordered` name keys."""

    produced: int
    taken: int
    requests: int
    errors: int
    missed: list[str]
    disordered: list[str]


class SlowReceiver(Receiver):
    """Takes up to 0.2 s for an answer, and answers 429 and 500 now and then, until it is calm."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__([SECRET])
        self._dice = dice
        self.is_calm = False
        self.answer = self._answered

    async def _post(self, request: web.Request) -> web.Response:
        if not self.is_calm:
            await asyncio.sleep(0.2 * self._dice.random() ** 3)
        return await super()._post(request)

    def _answered(self, events: list[dict[str, Any]]) -> web.Response | None:
        status = None if self.is_calm else self._dice.choice(ANSWERS)
        return None if status is None else web.Response(status=status, headers={"Retry-After": "0"})


class Cluster:
    """Three nodes and ZooKeeper. Any of the nodes may be away."""

    def __init__(self, directory: Path) -> None:
        self._zookeeper = Zookeeper(directory / "zookeeper")
        self._zookeeper.start()
        (directory / "store").mkdir()
        self.nodes = {}
        for number in NODES:
            given: dict[str, object] = {"store": (directory / "store").as_uri(), "session-timeout-ms": SESSION_MS}
            given |= {"default-replication-factor": 3, "push-targets": "127.0.0.0/8", "push-http": True}
            with reserve_port() as port:
                given["port"] = port.getsockname()[1]
            place = f"zookeeper://127.0.0.1:{self._zookeeper.port}/push"
            self.nodes[number] = ClusterNode(number, directory, place, given)
            self.nodes[number].begin_start()
        for node in self.nodes.values():
            node.wait_until_ready()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()
        self._zookeeper.kill()


class Calls:
    """Requests that go to one node after the other until one of them takes it."""

    def __init__(self, session: ClientSession, cluster: Cluster) -> None:
        self._session, self._cluster = session, cluster
        self._number = 0

    async def call(self, method: str, path: str, document: object = None, **headers: str) -> Any:
        deadline = time.monotonic() + QUIET_S
        body = None if document is None else orjson.dumps(document)
        while True:
            node = self._cluster.nodes[NODES[self._number % len(NODES)]]
            try:
                given = {"Content-Type": "application/json", **headers}
                async with self._session.request(method, f"{node.url}{path}", data=body, headers=given) as answer:
                    if answer.status < 300:
                        return orjson.loads(await answer.read())
                    said = await answer.text()
                    assert answer.status in (408, 409, 429, 500, 503, 504), said
            except (ClientError, TimeoutError, OSError) as error:
                said = repr(error)
            assert time.monotonic() < deadline, said
            self._number += 1
            await asyncio.sleep(0.1)


async def produce(calls: Calls, stopping: asyncio.Event) -> list[int]:
    """Stores numbered records of each key, each once, until `stopping`. Returns how many each key has."""
    counts = [0] * KEYS
    number = 0
    while not stopping.is_set():
        key = number % KEYS
        records = [{"key": f"k{key}", "value": counts[key] + at} for at in range(EACH)]
        path = f"/v1/topics/t/partitions/{key % PARTITIONS}/records"
        await calls.call("POST", path, {"records": records}, **{"Idempotency-Key": f'"{number}"'})
        counts[key] += EACH
        number += 1
        await asyncio.sleep(0.02)
    return counts


async def kill(calls: Calls, cluster: Cluster, dice: random.Random) -> None:
    """Kills the leader of a partition of the topic, or of the groups, and starts it after its session."""
    topic = dice.choice(("t", GROUPS_TOPIC))
    leaders: list[int] = []
    while not leaders:
        partitions = (await calls.call("GET", f"/v1/topics/{topic}"))["partitions"]
        leaders = [one["leader"] for one in partitions if one["leader"] is not None]
    node = cluster.nodes[dice.choice(leaders)]
    node.kill()
    await asyncio.sleep(1.5 * SESSION_MS / 1000)
    node.begin_start()
    await asyncio.to_thread(node.wait_until_ready)


async def run(directory: Path, kills: int, seed: int, say: Callable[[str], object] = print) -> Report:
    dice = random.Random(seed)
    receiver = SlowReceiver(dice)
    with ExitStack() as stack:
        cluster = await asyncio.to_thread(Cluster, directory)
        stack.callback(cluster.stop)
        await receiver.start()
        async with ClientSession(timeout=ClientTimeout(30)) as session:
            calls = Calls(session, cluster)
            await calls.call("PUT", "/v1/topics/t", {"partitions": PARTITIONS})
            delivery = {"backoff_ms_min": 20, "backoff_ms_max": 200, "concurrency_max": 4}
            wish = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET], "delivery": delivery}
            await calls.call("PUT", "/v1/subscriptions/s", wish)
            stopping = asyncio.Event()
            producing = asyncio.create_task(produce(Calls(session, cluster), stopping))
            for number in range(kills):
                await kill(calls, cluster, dice)
                await asyncio.sleep(dice.random())
                say(f"{number + 1} of {kills} kills, {len(receiver.taken)} events taken")
            stopping.set()
            counts = await producing
            receiver.is_calm = True
            wanted, deadline = sum(counts), time.monotonic() + QUIET_S
            while time.monotonic() < deadline and _distinct(receiver) < wanted:
                await asyncio.sleep(0.2)
        await receiver.stop()
    return judged(receiver, counts)


def _distinct(receiver: Receiver) -> int:
    return len({(event["partitionkey"], event["data"]) for event in receiver.taken})


def judged(receiver: Receiver, counts: list[int]) -> Report:
    missed, disordered = [], []
    for key, count in enumerate(counts):
        seen = [event["data"] for event in receiver.taken if event["partitionkey"] == f"k{key}"]
        first = list(dict.fromkeys(seen))
        if sorted(first) != list(range(count)):
            missed.append(f"k{key}: {len(first)} of {count}")
        if first != sorted(first):
            disordered.append(f"k{key}")
    errors = sum(status != 200 for _, status in receiver.requests)
    return Report(sum(counts), len(receiver.taken), len(receiver.requests), errors, missed, disordered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # connections of killed nodes end in a request
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        report = asyncio.run(run(Path(directory), options.kills, options.seed))
    print(f"{report} in {time.monotonic() - began:.0f} s")
    sys.exit(bool(report.missed or report.disordered))


if __name__ == "__main__":
    main()
