"""Thousands of partitions: what they cost when nothing happens, how long a start takes, and one node's failure."""

from __future__ import annotations

import time
from collections.abc import Callable

from loadtests.bench import proc
from loadtests.cluster_bench.changes import AFTER_DETECTION_S_MAX, gone
from loadtests.cluster_bench.result import Result
from loadtests.cluster_bench.scene import NODES, Scene
from loadtests.cluster_bench.write_once import written_once

PER_TOPIC = 100
IDLE_S = 20.0
PATIENCE_S = 240.0
SETTLE_S = 5.0


def many(scene: Scene, partitions: int, session_timeout_ms: int, tell: Callable[[str], None]) -> list[Result]:
    """Makes that many partitions of three replicas, and leaves them."""
    tell("an empty cluster, idle")
    empty = _idle(scene)
    topics = [f"many-{number}" for number in range(partitions // PER_TOPIC)]
    tell(f"making {partitions:,} partitions")
    began = time.monotonic()
    for topic in topics:
        scene.create_topic(topic, PER_TOPIC)
    made_s = time.monotonic() - began
    _wait_whole(scene, partitions)
    tell(f"{partitions:,} partitions, idle")
    full = _idle(scene)
    results = [_cost(empty, full, partitions), Result("making them", "", f"{made_s:.1f} s", None)]
    results += _failed_over(scene, partitions, topics, session_timeout_ms, tell)
    results.append(_started(scene, partitions, tell))
    return results


def _idle(scene: Scene) -> tuple[float, int]:
    """Share of a core and memory of all nodes together."""
    time.sleep(SETTLE_S)
    before, began = scene.usage(), time.monotonic()
    time.sleep(IDLE_S)
    after: proc.Usage = scene.usage()
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


def _failed_over(
    scene: Scene, partitions: int, topics: list[str], session_timeout_ms: int, tell: Callable[[str], None]
) -> list[Result]:
    """From the moment ZooKeeper has given the dead node up to a write acknowledged by each partition that it led."""
    tell(f"{partitions:,} partitions: one node is killed")
    victim = scene.nodes[0]
    led = [
        (topic, row["partition"])
        for topic in topics
        for row in scene.partitions(topic)
        if row["leader"] == victim.node_id
    ]
    killed = time.monotonic()
    victim.kill()
    dead = gone(scene, victim.node_id, 3 * session_timeout_ms / 1000)
    acknowledged = written_once(scene.other_than(victim.node_id).url, led)
    first, last = min(acknowledged) - dead, max(acknowledged) - dead
    written = time.monotonic()
    scene.start_again(victim)
    _wait_whole(scene, partitions)
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


def _started(scene: Scene, partitions: int, tell: Callable[[str], None]) -> Result:
    tell(f"{partitions:,} partitions: all nodes start again")
    for node in scene.nodes:
        node.begin_stop()
    for node in scene.nodes:
        scene.wait_stopped(node, PATIENCE_S)
    began = time.monotonic()
    for node in scene.nodes:
        node.begin_start()
    for node in scene.nodes:
        node.wait_until_ready()
    ready = time.monotonic()
    _wait_whole(scene, partitions)
    whole = time.monotonic()
    more = f"every node says it is ready after {ready - began:.1f} s"
    return Result(
        f"{partitions:,} partitions: three nodes start, all replicas in sync", "", f"{whole - began:.1f} s", None, more
    )


def _wait_whole(scene: Scene, partitions: int) -> None:
    def is_whole() -> bool:
        nodes = scene.cluster()["nodes"]
        alive = [one for one in nodes if one["alive"]]
        led = sum(one["leading"] for one in alive)
        lacking = sum(one["under_replicated"] for one in nodes)
        return len(alive) == NODES and led >= partitions and lacking == 0

    scene.until("all replicas are in sync", is_whole, PATIENCE_S)
