"""The faults: one function each injects a fault, holds it and ends it, while clients continue.

A victim is drawn from the seed and is usually the leader of a partition. After each function only the cluster's own
recovery remains to be done.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.chaos.judge import kept_findings
from tests.chaos.machines.cluster import CLIENTS, PARTITIONS, Cluster
from tests.chaos.machines.disks import inject, unreadable
from tests.chaos.machines.hosts import NodeHost
from tests.chaos.recreated.recreation import Mend, Recreation
from tests.checking.recreation_history import Recreations
from tests.disk_faults import fill, why_no_injection

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Scene:
    """`groups`: their coordinators are victims as often as the leaders of the topic."""

    cluster: Cluster
    topic: str
    draw: random.Random
    groups: tuple[str, ...] = ()
    recreations: list[Recreations] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)  # what a fault itself has found

    async def leader(self) -> NodeHost:
        if self.groups and self.draw.random() < 0.5:
            return await self.cluster.coordinator(self.draw.choice(self.groups))
        return await self.cluster.leader(self.topic, self.draw.randrange(PARTITIONS))

    def others(self, node: NodeHost) -> list[str]:
        return [other.name for other in self.cluster.nodes.values() if other is not node]

    async def hold(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.draw.uniform(least_s, most_s))

    async def outlast(self, least: float, most: float) -> None:
        """Sleep for a multiple of the session timeout."""
        await self.hold(least * self.cluster.session_s, most * self.cluster.session_s)


Inject = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    name: str
    what: str
    inject: Inject
    has_small_disks: bool = False
    has_clocks: bool = False  # each node has its own clock
    keeps_locks: bool = False  # only an election of another coordinator ends locks of share groups
    why_not: Callable[[], str | None] = lambda: None


async def kill_leader(scene: Scene) -> None:
    """Kill a leader; restart it after its session has expired, so that another node becomes leader."""
    node = await scene.leader()
    scene.cluster.note_injection(f"kill -9 of node {node.node_id}")
    await asyncio.to_thread(node.kill)
    await scene.outlast(1.3, 1.7)
    await asyncio.to_thread(node.start)


async def kill_briefly(scene: Scene) -> None:
    """Kill a leader and restart it at once, while its last session is still alive."""
    node = await scene.leader()
    scene.cluster.note_injection(f"kill -9 of node {node.node_id}, back at once")
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)


async def kill_all(scene: Scene) -> None:
    scene.cluster.note_injection("kill -9 of all nodes")
    nodes = list(scene.cluster.nodes.values())
    await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
    scene.draw.shuffle(nodes)
    for node in nodes:
        node.begin_start()
    for node in nodes:
        await asyncio.to_thread(node.wait_until_ready)


async def roll_back_disk(scene: Scene) -> None:
    """Put an old copy of a leader's data directory back: the node was restarted and has taken records since the copy.

    All nodes are killed and that one starts first, while no running replica knows better.
    """
    node = await scene.leader()
    others = [other for other in scene.cluster.nodes.values() if other is not node]
    copy = node.directory / "copy"
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(shutil.copytree, node.data, copy)
    await asyncio.to_thread(node.start)
    await scene.cluster.wait_until_healthy(scene.topic)
    await scene.hold(2, 4)
    scene.cluster.note_injection(f"the disk of node {node.node_id} is rolled back")
    await asyncio.gather(*(asyncio.to_thread(machine.kill) for machine in (node, *others)))
    await asyncio.to_thread(shutil.rmtree, node.data)
    await asyncio.to_thread(shutil.move, copy, node.data)
    await asyncio.to_thread(node.start)
    await scene.hold(1, 2)
    for other in others:
        other.begin_start()
    for other in others:
        await asyncio.to_thread(other.wait_until_ready)


async def pause_leader(scene: Scene) -> None:
    """Pause a leader past its session; when it continues it still takes itself for the leader."""
    node = await scene.leader()
    scene.cluster.note_injection(f"SIGSTOP of node {node.node_id}")
    node.pause()
    await scene.outlast(1.2, 2)
    node.resume()


async def pause_coordinator(scene: Scene) -> None:
    """Pause the coordinator of the share group, while callers accept its records from the next one."""
    node = await scene.cluster.coordinator(scene.groups[-1]) if scene.groups else await scene.leader()
    scene.cluster.note_injection(f"SIGSTOP of the coordinator, node {node.node_id}")
    node.pause()
    await scene.outlast(1.5, 2.5)
    node.resume()


async def pause_shard(scene: Scene) -> None:
    """Pause a shard. Its node keeps its session and leaderships; the shard then continues with stale state."""
    node = await scene.leader()
    scene.cluster.note_injection(f"SIGSTOP of the shard of node {node.node_id}")
    node.pause_shards()
    await scene.outlast(1.2, 2)
    node.resume()


async def pause_supervisor(scene: Scene) -> None:
    """Pause a supervisor. Its session expires and other nodes become leaders, while its shard goes on unnotified."""
    node = await scene.leader()
    scene.cluster.note_injection(f"SIGSTOP of the supervisor of node {node.node_id}")
    node.pause_supervisor()
    await scene.outlast(1.5, 3)
    node.resume()


async def shift_clock(scene: Scene) -> None:
    """Shift a node's clock by hours at once, forwards or backwards; sometimes restart it under the wrong clock."""
    node = await scene.leader()
    assert node.clock is not None
    ahead_ms = scene.draw.choice((-30, -3, 3, 30)) * HOUR_MS
    scene.cluster.note_injection(f"the clock of node {node.node_id} is {ahead_ms // HOUR_MS:+d} h off")
    node.clock.step(ahead_ms)
    await scene.hold(3, 6)
    if scene.draw.random() < 0.5:
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)
        await scene.cluster.wait_until_healthy(scene.topic)
        await scene.hold(2, 4)
    if scene.draw.random() < 0.7:  # else the next injection starts with a wrong clock
        node.clock.step(0)
    await scene.hold(2, 4)


