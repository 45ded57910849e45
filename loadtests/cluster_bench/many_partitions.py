"""Thousands of partitions: their cost while idle, the time of a start, and one node's failure."""

from __future__ import annotations

import time
from collections.abc import Callable

from loadtests.cluster_bench.bench_cluster import NODES, BenchCluster
from loadtests.cluster_bench.leadership import AFTER_DETECTION_S_MAX, wait_session_expired
from loadtests.cluster_bench.result import Result
from loadtests.cluster_bench.write_once import write_once
from loadtests.host import proc

PER_TOPIC = 100
IDLE_S = 20.0
TIMEOUT_S = 240.0
SETTLE_S = 5.0


def many(
    cluster: BenchCluster, partitions: int, session_timeout_ms: int, show_status: Callable[[str], None]
) -> list[Result]:
    """Creates partitions of three replicas and measures them."""
    show_status("an empty cluster, idle")
    empty = _idle(cluster)
    topics = [f"many-{number}" for number in range(partitions // PER_TOPIC)]
    show_status(f"making {partitions:,} partitions")
    began = time.monotonic()
    for topic in topics:
        cluster.create_topic(topic, PER_TOPIC)
    made_s = time.monotonic() - began
    _wait_fully_replicated(cluster, partitions)
    show_status(f"{partitions:,} partitions, idle")
    full = _idle(cluster)
    results = [_cost(empty, full, partitions), Result("making them", "", f"{made_s:.1f} s", None)]
    results += _measure_failover(cluster, partitions, topics, session_timeout_ms, show_status)
    results.append(_measure_start(cluster, partitions, show_status))
    return results


def _idle(cluster: BenchCluster) -> tuple[float, int]:
    """Returns the CPU share of a core and the memory of all nodes together."""
    time.sleep(SETTLE_S)
    before, began = cluster.usage(), time.monotonic()
    time.sleep(IDLE_S)
    after: proc.Usage = cluster.usage()
    return (after.cpu_s - before.cpu_s) / (time.monotonic() - began), after.rss_bytes


def _cost(empty: tuple[float, int], full: tuple[float, int], partitions: int) -> Result:
    replicas = partitions * NODES
    cpu, memory = full[0] - empty[0], full[1] - empty[1]
    figure = f"{cpu / replicas * 1e6:,.1f} µs of CPU a second and {memory / replicas / 1024:,.0f} kB a replica"
    more = (
        f"all nodes together {full[0]:.0%} of a core, {full[1] / 1e6:,.0f} MB; "
        f"empty {empty[0]:.0%}, {empty[1] / 1e6:,.0f} MB"
    )
    return Result(f"{partitions:,} partitions of three replicas, idle", "", figure, None, more)


def _measure_failover(
    cluster: BenchCluster,
    partitions: int,
    topics: list[str],
    session_timeout_ms: int,
    show_status: Callable[[str], None],
) -> list[Result]:
    """Measures the time from the dead node's expiry in ZooKeeper to an acknowledged write to each partition that it
    led.
    """
    show_status(f"{partitions:,} partitions: one node is killed")
    victim = cluster.nodes[0]
    led = [
        (topic, row["partition"])
        for topic in topics
        for row in cluster.partitions(topic)
        if row["leader"] == victim.node_id
    ]
    killed = time.monotonic()
    victim.kill()
    dead = wait_session_expired(cluster, victim.node_id, 3 * session_timeout_ms / 1000)
    acknowledged = write_once(cluster.other_than(victim.node_id).url, led)
    first, last = min(acknowledged) - dead, max(acknowledged) - dead
    written = time.monotonic()
    cluster.start_again(victim)
    _wait_fully_replicated(cluster, partitions)
    back = time.monotonic()
    more = f"detection {dead - killed:.1f} s; started again and all replicas in sync {back - written:.1f} s later"
    what = f"{partitions:,} partitions, a node is killed that led {len(led):,}: from its detection on"
    target = f"under {AFTER_DETECTION_S_MAX:g} s"
    return [
        Result(
            f"{what} to the first acknowledged write", target, f"{first:.2f} s", first < AFTER_DETECTION_S_MAX, more
        ),
        Result(f"{what} until each of them has acknowledged one", "", f"{last:.2f} s", None),
    ]


def _measure_start(cluster: BenchCluster, partitions: int, show_status: Callable[[str], None]) -> Result:
    show_status(f"{partitions:,} partitions: all nodes start again")
    for node in cluster.nodes:
        node.begin_stop()
    for node in cluster.nodes:
        cluster.wait_stopped(node, TIMEOUT_S)
    began = time.monotonic()
    for node in cluster.nodes:
        node.begin_start()
    for node in cluster.nodes:
        node.wait_until_ready()
    ready = time.monotonic()
    _wait_fully_replicated(cluster, partitions)
    started = time.monotonic()
    more = f"every node says it is ready after {ready - began:.1f} s"
    return Result(
        f"{partitions:,} partitions: three nodes start, all replicas in sync",
        "",
        f"{started - began:.1f} s",
        None,
        more,
    )


def _wait_fully_replicated(cluster: BenchCluster, partitions: int) -> None:
    def is_fully_replicated() -> bool:
        nodes = cluster.cluster()["nodes"]
        alive = [node for node in nodes if node["alive"]]
        led = sum(node["leading"] for node in alive)
        lacking = sum(node["under_replicated"] for node in nodes)
        return len(alive) == NODES and led >= partitions and lacking == 0

    cluster.until("all replicas are in sync", is_fully_replicated, TIMEOUT_S)
