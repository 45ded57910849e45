"""Measures leadership changes: a killed leader, a stopped leader, a follower that returns.

A failover has two parts: the time until ZooKeeper expires the session of the dead node, which the session timeout
bounds, and the time from there to the first acknowledged write. ZooKeeper is polled directly for that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.cluster.nodes import ClusterNode
from loadtests.cluster_bench.bench_cluster import ZOOKEEPER_PATH, BenchCluster
from loadtests.cluster_bench.rates import body_of
from loadtests.cluster_bench.result import Result
from loadtests.cluster_bench.steady_writer import SteadyWriter, longest_gap
from loadtests.generators.generators import Generators
from loadtests.generators.load import GeneratorFailed, Load
from loadtests.generators.percentiles import median

AFTER_DETECTION_S_MAX = 1.0
MOVE_S_MAX = 0.2
CATCH_UP_MBPS_MIN = 200.0
CATCH_UP_BYTES = 2 << 30
RUN_UP_S = 1.0
TIMEOUT_S = 300.0
LAG_CHECK_S = 0.02
GONE_CHECK_S = 0.005
_DUMPED = b"ephemeral"  # absent while ZooKeeper cannot answer


@contextmanager
def writing(cluster: BenchCluster, topic: str) -> Iterator[tuple[ClusterNode, SteadyWriter]]:
    """Writes at another node while the block ends the topic's leader; afterwards the leader is back and in sync."""
    leader = cluster.leader_of(topic)
    writer = SteadyWriter(cluster.other_than(leader.node_id).url, topic)
    writer.start()
    time.sleep(RUN_UP_S)
    yield leader, writer
    writer.stop()
    cluster.start_again(leader)
    cluster.wait_in_sync(topic)


def failover(cluster: BenchCluster, times: int, session_timeout_ms: int, show_status: Callable[[str], None]) -> Result:
    """Measures kill -9 of the leader's processes, several times, with a writer at another node."""
    cluster.create_topic("failover")
    detections, recoveries = [], []
    for number in range(times):
        show_status(f"failover {number + 1} of {times}")
        with writing(cluster, "failover") as (leader, writer):
            killed = time.monotonic()
            leader.kill()
            dead = wait_session_expired(cluster, leader.node_id, 3 * session_timeout_ms / 1000)
            writer.wait_beyond(dead)
        gap = longest_gap(writer.acknowledged, killed)
        detections.append(dead - killed)
        recoveries.append(max(0.0, gap.ended - dead))
    cluster.control().delete_topic("failover")
    worst = max(recoveries)
    figure = f"{median(recoveries):.2f} s (most {worst:.2f} s)"
    more = (
        f"detection {median(detections):.1f} s (most {max(detections):.1f} s), session timeout {session_timeout_ms} ms"
    )
    what = f"leader killed: from its session's end to the first acknowledged write, {times} times"
    return Result(what, "under 1 s", figure, worst < AFTER_DETECTION_S_MAX, more)


def move(cluster: BenchCluster, times: int, show_status: Callable[[str], None]) -> Result:
    """Measures SIGTERM to the leader, which hands over its leadership before it exits."""
    cluster.create_topic("move")
    gaps, refused = [], 0
    for number in range(times):
        show_status(f"clean move {number + 1} of {times}")
        with writing(cluster, "move") as (leader, writer):
            requested_at = time.monotonic()
            leader.stop()
            writer.wait_beyond(time.monotonic())
        gaps.append(longest_gap(writer.acknowledged, requested_at).seconds)
        refused += len(writer.refused)
    cluster.control().delete_topic("move")
    figure = f"{median(gaps) * 1000:.0f} ms (most {max(gaps) * 1000:.0f} ms)"
    what = f"clean move of a leadership (SIGTERM): longest time without an acknowledged write, {times} times"
    return Result(
        what, "under 200 ms", figure, max(gaps) < MOVE_S_MAX, f"{refused} answers that a client had to handle"
    )


def catch_up(
    cluster: BenchCluster, generators: Generators, show_status: Callable[[str], None], size: int = CATCH_UP_BYTES
) -> Result:
    """Measures a follower that was stopped and missed gigabytes."""
    cluster.create_topic("catch-up")
    leader = cluster.leader_of("catch-up")
    follower = cluster.other_than(leader.node_id)
    follower.kill()
    cluster.until(
        "the follower is left out", lambda: len(cluster.partitions("catch-up", follower.node_id)[0]["in_sync"]) == 2
    )
    show_status("catch-up: writing what it misses")
    stored = _fill(generators, leader.url, size, cluster.directory / "catch-up.body")
    show_status("catch-up: the follower is back")
    began_start = time.monotonic()
    follower.begin_start()
    first, ended = _watch_catch_up(cluster, follower)
    follower.wait_until_ready()
    seconds = ended - first
    rate = stored / seconds / 1e6
    cluster.control().delete_topic("catch-up")
    whole_s = ended - began_start
    more = (
        f"{stored / 1e9:.1f} GB in {seconds:.1f} s; {whole_s:.1f} s from the start of its process until it is in sync"
    )
    what = "a follower that missed it catches up"
    return Result(what, "200 MB/s or more", f"{rate:,.0f} MB/s", rate >= CATCH_UP_MBPS_MIN, more)


def _fill(generators: Generators, url: str, size: int, file: Path) -> int:
    body = body_of("batch-1mib")
    file.write_bytes(body.data)
    load = Load(
        url=url,
        targets=("/v1/topics/catch-up/records?acks=all",),
        requests=max(1, size // len(body.data)),
        connections=4,
        streams=4,
        body_file=file,
        headers=(("content-type", body.media_type),),
    )
    outcome = generators.run_closed(load, timeout_s=300)
    if outcome.bad:
        raise GeneratorFailed(f"{outcome.bad} produces failed: {outcome.what_went_wrong}")
    return outcome.good * len(body.data)


def _watch_catch_up(cluster: BenchCluster, follower: ClusterNode) -> tuple[float, float]:
    """Returns when the follower's files began to grow, and when it was in sync."""
    before, first = _stored_bytes(cluster, follower), None
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        row, now = cluster.partitions("catch-up", follower.node_id)[0], time.monotonic()
        if follower.node_id in row["in_sync"]:
            return first or now, now
        if first is None and _stored_bytes(cluster, follower) > before:
            first = now
        time.sleep(LAG_CHECK_S)
    raise GeneratorFailed(f"the follower was not in sync again within {TIMEOUT_S:.0f} s")


def _stored_bytes(cluster: BenchCluster, node: ClusterNode) -> int:
    """Returns the bytes of the topic's segments from the file system, without a call to the busy node."""
    path = cluster.directory / f"node-{node.node_id}" / "topics" / "catch-up"
    return sum(file.stat().st_size for file in path.glob("*/*/*.log"))


def wait_session_expired(cluster: BenchCluster, node_id: int, timeout_s: float) -> float:
    """Returns when ZooKeeper has removed a node's registration, polled every few ms. Raises GeneratorFailed."""
    path = f"{ZOOKEEPER_PATH}/nodes/{node_id}".encode()
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        dump = cluster.zookeeper.send_command(b"dump")
        if _DUMPED in dump and path not in dump:
            return time.monotonic()
        time.sleep(GONE_CHECK_S)
    raise GeneratorFailed(f"ZooKeeper kept node {node_id} for more than {timeout_s:.0f} s")
