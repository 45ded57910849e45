"""Producers and consumers of the simulation; each writes its history.

A producer has one batch in flight, and every value is unique. A producer without sequence numbers never repeats a
batch, since a repeat may be stored twice. A producer with sequence numbers repeats a batch until it is answered. A
consumer polls a partition from its position, at the leader or at any replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.format import batch as record_batch
from engine.format.batch_header import set_crc, stamp_sequence
from engine.format.keyed_batch import KeyEntry, RequestEntry, stored_entry, stored_rows
from tests.checking.history import History, Latest, Polled, Produced, Refused, records_of
from tests.simulation.world.network import Network
from tests.simulation.world.node import Node
from tests.simulation.world.world import World

TIMEOUT_S = 1.2
GIVE_UP_S = 6.0
SMALL = 4  # nodes, among which a client finds a leader by trying
AHEAD, AHEAD_EVERY = 100_000, 20  # how far above its position a consumer asks, once in AHEAD_EVERY requests


class Client:
    def __init__(self, name: str, world: World, network: Network, nodes: dict[int, Node], history: History) -> None:
        self.name = name
        self.world, self.network, self.nodes, self.history = world, network, nodes, history
        self.is_stopped = False
        self.idle_until = 0.0

    def is_idle(self, resume: Callable[[], None]) -> bool:
        """True while the client pauses; `go_on` is then called at the end of the pause."""
        if self.world.now < self.idle_until:
            self.world.after(self.idle_until - self.world.now, resume)
            return True
        return False

    def call(self, node_id: int, call: str, *args: Any) -> None:
        """Send a request to a node. The last of `args` is called with the answer; it is never called if none
        arrives.
        """
        node = self.nodes[node_id]
        *rest, reply = args

        def answer(*values: Any) -> None:
            self.network.send(node.name, self.name, reply, *values)

        self.network.send(self.name, node.name, node.deliver, call, *rest, answer, may_repeat=self.may_repeat(call))

    def may_repeat(self, call: str) -> bool:
        return True

    def any_node(self) -> int:
        return self.world.random.choice(sorted(self.nodes))

    def find_leader(self, partition: str) -> int:
        """Return any node; in a large cluster the leader that this node knows, to which its gateway would forward."""
        node_id = self.any_node()
        hosted = None if len(self.nodes) <= SMALL else self.nodes[node_id].hosted(partition)
        leader = None if hosted is None or hosted.known is None else hosted.known.state.leader
        return node_id if leader is None else leader.node_id


class ConnectedClient(Client):
    """Its requests and answers arrive once or not at all, as on a connection, but may be late."""

    def may_repeat(self, call: str) -> bool:
        return False

    def call(self, node_id: int, call: str, *args: Any) -> None:
        *rest, reply = args
        answers = iter((reply,))

        def on_answer(*values: Any) -> None:
            for first in answers:
                first(*values)

        super().call(node_id, call, *rest, on_answer)


class _Values:
    """Makes the batches of a producer: every value is unique."""

    def made(self: Any, partition: str, count: int, acks: str) -> Produced:
        values = tuple(f"{self.name}-{self._number}.{i}" for i in range(count))
        return Produced(self.name, partition, values, acks, self.world.now)

    def batch_of(self, produced: Produced) -> bytearray:
        return record_batch.encode_values([value.encode() for value in produced.values], 1_700_000_000_000)


class Producer(_Values, Client):
    """Sends a batch, waits for the answer or a timeout, then sends the next."""

    def __init__(self, *args: Any, partitions: list[str], acks: str, every_s: float) -> None:
        super().__init__(*args)
        self._partitions, self._acks, self._every_s = partitions, acks, every_s
        self._leader: dict[str, int] = {}
        self._number = 0

    def may_repeat(self, call: str) -> bool:
        """False for a produce without a sequence: the server cannot recognise a repeat, and TCP delivers no
        duplicates.
        """
        return call != "on_produce"

    def run(self) -> None:
        if self.is_stopped or self.is_idle(self.run):
            return
        self._number += 1
        partition = self.world.random.choice(self._partitions)
        count = self.world.random.choice((1, 1, 2, 3))
        produced = self.made(partition, count, self._acks)
        self.history.produced.append(produced)
        node = self._leader.get(partition) or self.find_leader(partition)
        batch = self.batch_of(produced)
        self.call(
            node, "on_produce", partition, batch, count, self._acks, lambda *a: self._on_answer(produced, node, *a)
        )
        self.world.after(TIMEOUT_S, self._give_up, produced)

    def _on_answer(self, produced: Produced, node: int, outcome: str, detail: Any) -> None:
        if produced.done_at != float("inf"):
            return
        produced.done_at, produced.outcome = self.world.now, outcome
        if outcome == "ok":
            produced.base_offset, produced.code = detail, ""
            self._leader[produced.partition] = node
        else:
            produced.code = detail
            self._leader.pop(produced.partition, None)
        self.world.count(f"produce {outcome}")
        self._next(0.05 if outcome == "fail" else 0.0)

    def _give_up(self, produced: Produced) -> None:
        if produced.done_at == float("inf"):
            produced.done_at = self.world.now
            self._leader.pop(produced.partition, None)
            self.world.count("produce info")
            self._next(0.0)

    def _next(self, wait_s: float) -> None:
        self.world.after(wait_s + self._every_s * self.world.random.random(), self.run)


class SequencedProducer(_Values, Client):
    """Numbers its records and repeats a batch until it gets its offset: each record is stored once, and in order.

    A producer that gives up a batch starts a new epoch, which fences requests of the old one that are still in flight.
    """

    def __init__(self, *args: Any, partition: str, producer_id: int, every_s: float) -> None:
        super().__init__(*args)
        self._partition, self._producer_id, self._every_s = partition, producer_id, every_s
        self._leader: int | None = None
        self._epoch = self._sequence = self._number = self._attempt = 0
        self._is_maybe_stored = False

    def run(self) -> None:
        if self.is_stopped or self.is_idle(self.run):
            return
        self._number += 1
        count = self.world.random.choice((1, 1, 2, 3))
        produced = self.made(self._partition, count, "all")
        self.history.produced.append(produced)
        self._is_maybe_stored = False
        self._send(produced, until=self.world.now + GIVE_UP_S)

    def _send(self, produced: Produced, until: float) -> None:
        if self.is_stopped or self.world.now > until:
            self._give_up(produced)
            return
        self._attempt += 1
        attempt, node = self._attempt, self._leader or self.find_leader(self._partition)
        batch = self.batch_of(produced)
        stamp_sequence(batch, self._producer_id, self._epoch, self._sequence)
        set_crc(batch)

        def on_answer(outcome: str, detail: Any) -> None:
            if attempt == self._attempt:
                self._on_answer(produced, node, outcome, detail, until)

        self.call(node, "on_produce", self._partition, batch, len(produced.values), "all", on_answer)
        self.world.after(TIMEOUT_S, self._on_timeout, produced, attempt, until)

    def _on_answer(self, produced: Produced, node: int, outcome: str, detail: Any, until: float) -> None:
        self._attempt += 1
        self.world.count(f"produce {outcome}")
        if outcome == "ok":
            produced.outcome, produced.base_offset, produced.done_at = "ok", detail, self.world.now
            self._leader = node
            self._sequence += len(produced.values)
            self.world.after(self._every_s * self.world.random.random(), self.run)
            return
        self._is_maybe_stored |= outcome == "info"
        self._again(produced, until)

    def _on_timeout(self, produced: Produced, attempt: int, until: float) -> None:
        if attempt == self._attempt:
            self._is_maybe_stored = True
            self.world.count("produce info")
            self._again(produced, until)

    def _again(self, produced: Produced, until: float) -> None:
        self._leader = None
        self._attempt += 1
        self.world.after(0.05, self._send, produced, until)

    def _give_up(self, produced: Produced) -> None:
        produced.done_at = self.world.now
        produced.outcome = "info" if self._is_maybe_stored else "fail"
        self._epoch, self._sequence = self._epoch + 1, 0
        self.world.after(self._every_s, self.run)


class PipeliningProducer(_Values, Client):
    """Sends four batches of a new producer at once, and repeats each until it is stored; then the next producer.

    They overtake each other, and a node that does not lead yet refuses some. The oldest one without an answer is the
    next of its sequence wherever it arrives, so no gap may be reported of it (KAFKA-15591).
    """

    def __init__(self, *args: Any, partition: str, producer_id: int) -> None:
        super().__init__(*args)
        self._partition, self._producer_id = partition, producer_id
        self._number = 0
        self._open: list[int] = []  # sequences without an answer
        self._attempts: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        if self.is_stopped or self.is_idle(self.run):
            return
        self._producer_id += 1
        self._open = [0, 1, 2, 3]
        for sequence in tuple(self._open):
            self._number += 1
            produced = self.made(self._partition, 1, "all")
            produced.client += f" {self._number}"  # a client of its own in the history: it is not sent after another
            self.history.produced.append(produced)
            self._send(produced, self._producer_id, sequence)

    def _send(self, produced: Produced, producer_id: int, sequence: int) -> None:
        if self.is_stopped:
            return
        which = producer_id, sequence
        attempt = self._attempts[which] = self._attempts.get(which, 0) + 1
        batch = self.batch_of(produced)
        stamp_sequence(batch, producer_id, 0, sequence)
        set_crc(batch)
        is_oldest = self._open[0] == sequence

        def on_answer(outcome: str, detail: Any) -> None:
            if self._attempts[which] != attempt:
                return
            self._attempts[which] += 1
            self.world.count(f"pipelined {outcome}")
            if outcome == "ok":
                produced.outcome, produced.base_offset, produced.done_at = "ok", detail, self.world.now
                self._open.remove(sequence)
                if not self._open:
                    self.world.after(0.05, self.run)
                return
            if detail == "sequence_gap" and is_oldest:
                self.history.gaps_of_oldest.append(f"{produced.values[0]} of producer {producer_id}, {sequence=}")
            self.world.after(0.05, self._send, produced, producer_id, sequence)

        self.call(self.any_node(), "on_produce", self._partition, batch, 1, "all", on_answer)
        self.world.after(TIMEOUT_S, on_answer, "info", "no answer")


class KeyedProducer(Client):
    """Names each batch by a key, repeats it until it is answered, and sometimes repeats it long after that.

    The time of the key is that of the receiving node, a different one at each attempt. Repeats are within the window.
    Keys imply no order, so each batch is a client of its own in the history.
    """

    def __init__(self, *args: Any, partition: str, every_s: float) -> None:
        super().__init__(*args)
        self._partition, self._every_s = partition, every_s
        self._leader: int | None = None
        self._number = 0
        self._asked: dict[str, int] = {}

    def run(self) -> None:
        if self.is_stopped or self.is_idle(self.run):
            return
        self._number += 1
        values = (f"{self.name}-{self._number}.0", f"{self.name}-{self._number}.1")
        produced = Produced(f"{self.name}-{self._number}", self._partition, values, "all", self.world.now)
        self.history.produced.append(produced)
        self._send(produced, self.world.now + GIVE_UP_S)
        self.world.after(self._every_s, self.run)

    def _send(self, produced: Produced, until: float) -> None:
        key = produced.values[0]
        self._asked[key] = asked = self._asked.get(key, 0) + 1
        taken_by, node = self.nodes[self.any_node()], self._leader or self.any_node()
        entry = KeyEntry(key.encode().ljust(16), b"request".ljust(16), 1, taken_by.clock.now_ms())
        values = [value.encode() for value in produced.values]
        if asked % 2:
            batch = record_batch.encode_values(values, 1_700_000_000_000, entry=stored_entry(entry))
        else:  # in the form of a batch that several requests share
            rows = [(1_700_000_000_000, None, value, []) for value in values]
            requests = [RequestEntry(entry, 0, len(values))]
            batch = record_batch.encode(rows, entry=stored_rows(requests), sequenced=(-1, -1, len(requests)))

        def on_answer(outcome: str, detail: Any) -> None:
            if self._asked[key] == asked:
                self._on_answer(produced, node, outcome, detail, until)

        def on_timeout() -> None:
            if self._asked[key] == asked:
                self._on_answer(produced, node, "info", "no answer", until)

        self.call(node, "on_produce", self._partition, batch, len(values), "all", on_answer)
        self.world.after(TIMEOUT_S, on_timeout)

    def _on_answer(self, produced: Produced, node: int, outcome: str, detail: Any, until: float) -> None:
        self._asked[produced.values[0]] += 1
        self.world.count(f"keyed {outcome}")
        if outcome == "ok":
            self._leader = node
            if produced.outcome == "ok":
                self.world.count("keyed repeats answered")
            else:
                produced.outcome, produced.base_offset, produced.done_at = "ok", detail, self.world.now
            if self.world.random.random() < 0.6 and not self.is_stopped:
                again_s = 2 * self.world.random.random()
                self.world.after(again_s, self._send, produced, self.world.now + again_s + GIVE_UP_S)
        else:
            self._leader = None
            if self.world.now < until and not self.is_stopped:
                self.world.after(0.1, self._send, produced, until)
            elif produced.outcome != "ok":
                produced.done_at = self.world.now


class Consumer(Client):
    """Reads one partition from its beginning; sometimes asks for the log end."""

    def __init__(self, *args: Any, partition: str, every_s: float, is_full_read: bool = False) -> None:
        super().__init__(*args)
        self.partition, self._every_s, self._is_full_read = partition, every_s, is_full_read
        self.position = 0
        self._end_seen = 0
        self._epoch_seen = 0
        self._node: int | None = None
        self._asked = 0

    def run(self) -> None:
        self._asked += 1
        if self.is_stopped:
            return
        node = self._node or self.find_leader(self.partition)
        asked, number = self.position, self._asked
        if number % AHEAD_EVERY == 0:
            asked += AHEAD  # above anything that is committed
        if self.world.random.random() < 0.2:
            seen = self._epoch_seen, self._end_seen, self.world.now
            self.call(node, "on_latest", self.partition, lambda *a: self._on_latest(*seen, *a))
        about = node, asked, number, self.world.now
        self.call(node, "on_read", self.partition, asked, lambda *a: self._on_answer(*about, *a))
        self.world.after(TIMEOUT_S, self._give_up, number)

    def _on_answer(
        self,
        node: int,
        asked: int,
        number: int,
        asked_at: float,
        what: str,
        data: bytes,
        log_start: int,
        watermark: int,
        epoch: int,
    ) -> None:
        if number != self._asked:
            return
        self._node = node if what == "ok" and self.world.random.random() < 0.6 else None
        if what == "below":
            self.position = log_start
        elif what == "above":
            self.world.count("refused permanently: above the watermark")
            self.history.refused.append(Refused(self.name, self.partition, node, asked, asked_at))
        elif what == "ok":
            # Keeps the whole batches that were sent; the first one may begin below the position.
            records = tuple(record for record in records_of(data) if record[0] >= asked)
            about = (self.name, self.partition, node, asked, records, log_start, watermark, self.world.now)
            self.history.polled.append(Polled(*about, self._is_full_read))
            self._epoch_seen = max(self._epoch_seen, epoch)
            if records:
                self.position = records[-1][0] + 1
                self._end_seen = max(self._end_seen, self.position)
                self.world.counts["records consumed"] += len(records)
        self.world.after(self._every_s * self.world.random.random(), self.run)

    def _on_latest(
        self, epoch_seen: int, seen: int, at: float, what: str, offset: int | None, leader_epoch: int
    ) -> None:
        """Ignore an old leader epoch: a replaced leader that does not know it yet reports an old end."""
        if what == "ok" and offset is not None and leader_epoch < epoch_seen:
            self.world.count("answers of replaced leaders")
        elif what == "ok" and offset is not None:
            self.history.latest.append(Latest(self.name, self.partition, offset, seen, at))
        else:
            self.world.count("latest not available")

    def _give_up(self, number: int) -> None:
        if number == self._asked:
            self._node = None
            self.run()