async def isolate_leader(scene: Scene) -> None:
    """Cut a leader from the nodes and ZooKeeper; only its clients still reach it."""
    node = await scene.leader()
    scene.cluster.note_injection(f"node {node.node_id} is cut off from nodes and ZooKeeper")
    scene.cluster.network.isolate(node.name, but=[CLIENTS])
    await scene.outlast(1.5, 2)
    scene.cluster.network.heal_all()


async def cut_followers_then_kill(scene: Scene) -> None:
    """Cut a leader from its followers, then kill it: anything that it acknowledged alone would be lost."""
    node = await scene.leader()
    scene.cluster.note_injection(f"node {node.node_id} is cut off from the others, then killed")
    scene.cluster.network.part([node.name], scene.others(node))
    await scene.hold(2, 4)
    await asyncio.to_thread(node.kill)
    scene.cluster.network.heal_all()
    await scene.outlast(1.3, 1.7)
    await asyncio.to_thread(node.start)


async def cut_one_way(scene: Scene) -> None:
    """Cut one direction only: a node receives and cannot send, or sends and cannot receive."""
    node, network = await scene.leader(), scene.cluster.network
    is_sending = scene.draw.random() < 0.5
    scene.cluster.note_injection(f"node {node.node_id} {'cannot receive' if is_sending else 'cannot send'}")
    for other in [*scene.others(node), scene.cluster.zookeeper.name]:
        network.cut(*((other, node.name) if is_sending else (node.name, other)))
    await scene.outlast(1.5, 2)
    network.heal_all()


async def flap(scene: Scene) -> None:
    """Cut and restore each direction of each link independently, a few times a second."""
    node, network = await scene.leader(), scene.cluster.network
    scene.cluster.note_injection(f"the links of node {node.node_id} flap")
    others = [*scene.others(node), scene.cluster.zookeeper.name]
    ways = [way for other in others for way in ((node.name, other), (other, node.name))]
    for _ in range(25):
        for way in ways:
            (network.cut if scene.draw.random() < 0.4 else network.heal)(*way)
        await scene.hold(0.2, 0.6)
    network.heal_all()


