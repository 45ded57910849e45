"""One run: a cluster, clients, a time with faults, a time without faults, then the judges.

Everything follows from the seed and the options, so `make sim SEED=...` replays a failure. Safety is judged over all of
the run. Liveness is judged after the faults: every partition must soon take and commit a record, and its replicas must
become equal (C14).
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from engine.errors import Corrupt
from replication.cores.assignment import assigned_replicas
from replication.cores.partition_state import TopicRules, initial_state
from tests.checking.checkers import FinalLog, Guarantee, check_all, thrown_out
from tests.checking.history import History, records_of
from tests.checking.tier_checkers import check_tier, left_behind
from tests.simulation.clients import Consumer, KeyedProducer, PipeliningProducer, Producer, SequencedProducer
from tests.simulation.faults import CALM, KINDS, UNSEEN, Faults
from tests.simulation.world.bucket import Bucket
from tests.simulation.world.compaction import TableOptions
from tests.simulation.world.network import Network
from tests.simulation.world.node import Node, NodeOptions
from tests.simulation.world.repairs import has_damage_above
from tests.simulation.world.store import Store, topic_of
from tests.simulation.world.tier import cleaned_tier, final_tier
from tests.simulation.world.world import LOGGED_EVENTS, World

HEAL_S = 30.0
LATER_KINDS = {"roll_back": "rolled back disks", "read_error": "read errors"}  # drawn apart: other seeds stay the same


@dataclass(frozen=True)
class Options:
    """The options of a run; `options_for` draws them from the seed."""

    nodes: int = 3
    partitions: int = 1
    racks: int = 3
    rules: TopicRules = field(default_factory=TopicRules)
    kinds: tuple[str, ...] = KINDS
    fault_every_s: float = 0.8
    chaos_s: float = 8.0
    retention_bytes: int | None = None
    local_retention_bytes: int | None = None
    reads_ahead: bool = False
    keyed_producers: int = 0  # replace all other producers
    more_producers: int = 0  # with acks=all, to any partition
    has_pipelining: bool = False  # adds a producer with several requests in flight
    ahead_ms: tuple[int, ...] = ()  # each node's clock offset at the start
    table: TableOptions | None = None  # the topic is compacted


@dataclass
class Outcome:
    seed: int
    options: Options
    problems: list[str]
    counts: Counter[str]
    story: str

    def report(self) -> str:
        lines = [f"seed {self.seed} failed; again: make sim SEED={self.seed}", str(self.options)]
        return "\n".join([*lines, *self.problems[:12], self.story])


def options_for(seed: int) -> Options:
    """Return a configuration for a seed; the default one is the most likely."""
    random = Random(f"options of {seed}")
    rules = TopicRules(
        min_insync_replicas=random.choice((2, 2, 2, 2, 1, 3)),
        is_unclean_allowed=random.random() < 0.06,
        is_fsync_demanded=random.random() < 0.7,
    )
    kinds = tuple(kind for kind in KINDS if kind not in LATER_KINDS and random.random() < 0.45)
    kinds += tuple(kind for kind, what in LATER_KINDS.items() if Random(f"{what} of {seed}").random() < 0.45)
    if random.random() < 0.03:
        kinds = tuple(sorted(CALM))
    return Options(
        nodes=random.choice((3, 3, 3, 4)),
        partitions=random.choice((1, 2, 3)),
        racks=random.choice((1, 2, 3)),
        rules=rules,
        kinds=kinds or ("kill", "lose_power"),
        fault_every_s=random.choice((0.3, 0.6, 1.0, 2.0)),
        retention_bytes=random.choice((None, None, 6000)),
        local_retention_bytes=random.choice((None, 700, 1500, 3000)),
        reads_ahead=random.random() < 0.5,
    )


class Run:
    """The parts of one run, joined."""

    def __init__(self, seed: int, options: Options, logged_events: int = LOGGED_EVENTS) -> None:
        self.world = World(seed, logged_events)
        self.options = options
        self.history = History()
        self.network = Network(self.world)
        self.bucket = Bucket(self.world)
        node_options = NodeOptions(
            retention_bytes=options.retention_bytes,
            local_retention_bytes=options.local_retention_bytes,
            reads_ahead=options.reads_ahead,
            table=options.table,
        )
        self.store = Store(self.world, self.network, node_options.session_timeout_s)
        self.nodes = {
            number: Node(
                number,
                self.world,
                self.network,
                self.store,
                self.bucket,
                f"rack {number % options.racks}",
                node_options,
                self._saw_watermark,
                self._cut_below_watermark,
                self.history.note_deletion,
            )
            for number in range(1, options.nodes + 1)
        }
        for node in self.nodes.values():
            node.peers = self.nodes
        racks = {number: node.rack for number, node in self.nodes.items()}
        assigned = assigned_replicas(racks, options.partitions, 3)
        self._assigned = {f"t-{number}": replicas for number, replicas in enumerate(assigned)}
        self.partitions = sorted(self._assigned)
        for node, ahead_ms in zip(self.nodes.values(), options.ahead_ms, strict=False):
            node.clock.offset_ms = ahead_ms
        self.producers: list[Producer | SequencedProducer | PipeliningProducer | KeyedProducer] = [
            SequencedProducer(*self._client("p0"), partition=self.partitions[0], producer_id=7, every_s=0.08),
            self._producer("p1", "all", 0.15),
            self._producer("p2", "1", 0.3),
            *(self._producer(f"p{3 + number}", "all", 0.15) for number in range(options.more_producers)),
        ]
        if options.keyed_producers:
            self.producers = [
                KeyedProducer(*self._client(f"k{i}"), partition=self.partitions[i % len(self.partitions)], every_s=0.1)
                for i in range(options.keyed_producers)
            ]
        if options.has_pipelining:
            self.producers.append(
                PipeliningProducer(*self._client("q0"), partition=self.partitions[0], producer_id=1000)
            )
        self.consumers = [
            Consumer(*self._client(f"c{i}"), partition=self.partitions[i % len(self.partitions)], every_s=0.2)
            for i in range(2)
        ]
        stores, may_be_unclean = (self.store, self.bucket), options.rules.is_unclean_allowed
        self.faults = Faults(
            self.world, self.network, self.nodes, *stores, self.producers, options.kinds, may_be_unclean
        )

    def execute(self) -> Outcome:
        try:
            self._chaos()
            problems = self._peace()
            if UNSEEN in self.options.kinds:  # no promise but this one: what a replica has committed, it keeps
                problems = self.history.cuts_below_watermark
            else:
                problems += self._judge()
        except Exception as error:  # a failed assertion of a core is a finding too
            problems = [f"{type(error).__name__}: {error}", traceback.format_exc()]
        story = f"{self.world.story()}\n--- at the end\n{self._status()}" if problems else ""
        return Outcome(self.world.seed, self.options, problems, self.world.counts, story)

    def _status(self) -> str:
        lines = []
        for node in self.nodes.values():
            hosted = (
                [f"    {partition!r}" for partition in node.life.partitions.values()] if node.life else ["    down"]
            )
            lines += [f"{node.name}: {getattr(node.life, 'session', 'down')}", *hosted]
        return "\n".join(lines)

    def _chaos(self) -> None:
        for node in self.nodes.values():
            self.world.after(0.01 * node.node_id, node.start)
        self.world.run_until(0.3)
        registered = self.store.snapshot.registrations
        states = {name: initial_state(replicas, registered) for name, replicas in self._assigned.items()}
        self.store.create(topic_of(self.options.rules, self.options.partitions), states)
        for client in (*self.producers, *self.consumers):
            client.run()
        self.world.after(0.3, self.faults.run, self.options.fault_every_s)
        self.world.run_until(self.options.chaos_s)

    def _peace(self) -> list[str]:
        """Heal all faults; wait until every partition commits a new record, the producers stop and the replicas are
        equal.
        """
        self.faults.heal()
        began = self.world.now
        self.world.run_until(began + HEAL_S, self._has_committed_since(began))
        if not self._has_all_committed_since(began):
            return [f"C14 stalled: no acks=all produce {HEAL_S} s after everything was healed"]
        self.world.counts["heal ms"] += int((self.world.now - began) * 1000)
        for producer in self.producers:
            producer.is_stopped = True
        began = self.world.now
        self.world.run_until(began + HEAL_S, self._is_equal_soon())
        problems = [] if self._is_equal() else ["C14 replicas did not become equal after everything was healed"]
        problems += self._full_read()
        for consumer in self.consumers:
            consumer.is_stopped = True
        return problems

    def _full_read(self) -> list[str]:
        """Read every partition from its beginning to its end; records that the disks no longer have come from the
        store.
        """
        readers = [
            Consumer(*self._client(f"full read of {partition}"), partition=partition, every_s=0.01, is_full_read=True)
            for partition in self.partitions
        ]
        self.consumers += readers
        for reader in readers:
            reader.run()
        self.world.run_until(self.world.now + HEAL_S, now_and_then(self.world, lambda: self._have_read_all(readers)))
        return [] if self._have_read_all(readers) else ["C2 not everything could be read after everything was healed"]

    def _have_read_all(self, readers: list[Consumer]) -> bool:
        for reader in readers:
            state = self.store.snapshot.partitions[reader.partition].state
            leading = self.nodes[state.leader.node_id].hosted(reader.partition) if state.leader else None
            if leading is None or reader.position < leading.high_watermark:
                return False
        return True

    def _judge(self) -> list[str]:
        unclean = any(versioned.state.unclean_elections for versioned in self.store.snapshot.partitions.values())
        guarantee = Guarantee(keeps_acks_all=not unclean, keeps_what_was_read=not unclean)
        logs = [log for partition in self.partitions for log in self._final_logs(partition)]
        findings = check_all(self.history, self.store.history, logs, guarantee)
        leaders = {log.partition: log for log in reversed(logs)}
        for partition in self.partitions:
            tier = final_tier(self.bucket, partition)
            findings += check_tier(
                tier, leaders[partition], self.history.deleted_below.get(partition, 0), is_one_history=not unclean
            )
            findings += left_behind(cleaned_tier(self.bucket, partition))
        return findings + (thrown_out(self.store.history) if CALM.issuperset(self.options.kinds) else [])

    def _final_logs(self, partition: str) -> list[FinalLog]:
        state = self.store.snapshot.partitions[partition].state
        if state.leader is None:
            return [FinalLog(partition, 0, 0, 0)]
        ids = [state.leader.node_id, *(m.node_id for m in state.in_sync if m != state.leader)]
        logs = []
        for node_id in dict.fromkeys(ids):
            hosted = self.nodes[node_id].hosted(partition)
            if hosted is not None and not has_damage_above(hosted, 0):
                log = hosted.log.log
                logs.append(FinalLog(partition, node_id, log.log_start, hosted.high_watermark, log.local_log_start))
                logs[-1].batches = hosted.log.all_batches()
                stored = final_tier(self.bucket, partition).batches if log.local_log_start > log.log_start else []
                for batch in stored:  # an unclean election may have left another history above that
                    below = {at: value for at, value in records_of(batch) if at < log.local_log_start}
                    logs[-1].records.update(below)
                for batch in logs[-1].batches:
                    logs[-1].records.update(records_of(batch))
        return logs

    def _is_equal(self) -> bool:
        for partition in self.partitions:
            state = self.store.snapshot.partitions[partition].state
            hosted = [self.nodes[node].hosted(partition) for node in state.replicas]
            if state.leader is None or state.adding or any(h is None for h in hosted):
                return False
            if len(state.in_sync) < len(state.replicas):
                return False
            if not self._can_read(partition):
                return False
            ends = {end for h in hosted if h is not None for end in (h.log.log.log_end, h.high_watermark)}
            if len(ends) != 1:  # log_start may differ: a new leader may not know of a deletion yet, as in Kafka
                return False
        return True

    def _can_read(self, partition: str) -> bool:
        """True if the leader can read all that its disk has, and no follower still has damage that it can repair."""
        state = self.store.snapshot.partitions[partition].state
        assert state.leader is not None
        leader = self.nodes[state.leader.node_id].hosted(partition)
        assert leader is not None
        local = leader.log.log.local_log_start
        others = [self.nodes[node].hosted(partition) for node in state.replicas]
        if any(other is not None and other is not leader and has_damage_above(other, local) for other in others):
            return False
        for segment in leader.log.log.segments if self.nodes[state.leader.node_id].disk.has_bad_sectors else ():
            try:
                leader.log.all_batches(segment.next_offset, max(local, segment.base_offset))
            except (Corrupt, OSError):
                leader.life.repairs.read_failed(leader, segment.base_offset)
                return False
        return True

    def _is_equal_soon(self):
        return now_and_then(self.world, self._is_equal)

    def _has_all_committed_since(self, began: float) -> bool:
        done = {
            write.partition
            for write in self.history.produced
            if write.outcome == "ok" and write.acks == "all" and write.invoked_at >= began
        }
        return len(done) == len(self.partitions)

    def _has_committed_since(self, began: float):
        return now_and_then(self.world, lambda: self._has_all_committed_since(began))

    def _client(self, name: str):
        return name, self.world, self.network, self.nodes, self.history

    def _producer(self, name: str, acks: str, every_s: float) -> Producer:
        return Producer(*self._client(name), partitions=self.partitions, acks=acks, every_s=every_s)

    def _saw_watermark(self, partition: str, node_id: int, leader_epoch: int, position: int) -> None:
        self.history.watermarks.append((partition, node_id, leader_epoch, position))

    def _cut_below_watermark(self, node_id: int, partition: str, to: int, watermark: int) -> None:
        self.history.cuts_below_watermark.append(
            f"node {node_id} cut {partition} to {to}, below its high watermark {watermark}, at {self.world.now:.4f}"
        )


def now_and_then(world: World, is_done):
    """Check every 50 ms of virtual time, not after every event."""
    asked_at = [0.0]

    def is_wanted() -> bool:
        if world.now < asked_at[0]:
            return False
        asked_at[0] = world.now + 0.05
        return is_done()

    return is_wanted


def run(seed: int, options: Options | None = None, logged_events: int = LOGGED_EVENTS) -> Outcome:
    return Run(seed, options or options_for(seed), logged_events).execute()


def findings_of(run_one: Callable[..., Outcome], options: Callable[[int], Options]) -> Callable[[int], list[str]]:
    """Return what makes the run of a seed with these options and returns its findings."""
    return lambda seed: run_one(seed, options=options(seed)).problems
