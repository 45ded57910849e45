"""The faults: the seed chooses their kinds, times and durations. Each run has some kinds; many runs have all.

Each fault is a method of `Faults`, or of `DiskFaults` (disk_faults.py), that injects it and schedules its end. A run
uses a random subset (swarm testing), so that one kind does not always hide another. A fault that can lose data first
checks whether the run's guarantee allows the loss (`_may_lose_unsynced`, `_may_lose_disk`): a checker must not report a
loss that no guarantee excludes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from replication.cores import reassignment
from replication.cores.partition_state import Member
from tests.simulation.clients import Client
from tests.simulation.disk_faults import DiskFaults
from tests.simulation.world.bucket import Bucket, StoreWeather
from tests.simulation.world.network import Network, Weather
from tests.simulation.world.node import Node
from tests.simulation.world.store import STORE, Store
from tests.simulation.world.world import World

KINDS = (
    "kill",
    "lose_power",
    "lose_power_everywhere",
    "lose_disk",
    "pause",
    "cut_two_ways",
    "cut_one_way",
    "isolate",
    "cut_from_store",
    "late_changes",
    "bad_weather",
    "slow_disk",
    "failing_sync",
    "expire_session",
    "stop_store",
    "jump_clock",
    "trim",
    "reassign",
    "leave",
    "idle",
    "bad_bucket",
    "alter",
    "drain",
    "full_disk",
    "roll_back",
    "read_error",
)
UNSEEN = "roll_back_at_once"  # not in a run with other promises: no counter shows it
CALM = frozenset({"idle", "jump_clock", "trim", "bad_bucket"})  # these remove no replica from an in-sync set


class Faults(DiskFaults):
    """The adversary of one run."""

    def __init__(
        self,
        world: World,
        network: Network,
        nodes: dict[int, Node],
        store: Store,
        bucket: Bucket,
        clients: Sequence[Client],
        kinds: Sequence[str],
        may_be_unclean: bool,
    ) -> None:
        self.world, self.network, self.nodes, self.store = world, network, nodes, store
        self.bucket, self.clients, self.kinds = bucket, clients, kinds
        super().__init__()
        self.is_over = False
        self._may_be_unclean = may_be_unclean
        self.least_min_insync = 3  # the lowest value that the topic has had

    def run(self, every_s: float) -> None:
        if not self.is_over and self.kinds:
            kind = self.world.random.choice(self.kinds)
            self.world.count(f"fault {kind}")
            getattr(self, kind)()
            self.world.after(every_s * (0.3 + 1.4 * self.world.random.random()), self.run, every_s)

    def heal(self) -> None:
        """End all faults: every link and disk works, and every stopped node starts."""
        self.is_over = True
        self.network.heal()
        self._start_store()
        self._fair_bucket()
        for node in self.nodes.values():
            node.slow_until = 0.0
            node.disk.failing_syncs, node.disk.is_full = 0, False
            node.disk.unreadable.clear()
            if node.life is not None and any(hosted.log.offline for hosted in node.life.partitions.values()):
                node.kill()
            if node.life is not None and node.life.is_leaving:
                node.kill()
            node.resume()
            node.start()

    # Kinds of faults.

    def kill(self) -> None:
        node = self._node()
        node.kill()
        self._start_again(node)

    def lose_power(self) -> None:
        node = self._node()
        if self._may_lose_unsynced(node):
            node.lose_power()
            self._start_again(node)

    def crash(self, node: Node) -> None:
        """End the process of a node at once, with its page cache if the guarantee allows it."""
        if self.world.random.random() < 0.5 and self._may_lose_unsynced(node):
            node.lose_power()
        else:
            node.kill()
        self._start_again(node)

    def lose_power_everywhere(self) -> None:
        if self._rules.is_fsync_demanded:
            self.world.count("power lost everywhere")
            for node in self.nodes.values():
                node.lose_power()
                self._start_again(node)

    def pause(self) -> None:
        self._node().pause(self.store.timeout_s * (0.3 + 2.0 * self.world.random.random()))

    def cut_two_ways(self) -> None:
        a, b = self.world.random.sample(sorted(self.nodes), 2)
        self._cut([(self._name(a), self._name(b)), (self._name(b), self._name(a))])

    def cut_one_way(self) -> None:
        names = [node.name for node in self.nodes.values()] + [STORE]
        a, b = self.world.random.sample(names, 2)
        self._cut([(a, b)])

    def isolate(self) -> None:
        """Cut a node from the other nodes; clients and the store still reach it."""
        node = self._node()
        others = [other.name for other in self.nodes.values() if other is not node]
        self._cut([pair for other in others for pair in ((node.name, other), (other, node.name))])

    def cut_from_store(self) -> None:
        node = self._node()
        self._cut([(node.name, STORE), (STORE, node.name)])

    def late_changes(self) -> None:
        """Delay the store's messages to one node, by less than the connection timeout; other nodes receive them at
        once.
        """
        link = (STORE, self._node().name)
        self.network.late_s[link] = self.store.timeout_s * 0.25 * self.world.random.random()
        self.world.after(self._while(), self.network.late_s.pop, link, None)

    def bad_weather(self) -> None:
        random = self.world.random
        self.network.weather = Weather(
            delay_s=0.002,
            jitter_s=random.choice((0.004, 0.02, 0.1)),
            loss=random.choice((0.0, 0.02, 0.2)),
            repeat=random.choice((0.0, 0.05, 0.3)),
            slow=random.choice((0.0, 0.02, 0.1)),
            slow_s=random.choice((0.3, 1.5, 4.0)),
        )
        self.world.after(self._while(), self._fair_weather)

    def expire_session(self) -> None:
        if self.store.sessions:
            self.store.expire(self.world.random.choice(self.store.sessions))

    def stop_store(self) -> None:
        self.store.is_down = True
        self.world.after(self._while(), self._start_store)

    def jump_clock(self) -> None:
        self._node().clock.offset_ms += self.world.random.choice((-86_400_000, -3_600_000, 3_600_000, 86_400_000))

    def trim(self) -> None:
        """Have the leader of a partition delete records."""
        share = self.world.random.random()
        for node in self.nodes.values():
            if node.life is not None and node.paused_until <= self.world.now:
                for hosted in node.life.partitions.values():
                    hosted.trim(share)

    def reassign(self) -> None:
        """Ask the controller to move a partition, or to cancel a move."""
        for node in self.nodes.values():
            life = node.life
            if life is None or life.controller is None or node.paused_until > self.world.now:
                continue
            partition = self.world.random.choice(sorted(self.store.snapshot.partitions))
            versioned = life.node_snapshot.partitions[partition]
            target = tuple(self.world.random.sample(sorted(self.nodes), min(3, len(self.nodes))))
            if versioned.state.adding and self.world.random.random() < 0.5:
                state = reassignment.cancelled(versioned.state)
            else:
                state = reassignment.with_reassignment(versioned.state, target, self.nodes.keys())
            life.request_move(partition, state)
            self.world.count("reassignments asked for")

    def alter(self) -> None:
        """Change the topic's settings: min_insync_replicas, retention, and sometimes unclean elections."""
        random = self.world.random
        entry = self.store.topic()
        changed = {"min_insync_replicas": random.choice((1, 2, 2, 3))}
        if self._may_be_unclean:
            changed["unclean_election"] = random.random() < 0.3
        self.least_min_insync = min(self._least, changed["min_insync_replicas"])
        self.store.alter(replace(entry, config={**entry.config, **changed}))
        for node in self.nodes.values():
            node.keep(random.choice((None, 2000, 6000)), random.choice((None, 700, 3000)))

    def drain(self) -> None:
        """Move all partitions away from a node, as far as other nodes can take them."""
        drained = self._node().node_id
        for node in self.nodes.values():
            life = node.life
            if life is None or life.controller is None or node.paused_until > self.world.now:
                continue
            for partition, versioned in sorted(life.node_snapshot.partitions.items()):
                left = tuple(n for n in versioned.state.replicas if n != drained and n not in versioned.state.removing)
                spare = [n for n in sorted(self.nodes) if n != drained and n not in left]
                if drained in versioned.state.replicas and left:
                    state = reassignment.with_reassignment(versioned.state, (*left, *spare)[:3], self.nodes.keys())
                    life.request_move(partition, state)
                    self.world.count("reassignments asked for")

    def leave(self) -> None:
        """Send SIGTERM: leadership moves to other nodes first, then the process ends."""
        node = self._node()
        if node.life is not None:
            node.life.is_leaving = True
            node.life.register()
            self.world.after(0.5, self._replace_process, node)

    def idle(self) -> None:
        """Pause all producers for longer than a follower may lag, then resume them."""
        until = self.world.now + self._node().options.lag_s_max * (0.8 + 1.5 * self.world.random.random())
        for client in self.clients:
            client.idle_until = until

    def bad_bucket(self) -> None:
        """Make the object store fail requests, lose answers, or execute requests late; sometimes every request."""
        random = self.world.random
        self.bucket.weather = StoreWeather(
            failing=random.choice((0.0, 0.1, 0.3, 1.0)),
            lost_reply=random.choice((0.0, 0.1, 0.3)),
            late=random.choice((0.0, 0.1, 0.3)),
            request_s=random.choice((0.004, 0.1, 0.5)),
        )
        self.world.after(self._while(), self._fair_bucket)

    # Helpers.

    @property
    def _rules(self):
        return self.store.snapshot.rules

    @property
    def _least(self) -> int:
        return min(self.least_min_insync, self._rules.min_insync_replicas)

    def _may_lose_unsynced(self, node: Node) -> bool:
        """True if a power loss of this node keeps the guarantee.

        With durability=os committed records may be in page caches only, so two other members must hold everything.
        """
        if self._rules.is_fsync_demanded:
            return True
        if self._least < 2:
            return False
        for versioned in self.store.snapshot.partitions.values():
            others = [m for m in (*versioned.state.in_sync, *versioned.state.eligible) if m.node_id != node.node_id]
            if len([member for member in others if self._has_kept_all(member)]) < 2:
                return False
        return True

    def _has_kept_all(self, member: Member) -> bool:
        """True if the member is alive and has lost nothing since it became a member."""
        life = self.nodes[member.node_id].life
        survives_from = life.registration_state.survives_from if life is not None else None
        return survives_from is not None and survives_from <= member.broker_epoch

    def _node(self) -> Node:
        return self.nodes[self.world.random.choice(sorted(self.nodes))]

    def _name(self, node_id: int) -> str:
        return self.nodes[node_id].name

    def _while(self) -> float:
        return self.world.random.choice((0.3, 1.0, 2.5, 5.0)) * (0.5 + self.world.random.random())

    def _start_again(self, node: Node) -> None:
        self.world.after(self.world.random.choice((0.0, 0.05, 0.5, 2.0, 4.0)), node.start)

    def _replace_process(self, node: Node) -> None:
        if not self.is_over:
            node.kill()
            self._start_again(node)

    def _cut(self, links: list[tuple[str, str]]) -> None:
        for source, target in links:
            self.network.cut(source, target)
        self.world.after(self._while(), self._mend, links)

    def _mend(self, links: list[tuple[str, str]]) -> None:
        for source, target in links:
            self.network.mend(source, target)

    def _fair_weather(self) -> None:
        self.network.weather = Weather()

    def _fair_bucket(self) -> None:
        self.bucket.weather = StoreWeather()

    def _start_store(self) -> None:
        if self.store.is_down:
            self.store.is_down = False
            for session in self.store.sessions:
                session.contact_at = self.world.now