async def cut_from_zookeeper(scene: Scene) -> None:
    """Cut a node from ZooKeeper; it still reaches its followers."""
    node = await scene.leader()
    scene.cluster.note_injection(f"node {node.node_id} is cut off from ZooKeeper")
    scene.cluster.network.part([node.name], [scene.cluster.zookeeper.name])
    await scene.outlast(1.5, 2)
    scene.cluster.network.heal_all()


async def lose_zookeeper(scene: Scene) -> None:
    """Cut all nodes from ZooKeeper at once, for longer than any session."""
    scene.cluster.note_injection("ZooKeeper is killed")
    await asyncio.to_thread(scene.cluster.zookeeper.kill)
    await scene.outlast(1.2, 2)
    await asyncio.to_thread(scene.cluster.zookeeper.start)


async def empty_store(scene: Scene) -> None:
    """Empty ZooKeeper under running nodes, then do what docs/operate/coordination.md says: stop, rebuild, start."""
    cluster, nodes = scene.cluster, list(scene.cluster.nodes.values())
    is_new = scene.draw.random() < 0.5
    before = await asyncio.to_thread(cluster.log_sizes)
    cluster.note_injection(f"ZooKeeper {'has a new disk' if is_new else 'loses key after key'}")
    await asyncio.to_thread(cluster.zookeeper.wipe if is_new else cluster.zookeeper.delete_all)
    await scene.outlast(1.2, 2)
    for node in nodes:
        assert node.is_running, f"node {node.node_id} has ended: {node.log_tail()}"
    ends = [node.kill if scene.draw.random() < 0.3 else node.stop for node in nodes]
    for node, code in zip(nodes, await asyncio.gather(*map(asyncio.to_thread, ends)), strict=True):
        assert not code, f"node {node.node_id} ended with {code}: {node.log_tail()}"
    scene.findings.extend(kept_findings(before, await asyncio.to_thread(cluster.log_sizes)))
    await asyncio.to_thread(cluster.zookeeper.delete_all)
    await asyncio.to_thread(cluster.rebuild_store)
    scene.draw.shuffle(nodes)
    for node in nodes:
        node.begin_start()
    for node in nodes:
        await asyncio.to_thread(node.wait_until_ready)


async def recreate_topics(scene: Scene) -> None:
    """Delete and create a topic beside the run's, twice, under every kind of consumer. One of the deletions finds a
    node paused or killed, which comes back with the directory of the deleted topic.
    """
    name = f"{scene.topic}.again-{len(scene.recreations)}"
    scene.cluster.note_injection(f"{name} is deleted and created again")

    async def break_node() -> Mend:
        node = await scene.cluster.leader(name, scene.draw.randrange(PARTITIONS))
        is_paused = scene.draw.random() < 0.5
        scene.cluster.note_injection(
            f"node {node.node_id} is {'paused' if is_paused else 'killed'}, then {name} is deleted"
        )
        await asyncio.to_thread(node.pause if is_paused else node.kill)
        if scene.draw.random() < 0.5:
            await scene.outlast(1.3, 1.7)

        async def mend() -> None:
            await scene.hold(0, 2)
            await asyncio.to_thread(node.resume if is_paused else node.start)

        return mend

    recreation = Recreation(scene.cluster, name, scene.draw)
    scene.recreations.append(recreation.history)
    await recreation.run(break_node)


async def fill_disk(scene: Scene) -> None:
    node = await scene.leader()
    scene.cluster.note_injection(f"the disk of node {node.node_id} is full")
    filler = await asyncio.to_thread(fill, node.data.parent)
    await scene.hold(5, 10)
    filler.unlink()


async def fail_syncs(scene: Scene) -> None:
    """Make syncs fail. A node with a failed sync keeps the partition offline until it is restarted, as an operator
    would do.
    """
    node = await scene.leader()
    injecting = inject(node, "error=EIO")
    await asyncio.to_thread(injecting.__enter__)
    scene.cluster.note_injection(f"fdatasync fails on node {node.node_id}")
    await scene.hold(2, 5)
    await asyncio.to_thread(injecting.__exit__, None, None, None)
    await scene.hold(2, 4)
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)


