"""The coordinator of the groups on a simulated node: the real core, and gateway/groups/hosting without its event loop.

As there: one coordinator for each period of leadership, made at its first call from the committed log; one batch of
records under way; an answer waits until what it shows is stored; after a failed append the coordinator is dropped.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError
from engine.format import batch as record_batch
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.values import Now, PartitionRacks, Row, TopicSize, TopicSource
from gateway.groups.share.values import Acquired

if TYPE_CHECKING:
    from tests.simulation.world.hosted import Hosted, Reply
    from tests.simulation.world.node import Life

TOPIC, TOPIC_ID = "t", "id"
Decide = Callable[[Coordinator, Now, TopicSource], Any]
_hostings = itertools.count(1)


class Topics:
    """Implements TopicSource: the one topic of the simulation, without the partition of the groups."""

    def __init__(self, partitions: int) -> None:
        self._size = TopicSize(TOPIC_ID, partitions)

    def find(self, name: str) -> TopicSize | None:
        return self._size if name == TOPIC else None

    def racks(self, name: str) -> tuple[PartitionRacks, ...]:
        return ()

    def names(self) -> Collection[str]:
        return (TOPIC,)


class Coordinating:
    """One coordinator. Its log is `partition`, whose leader it dies with."""

    def __init__(self, life: Life, partition: Hosted) -> None:
        self.hosting = next(_hostings)
        self.core = Coordinator(CoordinatorLimits())
        self.leader = partition.leader
        self.is_over = False
        self._life, self._partition = life, partition
        self._source = Topics(int(partition.partition.partition("-")[2]))
        self._pending: deque[tuple[int, list[Row]]] = deque()
        self._sequence = self._stored = 0
        self._is_appending = False
        self._waiting: deque[tuple[int, Reply]] = deque()
        for batch in partition.log.all_batches(partition.high_watermark):
            for record in record_batch.decode_one(batch):
                value = None if record.value is None else bytes(record.value)
                self.core.replay(Row(bytes(record.key or b""), value))
        life.log("%s: coordinates groups, %r", partition.partition, self.core)
        self.decide(Coordinator.begin)

    def decide(self, call: Decide) -> tuple[Any, int]:
        """Return the answer of the core, and what must be stored before it leaves. Raises EngineError."""
        now = Now(self._life.clock.steady_ms(), self._life.clock.now_ms())
        try:
            answer = call(self.core, now, self._source)
        finally:
            rows = self.core.take_rows()
            self.core.woken.clear()
            if rows:
                self._sequence += 1
                self._pending.append((self._sequence, rows))
                self._write()
        return answer, 0 if self._stored == self._sequence else self._sequence

    def prove_lead(self, answer: Any, sequence: int) -> int:
        """Return what must be stored before records are handed out, or a lock is extended: it shows who leads."""
        if isinstance(answer, Acquired) and answer.granted:
            for group in self.core.groups.values():
                self.core.note_change(group).is_changed = True
            return self.decide(lambda *_: None)[1]
        return sequence

    def answer_when_stored(self, sequence: int, reply: Reply) -> None:
        if self.is_over:
            reply("moved", None)
        elif sequence <= self._stored:
            reply("ok", None)
        else:
            self._waiting.append((sequence, reply))

    def close(self) -> None:
        self.is_over = True
        for _, reply in self._waiting:
            reply("moved", None)
        self._waiting.clear()

    def is_leading(self) -> bool:
        return not self.is_over and self.leader is not None and self._partition.leader is self.leader

    def _write(self) -> None:
        if self._is_appending or self.is_over or not self._pending:
            return
        if not self.is_leading():
            self.close()
            return
        rows = [row for _, decided in self._pending for row in decided]
        sequence = self._pending[-1][0]
        self._pending.clear()
        self._is_appending = True
        now_ms = self._life.clock.now_ms()
        batch = record_batch.encode([(now_ms, row.key, row.value, []) for row in rows])
        self._partition.produce(batch, len(rows), "all", lambda outcome, _: self._on_written(sequence, outcome))

    def _on_written(self, sequence: int, outcome: str) -> None:
        self._is_appending = False
        self._life.world.count(f"records of groups {outcome}")
        if outcome != "ok":
            self.close()
            return
        self._stored = sequence
        while self._waiting and self._waiting[0][0] <= sequence:
            self._waiting.popleft()[1]("ok", None)
        self._write()


class Coordinators:
    """The coordinator of a process, if it leads the partition of the groups."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._now: Coordinating | None = None

    def call(self, partition: Hosted, decide: Decide, reply: Reply) -> None:
        """Reply with ok and (answer, hosting, sequence), error and the error, or moved."""
        coordinating = self._at(partition)
        if coordinating is None:
            reply("moved", None)
            return
        try:
            answer, sequence = coordinating.decide(decide)
            sequence = coordinating.prove_lead(answer, sequence)
        except EngineError as error:
            reply("error", error)
            return
        reply("ok", (answer, coordinating.hosting, sequence))

    def answer_when_stored(self, hosting: int, sequence: int, reply: Reply) -> None:
        now = self._now
        if now is None or now.hosting != hosting or not now.is_leading():
            reply("moved", None)
        else:
            now.answer_when_stored(sequence, reply)

    def leading(self) -> Coordinator | None:
        """Return the state of the coordinator that leads."""
        return self._now.core if self._now is not None and self._now.is_leading() else None

    def sweep(self) -> None:
        if self._now is not None and self._now.is_leading():
            self._now.decide(Coordinator.sweep)

    def _at(self, partition: Hosted) -> Coordinating | None:
        """Return the coordinator; begin one when this node leads and everything in its log is committed."""
        if self._now is not None:
            if self._now.is_leading():
                return self._now
            self._now.close()
            self._now = None
        if may_begin(partition):
            self._life.world.count("coordinators begun")
            self._now = Coordinating(self._life, partition)
        return self._now


def may_begin(partition: Hosted) -> bool:
    """True if the committed log has all that earlier coordinators answered."""
    leader = partition.leader
    if leader is None or partition.log.offline or leader.latest_offset is None:
        return False
    return partition.high_watermark >= partition.log.log.log_end and partition.life.session.has_contact(
        partition.life.world.now
    )
