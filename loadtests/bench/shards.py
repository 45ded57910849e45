"""Measures a node of several shards beside a node of one process: the processor time of a record, in alternated rounds.

A topic has as many partitions on each shard. Its clients are *led*, each to the shard that has its partition, as the
Python client is; or they stay on the *shared* port, where the kernel gives their connections to any shard. Each round
has a topic of its own, whose log end must be what was acknowledged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from loadtests.bench.cases import FETCH_BYTES, TOPIC_CONFIG, Group, Plan, body_of, groups_of
from loadtests.bench.rounds import SETTLE_S, WARM_UP_GROWTH, WARM_UP_S
from loadtests.generators.generators import Generators
from loadtests.generators.load import Load
from loadtests.generators.percentiles import median
from loadtests.host import proc, servers
from loadtests.host.admin_client import AdminClient
from loadtests.host.pinning import pin_processes

Way = Literal["one", "led", "shared"]
WAYS: tuple[Way, ...] = ("one", "led", "shared")
CONNECTIONS = {"produce": (16, 4), "fetch": (8, 1)}  # and requests at once on each: 64 and 8 under way
PARTITIONS_EACH = 2  # of a topic on a shard
FETCHED_BATCHES = 12  # in each partition: more than an answer has
TARGET = 1.15
NOT_PINNED = "Nothing is pinned (--pin)."
FORWARDED = "penstock_forwarded_requests_total"


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one way. `forwarded`: the part of the requests that another shard has served."""

    cpu_us: float
    records_per_s: float
    forwarded: float


@dataclass(slots=True)
class Measured:
    """The rounds of a group, by way."""

    title: str
    samples: dict[Way, list[Sample]] = field(default_factory=dict)

    def ratio(self, way: Way) -> float:
        """Returns the median ratio to one process within a round."""
        pairs = zip(self.samples[way], self.samples["one"], strict=True)
        return median([sample.cpu_us / single.cpu_us for sample, single in pairs])

    def median(self, way: Way, name: str) -> float:
        return median([getattr(sample, name) for sample in self.samples[way]])


@dataclass(frozen=True, slots=True)
class Node:
    """A running node, and what reads it."""

    server: servers.Server
    control: AdminClient


