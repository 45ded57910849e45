"""Measures the produce rate of a cluster: stored batches of 1 MB, acks=all, beside a single node in the same rounds.

Closed loops use the leader's own address. Rounds alternate, so that other load on the machine affects both. Then an
open loop runs at half of the cluster's rate; its times count from the schedule.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from urllib.parse import urlsplit

from loadtests.cluster_bench.bench_cluster import QUIET, BenchCluster
from loadtests.cluster_bench.result import Result
from loadtests.generators.bodies import Body, batch_body, json_values, raw_body
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed, Load
from loadtests.generators.open_loop import Schedule
from loadtests.generators.percentiles import latency_of, median
from loadtests.host import proc
from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import Server

RATIO_MIN = 1 / 3
CPU_RATIO_MAX = 3.2  # of all nodes together, of a single node's
LEADER_SHARE_MIN = 0.6  # of a single node's rate, on a core of the leader's
HALF_LOAD_P99_MS_MAX = 30.0
ROUND_BYTES_MAX = 600 << 20  # a cluster stores it three times
FIRST_REQUESTS = 64


@dataclass(frozen=True, slots=True)
class Round:
    """`leader_cpu_s_each` is that of the node that takes the requests."""

    per_s: float
    cpu_s_each: float
    leader_cpu_s_each: float
    latency_p99_ms: float


def body_of(group: str) -> Body:
    if group == "single":
        return raw_body(json_values(1)[0])
    return batch_body(json_values(1000, size_bytes=1000), time.time_ns() // 1_000_000)


class Rates:
    """Measures one kind of body on the cluster and on the single node."""

    def __init__(
        self, cluster: BenchCluster, single: Server, generators: Generators, group: str, connections: int
    ) -> None:
        self._cluster = cluster
        self._single = single
        self._generators = generators
        self._group = group
        self._connections = connections
        self._body: Body = body_of(group)
        self._file = cluster.directory / f"{group}.body"
        self._file.write_bytes(self._body.data)
        self._numbers = 0

    def compare(self, rounds: int, round_s: float, show_status: Callable[[str], None]) -> tuple[list[Result], float]:
        """Returns the figures and the rate of the cluster. Raises GeneratorFailed if a record was not stored."""
        alone, together = [], []
        for number in range(rounds):
            show_status(f"{self._group}, round {number + 1} of {rounds}: single node")
            alone.append(self._single_round(round_s))
            show_status(f"{self._group}, round {number + 1} of {rounds}: three replicas")
            together.append(self._cluster_round(round_s))
        ratios = [cluster.per_s / single.per_s for single, cluster in zip(alone, together, strict=True)]
        ratio, rate = median(ratios), median([sample.per_s for sample in together])
        single_rate, size = median([sample.per_s for sample in alone]), len(self._body.data)
        figure = f"{ratio:.0%} ({self._format_rate(rate, size)} of {self._format_rate(single_rate, size)})"
        cpu = [median([sample.cpu_s_each for sample in samples]) * 1000 for samples in (together, alone)]
        more = f"CPU a request, all nodes together: {cpu[0]:.2f} ms; a single node: {cpu[1]:.2f} ms"
        what = f"{self._title}, acks=all, three replicas, of a single node's rate"
        is_met = ratio >= RATIO_MIN if self._group == "batch-1mib" else None
        target = "at least a third" if is_met is not None else ""
        return [Result(what, target, figure, is_met, more), *self._cpu_results(alone, together)], rate

    def _cpu_results(self, alone: list[Round], together: list[Round]) -> list[Result]:
        pairs = list(zip(alone, together, strict=True))
        costs = [_ratio(cluster.cpu_s_each, single.cpu_s_each) for single, cluster in pairs]
        shares = [_ratio(single.cpu_s_each, cluster.leader_cpu_s_each) for single, cluster in pairs]
        cost, share = median(costs), median(shares)
        spread = f"rounds: {min(costs):.2f} to {max(costs):.2f}"
        rates = [
            _ratio(1.0, median([sample.cpu_s_each for sample in alone])),
            _ratio(1.0, median([sample.leader_cpu_s_each for sample in together])),
        ]
        per_core = (
            f"computed from CPU: {rates[1]:,.0f} of {rates[0]:,.0f} requests/s on a core of its own for each node"
        )
        cpu = f"{self._title}, acks=all, three replicas, CPU of all nodes of a single node's"
        rate = f"{self._title}, acks=all, three replicas, rate per core of a single node's"
        return [
            Result(cpu, "at most 3.2", f"{cost:.2f}", cost <= CPU_RATIO_MAX, spread),
            Result(rate, "at least 60%", f"{share:.0%}", share >= LEADER_SHARE_MIN, per_core),
        ]

    def at_half_load(self, rate: float, seconds: float, show_status: Callable[[str], None]) -> Result:
        """Measures the latency at half of a rate. Raises GeneratorFailed."""
        half = rate / 2
        show_status(f"{self._group}: at half load, {half:,.0f}/s")
        topic = self._topic()
        self._cluster.create_topic(topic)
        leader = self._cluster.leader_of(topic)
        schedule = Schedule(half, max(100, round(half * seconds)))
        target = f"/v1/topics/{topic}/records?acks=all"
        headers = (("Content-Type", self._body.media_type),)
        outcome = self._generators.run_open(
            leader.url, urlsplit(leader.url).netloc, target, self._body.data, schedule, headers
        )
        if outcome.bad:
            raise GeneratorFailed(f"{outcome.bad} produces failed: {outcome.what_went_wrong}")
        self._cluster.control().delete_topic(topic)
        latency, late = latency_of(outcome.durations_us), latency_of(outcome.send_delays_us)
        p99_ms = latency.p99_ms if latency.p99_ms is not None else latency.max_ms or 0.0
        more = (
            f"p50 {latency.p50_ms:.1f} ms, most {latency.max_ms:.0f} ms; sent {late.p50_ms:.1f} ms after schedule (p50)"
        )
        what = f"{self._title}, acks=all, three replicas, p99 at half load ({half:,.0f}/s)"
        return Result(what, "under 30 ms", f"{p99_ms:.1f} ms", p99_ms < HALF_LOAD_P99_MS_MAX, more)

    @property
    def _title(self) -> str:
        return "stored batches of 1 MB" if self._group == "batch-1mib" else "single records of 100 B"

    def _format_rate(self, per_s: float, size: int) -> str:
        return f"{per_s * size / 1e6:,.0f} MB/s" if size > 10_000 else f"{per_s:,.0f}/s"

    def _topic(self) -> str:
        self._numbers += 1
        return f"rates-{self._group}-{self._numbers}"

    def _single_round(self, round_s: float) -> Round:
        control, topic = AdminClient(self._single.url), self._topic()
        control.create_topic(topic, QUIET)
        try:
            return self._round(self._single.url, topic, round_s, [self._single.pid], control)
        finally:
            control.delete_topic(topic)

    def _cluster_round(self, round_s: float) -> Round:
        topic = self._topic()
        self._cluster.create_topic(topic)
        try:
            leader = self._cluster.leader_of(topic)
            others = [node.pid for node in self._cluster.nodes if node is not leader and node.is_running]
            return self._round(leader.url, topic, round_s, [leader.pid, *others], AdminClient(leader.url))
        finally:
            self._cluster.control().delete_topic(topic)

    def _round(self, url: str, topic: str, round_s: float, pids: list[int], control: AdminClient) -> Round:
        """Measures a round of the nodes with these processes, the leader's first."""
        warm = self._send(url, topic, FIRST_REQUESTS)
        target_requests = round(FIRST_REQUESTS / warm[1] * round_s)
        requests = max(FIRST_REQUESTS, min(target_requests, ROUND_BYTES_MAX // len(self._body.data)))
        before = [proc.usage(pid).cpu_s for pid in pids]
        good, seconds, p99_ms = self._send(url, topic, requests)
        used_s = [proc.usage(pid).cpu_s - cpu_s for pid, cpu_s in zip(pids, before, strict=True)]
        expected = (good + warm[0]) * self._body.records
        if (end := control.wait_log_end(topic, expected)) != expected:
            raise GeneratorFailed(f"{topic}: {expected} records were acknowledged, the log ends at {end}")
        return Round(good / seconds, sum(used_s) / good, used_s[0] / good, p99_ms)

    def _send(self, url: str, topic: str, requests: int) -> tuple[int, float, float]:
        load = Load(
            url=url,
            targets=(f"/v1/topics/{topic}/records?acks=all",),
            requests=requests,
            connections=self._connections,
            streams=4,
            body_file=Path(self._file),
            headers=(("content-type", self._body.media_type),),
        )
        outcome = self._generators.run_closed(load, timeout_s=120)
        if outcome.bad:
            raise GeneratorFailed(f"{outcome.bad} produces failed: {outcome.what_went_wrong}")
        return outcome.good, outcome.seconds, latency_of(outcome.durations_us).p99_ms or 0.0


def _ratio(dividend: float, divisor: float) -> float:
    """Returns infinity for a round that was too short for the kernel's clock of processor time."""
    return dividend / divisor if divisor else inf


def wait_for_disk(seconds: float = 1.0) -> None:
    """Waits for deleted files and last flushes of a measurement."""
    time.sleep(seconds)
