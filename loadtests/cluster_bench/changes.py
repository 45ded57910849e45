"""What changes of leadership cost: a leader that is killed, one that stops in order, a follower that comes back.

A failover is told in two parts: until ZooKeeper has given the dead node up, which the session timeout bounds, and from
there to the first acknowledged write, which is the cluster's own doing. ZooKeeper is watched directly for that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from loadtests.bench.cases import body_of
from loadtests.cluster.nodes import ClusterNode
from loadtests.cluster_bench.result import Result
from loadtests.cluster_bench.scene import ZOOKEEPER_PATH, Scene
from loadtests.cluster_bench.steady_writer import SteadyWriter, longest_gap
from loadtests.generators.choice import Generators
from loadtests.generators.load import GeneratorFailed, Load
from loadtests.generators.percentiles import median

AFTER_DETECTION_S_MAX = 1.0
MOVE_S_MAX = 0.2
CATCH_UP_MBPS_MIN = 200.0
CATCH_UP_BYTES = 2 << 30
RUN_UP_S = 1.0
PATIENCE_S = 300.0
LAG_CHECK_S = 0.02
GONE_CHECK_S = 0.005
_DUMPED = b"ephemeral"  # else it says that it cannot answer now


def failover(scene: Scene, times: int, session_timeout_ms: int, tell: Callable[[str], None]) -> Result:
    """kill -9 of the leader's processes, again and again, under a writer at another node."""
    scene.create_topic("failover")
    detections, recoveries = [], []
    for number in range(times):
        tell(f"failover {number + 1} of {times}")
        leader = scene.leader_of("failover")
        writer = SteadyWriter(scene.other_than(leader.node_id).url, "failover")
        writer.start()
        time.sleep(RUN_UP_S)
        killed = time.monotonic()
        leader.kill()
        dead = gone(scene, leader.node_id, 3 * session_timeout_ms / 1000)
        writer.wait_beyond(dead)
        writer.stop()
        gap = longest_gap(writer.acknowledged, killed)
        detections.append(dead - killed)
        recoveries.append(max(0.0, gap.ended - dead))
        scene.start_again(leader)
        scene.wait_in_sync("failover")
    scene.control().delete_topic("failover")
    worst = max(recoveries)
    figure = f"{median(recoveries):.2f} s (most {worst:.2f} s)"
    more = (
        f"detection {median(detections):.1f} s (most {max(detections):.1f} s), session timeout {session_timeout_ms} ms"
    )
    what = f"leader killed: from its session's end to the first acknowledged write, {times} times"
    return Result(what, "under 1 s", figure, worst < AFTER_DETECTION_S_MAX, more)


def move(scene: Scene, times: int, tell: Callable[[str], None]) -> Result:
    """SIGTERM to the leader: it gives its leadership away before it ends."""
    scene.create_topic("move")
    gaps, refused = [], 0
    for number in range(times):
        tell(f"clean move {number + 1} of {times}")
        leader = scene.leader_of("move")
        writer = SteadyWriter(scene.other_than(leader.node_id).url, "move")
        writer.start()
        time.sleep(RUN_UP_S)
        asked = time.monotonic()
        leader.stop()
        writer.wait_beyond(time.monotonic())
        writer.stop()
        gaps.append(longest_gap(writer.acknowledged, asked).seconds)
        refused += len(writer.refused)
        scene.start_again(leader)
        scene.wait_in_sync("move")
    scene.control().delete_topic("move")
    figure = f"{median(gaps) * 1000:.0f} ms (most {max(gaps) * 1000:.0f} ms)"
    what = f"clean move of a leadership (SIGTERM): longest time without an acknowledged write, {times} times"
    return Result(
        what, "under 200 ms", figure, max(gaps) < MOVE_S_MAX, f"{refused} answers that a client had to handle"
    )


def catch_up(scene: Scene, generators: Generators, tell: Callable[[str], None], size: int = CATCH_UP_BYTES) -> Result:
    """A follower is stopped, missed gigabytes, and comes back."""
    scene.create_topic("catch-up")
    leader = scene.leader_of("catch-up")
    follower = scene.other_than(leader.node_id)
    follower.kill()
    scene.until(
        "the follower is left out", lambda: len(scene.partitions("catch-up", follower.node_id)[0]["in_sync"]) == 2
    )
    tell("catch-up: writing what it misses")
    stored = _fill(generators, leader.url, size, scene.directory / "catch-up.body")
    tell("catch-up: the follower is back")
    began_start = time.monotonic()
    follower.begin_start()
    first, ended = _watched(scene, follower)
    follower.wait_until_ready()
    seconds = ended - first
    rate = stored / seconds / 1e6
    scene.control().delete_topic("catch-up")
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
    outcome = generators.closed(load, timeout_s=300)
    if outcome.bad:
        raise GeneratorFailed(f"{outcome.bad} produces failed: {outcome.what_went_wrong}")
    return outcome.good * len(body.data)


def _watched(scene: Scene, follower: ClusterNode) -> tuple[float, float]:
    """When the follower's files began to grow, and when it was in sync."""
    before, first = _stored_bytes(scene, follower), None
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        row, now = scene.partitions("catch-up", follower.node_id)[0], time.monotonic()
        if follower.node_id in row["in_sync"]:
            return first or now, now
        if first is None and _stored_bytes(scene, follower) > before:
            first = now
        time.sleep(LAG_CHECK_S)
    raise GeneratorFailed(f"the follower was not in sync again within {PATIENCE_S:.0f} s")


def _stored_bytes(scene: Scene, node: ClusterNode) -> int:
    """Of the topic's segments, as the file system has them: asks nobody who is busy copying."""
    place = scene.directory / f"node-{node.node_id}" / "topics" / "catch-up"
    return sum(file.stat().st_size for file in place.glob("*/*/*.log"))


def gone(scene: Scene, node_id: int, timeout_s: float) -> float:
    """When ZooKeeper has let a node's registration go. It is asked every few milliseconds."""
    path = f"{ZOOKEEPER_PATH}/nodes/{node_id}".encode()
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        told = scene.zookeeper.ask(b"dump")
        if _DUMPED in told and path not in told:
            return time.monotonic()
        time.sleep(GONE_CHECK_S)
    raise GeneratorFailed(f"ZooKeeper kept node {node_id} for more than {timeout_s:.0f} s")