async def fail_reads(scene: Scene) -> None:
    """Make reads of the files of a topic fail on a leader; another replica is to lead what a consumer wants to read."""
    node = await scene.leader()
    injecting = unreadable(node, sorted(node.data.glob(f"topics/{scene.topic}/**/*.log")))
    await asyncio.to_thread(injecting.__enter__)
    scene.cluster.note_injection(f"reads fail on node {node.node_id}")
    await scene.hold(5, 10)
    await asyncio.to_thread(injecting.__exit__, None, None, None)
    await scene.hold(2, 4)


async def slow_syncs(scene: Scene) -> None:
    node = await scene.leader()
    injecting = inject(node, f"delay_enter={scene.draw.choice((200, 1000, 3000)) * 1000}")
    await asyncio.to_thread(injecting.__enter__)
    scene.cluster.note_injection(f"fdatasync is slow on node {node.node_id}")
    await scene.hold(8, 14)
    await asyncio.to_thread(injecting.__exit__, None, None, None)


async def restart_all_in_turn(scene: Scene) -> None:
    """Restart the nodes one by one with SIGTERM; each is back in sync before the next one stops."""
    for node in scene.cluster.nodes.values():
        scene.cluster.note_injection(f"node {node.node_id} is restarted")
        code = await asyncio.to_thread(node.stop)
        assert code == 0, f"node {node.node_id} ended with {code} after {signal.SIGTERM.name}: {node.log_tail()}"
        await asyncio.to_thread(node.start)
        await scene.cluster.wait_until_healthy(scene.topic)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill", "kill -9 of a leader's node, back after its session", kill_leader),
        Fault("kill-briefly", "kill -9 of a leader's node, back at once", kill_briefly),
        Fault("kill-all", "kill -9 of all nodes at once", kill_all),
        Fault("rollback", "an old copy of a leader's data directory put back", roll_back_disk),
        Fault("pause", "SIGSTOP of a leader's node for longer than its session", pause_leader),
        Fault(
            "pause-coordinator", "SIGSTOP of a share group's coordinator for longer than its session", pause_coordinator
        ),
        Fault("pause-shard", "SIGSTOP of a leader's shard for longer than a session", pause_shard),
        Fault("pause-supervisor", "SIGSTOP of a leader's supervisor for longer than its session", pause_supervisor),
        Fault("shifted-clock", "the clock of a leader's node 3 or 30 h ahead or behind", shift_clock, has_clocks=True),
        Fault("isolate", "a leader's node cut off from nodes and ZooKeeper, not from clients", isolate_leader),
        Fault("cut-then-kill", "a leader's node cut off from its followers, then killed", cut_followers_then_kill),
        Fault("one-way", "packets from or to a leader's node are dropped", cut_one_way),
        Fault("flapping", "the links of a leader's node cut and healed at random, each way", flap),
        Fault("cut-from-zookeeper", "a leader's node cut off from ZooKeeper only", cut_from_zookeeper),
        Fault("zookeeper", "ZooKeeper killed for longer than the sessions", lose_zookeeper),
        Fault(
            "emptied-store", "ZooKeeper emptied under running nodes, then rebuilt from their directories", empty_store
        ),
        Fault("recreated-topics", "a topic deleted and created again under consumers of every kind", recreate_topics),
        Fault(
            "disk-full",
            "the disk of a leader's node full for 5 to 10 s",
            fill_disk,
            has_small_disks=True,
            keeps_locks=True,
        ),
        Fault("sync-errors", "fdatasync fails on a leader's node", fail_syncs, why_not=why_no_injection),
        Fault("read-errors", "reads of a topic's files fail on a leader's node", fail_reads, why_not=why_no_injection),
        Fault("slow-syncs", "fdatasync of a leader's node takes 0.2 to 3 s", slow_syncs, why_not=why_no_injection),
        Fault("rolling-restart", "SIGTERM and start of each node in turn", restart_all_in_turn),
    )
}
