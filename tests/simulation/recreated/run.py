"""One run whose topic is deleted and created again under its name, some times, while clients use the name.

A partition is named by the id of its topic. Nodes delete what has a tombstone, as soon as they learn of it. That may be
long after others have created the next topic. A produce names no id, so it may be stored in either topic. Records that
a node acknowledges while it does not know of the deletion are lost. Everything else is promised: no record of one topic
is ever in another one, readers begin each topic at its beginning, and the last topic keeps what it acknowledged.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from replication.cores.assignment import assigned_replicas
from replication.cores.partition_state import initial_state
from tests.checking.recreation_checkers import in_two_topics, not_from_the_start
from tests.simulation.rebuild.run import KEEPING
from tests.simulation.recreated.clients import NamedProducer, NamedReader
from tests.simulation.run import Options, Outcome, Run, options_for
from tests.simulation.world.store import TOPIC
from tests.simulation.world.world import LOGGED_EVENTS

RETRY_S = 0.1


def recreated_options(seed: int) -> Options:
    options = options_for(seed)
    kinds = tuple(kind for kind in options.kinds if kind in KEEPING) or ("kill", "lose_power")
    rules = replace(options.rules, is_unclean_allowed=False)
    return replace(options, kinds=kinds, rules=rules, retention_bytes=None, local_retention_bytes=None)


class RecreatedRun(Run):
    def __init__(self, seed: int, options: Options, logged_events: int = LOGGED_EVENTS) -> None:
        super().__init__(seed, options, logged_events)
        random = Random(f"topics created again in {seed}")
        self._topic_ids = [TOPIC]
        self._deleted_at: dict[str, float] = {}  # by partition
        numbers = [str(number) for number in range(options.partitions)]
        self.producers[:] = [
            NamedProducer(*self._client(f"p{i}"), partitions=numbers, acks=acks, every_s=0.1)
            for i, acks in enumerate(("all", "all", "1"))
        ]
        self.consumers = [
            NamedReader(*self._client(f"r{i}"), number=i % options.partitions, every_s=every_s)
            for i, every_s in enumerate((0.05, 0.2, 0.6))
        ]
        for at in (1.5 + random.random(), 4.0 + random.random()):
            self.world.after(at, self._delete, 0.5 * random.random() ** 2)

    def _delete(self, until_created_s: float) -> None:
        if self.store.is_down or self.store.snapshot.topic_id is None:
            self.world.after(RETRY_S, self._delete, until_created_s)
            return
        self.store.delete()
        self._deleted_at |= dict.fromkeys(self.partitions, self.world.now)
        self.world.count("topics deleted")
        self.world.after(until_created_s, self._create)

    def _create(self) -> None:
        """Create the topic with another id, once enough nodes are there."""
        registered = self.store.snapshot.registrations
        racks = {number: self.nodes[number].rack for number in registered}
        if self.store.is_down or len(racks) < 3:
            self.world.after(RETRY_S, self._create)
            return
        topic_id = f"{TOPIC}{len(self._topic_ids)}"
        self._topic_ids.append(topic_id)
        assigned = assigned_replicas(racks, self.options.partitions, 3)
        states = {f"{topic_id}-{n}": initial_state(replicas, registered) for n, replicas in enumerate(assigned)}
        self.partitions[:] = sorted(states)
        self.store.create(replace(self._entry, topic_id=topic_id), states)
        self.world.count("topics created again")

    def _chaos(self) -> None:
        self.world.after(0.4, self._keep_entry)
        super()._chaos()

    def _keep_entry(self) -> None:
        self._entry = self.store.topic()

    def _has_all_committed_since(self, began: float) -> bool:
        acknowledged = [write for write in self.history.produced if write.is_acknowledged and write.invoked_at >= began]
        return {write.partition for write in acknowledged}.issuperset(self.partitions)

    def _judge(self) -> list[str]:
        findings = in_two_topics(self.history.produced, self.history.polled) + not_from_the_start(self.history.polled)
        last = set(self.partitions)
        for write in self.history.produced:
            is_late = write.outcome == "ok" and write.invoked_at > self._deleted_at.get(write.partition, float("inf"))
            self.world.counts["produces that a deleted topic acknowledged"] += is_late
        self.history.produced = [
            write for write in self.history.produced if write.outcome != "ok" or write.partition in last
        ]
        self.history.polled = [poll for poll in self.history.polled if poll.partition in last]
        return findings + super()._judge()


def run_recreated(seed: int, logged_events: int = LOGGED_EVENTS, options: Options | None = None) -> Outcome:
    return RecreatedRun(seed, options or recreated_options(seed), logged_events).execute()