class ShardRounds:
    """One node of one process, one of several shards, and what they have been measured with so far."""

    def __init__(self, plan: Plan, directory: Path, single: Node, several: Node, generators: Generators) -> None:
        self._plan = plan
        self._directory = directory
        self._nodes: dict[Way, Node] = {"one": single, "led": several, "shared": several}
        self._generators = generators
        self._rates: dict[tuple[str, Way], float] = {}
        self._topics = 0
        self.mismatches: list[str] = []
        self.checked = 0

    def run(self, group: Group, shards: int, show_status: Callable[[str], None]) -> Measured:
        """Runs all rounds of a group, in alternating order."""
        measured = Measured(group.title)
        for number in range(self._plan.rounds):
            for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                show_status(f"round {number + 1} of {self._plan.rounds}: {group.title}, {way}")
                measured.samples.setdefault(way, []).append(self._round(group, way, shards))
                time.sleep(SETTLE_S)
        return measured

    def _round(self, group: Group, way: Way, shards: int) -> Sample:
        node, partitions = self._nodes[way], shards * PARTITIONS_EACH
        self._topics += 1
        topic = f"shards-{self._topics}"
        node.control.create_topic(topic, TOPIC_CONFIG, partitions)
        is_fetch = group.key.startswith("fetch")
        body = body_of("batch" if is_fetch else group.key)
        if is_fetch:
            for number in range(partitions * FETCHED_BATCHES):
                path = f"/v1/topics/{topic}/partitions/{number % partitions}/records"
                node.control.request("POST", path, body.data, content_type=body.media_type)
        loads = [self._load(group, url, topic, numbers) for url, numbers in self._places(node, way, topic).items()]
        acknowledged = self._warm_up(group, way, loads)
        requests = max(64, round(self._rates[group.key, way] * self._plan.round_s))
        before, forwarded = proc.usage(node.server.pid).cpu_s, _forwarded_count(node)
        seconds, good, records = self._send(loads, requests)
        cpu_s = proc.usage(node.server.pid).cpu_s - before
        share = (_forwarded_count(node) - forwarded) / good
        if not is_fetch:
            self._check(group, way, node.control.wait_log_end(topic, acknowledged + records), acknowledged + records)
        node.control.delete_topic(topic)
        return Sample(cpu_s * 1e6 / good, records / seconds, share)

    def _places(self, node: Node, way: Way, topic: str) -> dict[str, list[int]]:
        """Returns the partitions that are asked at each address."""
        if way != "led":
            return {node.server.url: list(range(len(_partitions(node, topic))))}
        places: dict[str, list[int]] = {}
        for number, row in enumerate(_partitions(node, topic)):
            places.setdefault(str(row["leader_url"]), []).append(number)
        return places

    def _load(self, group: Group, url: str, topic: str, numbers: list[int]) -> Load:
        paths = [f"/v1/topics/{topic}/partitions/{number}/records" for number in numbers]
        if group.key.startswith("fetch"):
            (connections, streams), accept = CONNECTIONS["fetch"], group.cells[0].accept
            targets = tuple(f"{path}?offset=0&max_bytes={FETCH_BYTES}" for path in paths)
            return Load(url, targets, 0, connections, streams, headers=(("accept", accept),))
        (connections, streams), body = CONNECTIONS["produce"], body_of(group.key)
        file = self._directory / f"{group.key}.body"
        file.write_bytes(body.data)
        targets = tuple(f"{path}?acks=1" for path in paths)
        return Load(url, targets, 0, connections, streams, file, (("content-type", body.media_type),))

    def _warm_up(self, group: Group, way: Way, loads: list[Load]) -> int:
        """Finds the rate at the first round. Returns the records that were acknowledged."""
        requests, stored = 64, 0
        while True:
            seconds, good, records = self._send(loads, requests)
            stored += records
            if (group.key, way) in self._rates:
                return stored
            if seconds >= WARM_UP_S:
                self._rates[group.key, way] = good / seconds
                return stored
            requests *= WARM_UP_GROWTH

    def _send(self, loads: list[Load], requests: int) -> tuple[float, int, int]:
        """Sends all loads at once, each its part. Returns seconds, good answers and their records."""
        share = len(loads)
        exact = [
            replace(load, requests=max(1, requests // share), connections=max(1, load.connections // share))
            for load in loads
        ]
        with ThreadPoolExecutor(share) as executor:
            sending = partial(self._generators.run_closed, timeout_s=20 * self._plan.round_s + 20)
            outcomes = list(executor.map(sending, exact))
        good = sum(outcome.good for outcome in outcomes)
        for outcome in outcomes:
            if outcome.bad:
                self.mismatches.append(f"{outcome.bad} requests failed: {outcome.what_went_wrong}")
        return max(outcome.seconds for outcome in outcomes), good, good * self._records_each(loads[0])

    def _records_each(self, load: Load) -> int:
        if load.body_file is None:
            return FETCH_BYTES // len(body_of("batch").data) * body_of("batch").records
        return body_of(load.body_file.stem).records

    def _check(self, group: Group, way: Way, seen: int, expected: int) -> None:
        self.checked += 1
        if seen != expected:
            self.mismatches.append(f"{group.title}, {way}: the log ends at {seen}, {expected} were acknowledged")


class Result(NamedTuple):
    """The lines of a report in Markdown, and whether all that was stored is right."""

    lines: list[str]
    is_correct: bool


def run_shards(
    plan: Plan,
    only: str,
    directory: Path,
    shards: int,
    pins: bool,
    generators: Generators,
    show_status: Callable[[str], None],
) -> Result:
    """Measures all groups with one process and with several shards. Raises ServerFailed, GeneratorFailed."""
    line = NOT_PINNED
    with ExitStack() as stack:
        nodes = []
        for name, flags in (("one", ()), ("several", ("--shards", str(shards)))):
            server_directory = directory / name
            server_directory.mkdir()
            server = stack.enter_context(servers.penstock(server_directory, *flags))
            nodes.append(Node(server, AdminClient(server.url)))
        if pins:
            line = stack.enter_context(pin_processes([node.server.pid for node in nodes], shards))
        single, several = nodes
        rounds = ShardRounds(plan, directory, single, several, generators)
        measured = [rounds.run(group, shards, show_status) for group in groups_of(plan, only)]
    checks = f"Checked after {rounds.checked} rounds: {len(rounds.mismatches)} differences."
    is_pinned = line.startswith("Pinned")
    return Result(
        [line, "", *_table(measured, shards, is_pinned), "", checks, *rounds.mismatches], not rounds.mismatches
    )


def _table(measured: list[Measured], shards: int, is_pinned: bool) -> list[str]:
    rate = "rate, led" if is_pinned else "rate, led, computed"
    lines = [
        f"| CPU µs a request | one process | {shards} shards, led | ratio | shared port | ratio | forwarded | {rate} |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in measured:
        cpu = {way: row.median(way, "cpu_us") for way in WAYS}
        led, shared = row.ratio("led"), row.ratio("shared")
        times = row.median("led", "records_per_s") / row.median("one", "records_per_s") if is_pinned else shards / led
        mark = "" if led <= TARGET else " *"
        lines.append(
            f"| {row.title} | {cpu['one']:,.0f} | {cpu['led']:,.0f} | {led:.2f}{mark} | {cpu['shared']:,.0f} "
            f"| {shared:.2f} | {row.median('shared', 'forwarded'):.0%} | {times:.1f} x |"
        )
    if any(row.ratio("led") > TARGET for row in measured):
        lines.append(f"\n\\* above the target of {TARGET}")
    return lines


def _partitions(node: Node, topic: str) -> list[dict[str, object]]:
    _, data = node.control.request("GET", f"/v1/topics/{topic}")
    rows: list[dict[str, object]] = json.loads(data)["partitions"]
    return rows


def _forwarded_count(node: Node) -> float:
    _, data = node.control.request("GET", "/metrics")
    lines = data.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(FORWARDED))
