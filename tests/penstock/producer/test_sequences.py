"""The numbering of a partition's batches, with a simple node and an arbitrary network.

`Story` plays the driver: it sends what the pipeline allows, and hypothesis chooses each request's fate: rejected,
executed with its answer lost, delayed and then executed or not, delivered twice. The node is
tests/penstock/fake_sequences.py with a list as its log. At the end all delayed requests have arrived. Then the log must
hold each batch that did not fail once, in order, and each failed one at most once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.producer.sequences import EPOCH_MAX, Drained, Numbers, Pipeline, Sent
from tests.penstock.fake_sequences import FakeSequences, Verdict

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_EXAMPLES", "0")) or 300


@dataclass
class Item:
    name: int
    count: int


@dataclass
class Story:
    in_flight_max: int
    pipeline: Pipeline[Item] = field(init=False)
    node: FakeSequences = field(default_factory=FakeSequences)
    log: list[int] = field(default_factory=list)
    queue: list[Item] = field(default_factory=list)
    under_way: list[Sent[Item]] = field(default_factory=list)  # sent, in the network
    # abandoned by the client, and still in the network
    ghosts: list[tuple[Item, Numbers]] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    lost_by_node: set[int] = field(default_factory=set)
    names: int = 0
    ids: int = 1
    under_way_most: int = 0

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.in_flight_max)
        self.pipeline.begin(1)

    def produce(self, count: int) -> None:
        self.queue.append(Item(self.names, count))
        self.names += 1

    def send(self) -> None:
        """Send everything that may be sent."""
        if self.pipeline.needs_id:
            self.ids += 1
            self.pipeline.begin(self.ids)
        if (sent := self.pipeline.next_retry()) is not None:
            self.pipeline.retry(sent)
            self.under_way.append(sent)
        while self.queue and self.pipeline.can_take():
            item = self.queue.pop(0)
            self.under_way.append(self.pipeline.take(item, item.count))
        self.under_way_most = max(self.under_way_most, len(self.under_way))

    def arrive(self, item: Item, numbers: Numbers) -> Verdict:
        verdict = self.node.judge(*numbers, item.count)
        if verdict.code == "new":
            self.node.note(*numbers, item.count, len(self.log))
            self.log.append(item.name)
        return verdict

    def fate(self, which: int, what: str) -> None:
        """Apply a fate to one request in flight."""
        if not self.under_way:
            return
        sent = self.under_way.pop(which % len(self.under_way))
        if what in ("answered", "lost", "twice"):
            verdict = self.arrive(sent.item, sent.numbers)
            if what == "twice":
                verdict = self.arrive(sent.item, sent.numbers)
        if what in ("answered", "twice"):
            self.answer(sent, verdict)
        elif what == "busy":
            self.pipeline.on_held(sent, is_ambiguous=False)
        elif what == "refused":
            self.fail(sent, is_ambiguous=False)
        elif what == "cut" and sent.item.count > 1 and not sent.may_arrive:
            halves = [Item(sent.item.name, sent.item.count // 2), Item(self.names, 1)]
            self.pipeline.on_rejected(sent, halves[:1])  # the other half is invalid
        else:
            if what != "lost":
                self.ghosts.append((sent.item, sent.numbers))
            if what == "timed out":
                self.fail(sent, is_ambiguous=True)
            else:
                self.pipeline.on_held(sent, is_ambiguous=True)
        self.drain()

    def answer(self, sent: Sent[Item], verdict: Verdict) -> None:
        if verdict.code in ("new", "duplicate", "duplicate_older_than_window"):
            self.stored.add(sent.item.name)
            self.pipeline.on_stored(sent)
        elif verdict.code == "sequence_gap":
            self.pipeline.on_gap(sent)
        else:
            raise AssertionError(f"{sent} met {verdict}: no other producer has this id")

    def fail(self, sent: Sent[Item], *, is_ambiguous: bool) -> None:
        may_be_stored = is_ambiguous or sent.is_ambiguous
        if is_ambiguous:
            self.pipeline.on_held(sent, is_ambiguous=True)
        (self.unsure if may_be_stored or sent.may_arrive else self.refused).add(sent.item.name)
        self.pipeline.on_rejected(sent)

    def drain(self) -> None:
        drained: Drained[Item] | None = self.pipeline.drain()
        if drained is not None:
            self.queue[:0] = drained.resend
            self.unsure.update(item.name for item in drained.ambiguous)

    def ghost(self, which: int) -> None:
        """Deliver an abandoned request to the node."""
        if self.ghosts:
            self.arrive(*self.ghosts.pop(which % len(self.ghosts)))

    def crash(self, batches: int) -> None:
        """The node loses the end of its log and the related producer state: acks=1 and a power loss.

        It keeps one batch of the producer's epoch. A node without any accepts any first batch, so two requests in
        flight could be stored in reverse order: no numbering can prevent that.
        """
        if self.ghosts or self.unsure or self.under_way:  # in these cases the expected log is unknown
            return
        for known in self.node.known.values():
            for _ in range(min(batches, len(known.batches) - 1)):
                self.lost_by_node.add(self.log.pop())
                known.batches.pop()

    def finish(self) -> None:
        for _ in range(10_000):
            self.send()
            if not self.under_way:
                break
            self.fate(0, "answered")
        while self.ghosts:
            self.ghost(0)
        assert not self.queue
        assert not len(self.pipeline)

    def check(self) -> None:
        assert len(self.log) == len(set(self.log)), "stored twice"
        kept = [name for name in range(self.names) if name not in self.refused | self.unsure | self.lost_by_node]
        assert [name for name in self.log if name in set(kept)] == kept, "lost, or out of order"
        assert not self.refused & set(self.log), "reported as refused, but stored"
        assert self.under_way_most <= self.in_flight_max


FATES = ("answered", "lost", "late", "busy", "refused", "timed out", "cut", "twice")
STEPS = st.one_of(
    st.tuples(st.just("produce"), st.integers(1, 3)),
    st.tuples(st.just("ghost"), st.integers(0, 9)),
    st.tuples(st.just("crash"), st.integers(1, 3)),
    st.tuples(st.sampled_from(FATES), st.integers(0, 15)),
    st.tuples(st.just("answered"), st.integers(0, 15)),
)


def play(steps: list[tuple[str, int]], in_flight_max: int, pipeline: Pipeline[Item] | None = None) -> Story:
    story = Story(in_flight_max)
    if pipeline is not None:
        story.pipeline = pipeline
    for what, number in steps:
        if what == "produce":
            for _ in range(number):
                story.produce(number)
        elif what == "ghost":
            story.ghost(number)
        elif what == "crash":
            story.crash(number)
        else:
            story.fate(number, what)
        story.send()
    story.finish()
    story.check()
    return story


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(STEPS, max_size=60), st.sampled_from([1, 2, 5, 16]))
def test_each_batch_is_stored_once_and_in_order_whatever_the_network_does(
    steps: list[tuple[str, int]], in_flight_max: int
) -> None:
    play(steps, in_flight_max)


def open_pipeline(in_flight_max: int = 5) -> Pipeline[str]:
    pipeline: Pipeline[str] = Pipeline(in_flight_max)
    pipeline.begin(7)
    pipeline.on_stored(pipeline.take("first", 10))
    return pipeline


def test_sequences_count_records_and_begin_again_after_the_largest() -> None:
    pipeline = open_pipeline()
    assert pipeline.take("a", 3).numbers == Numbers(7, 0, 10)
    assert pipeline.take("b", 1).numbers == Numbers(7, 0, 13)
    pipeline._next_sequence = 2**31 - 2
    assert pipeline.take("c", 5).numbers.sequence == 2**31 - 2
    assert pipeline.take("d", 1).numbers.sequence == 3


def test_the_first_batch_goes_alone_and_so_does_the_first_after_a_pause() -> None:
    pipeline: Pipeline[str] = Pipeline(5)
    pipeline.begin(7)
    first = pipeline.take("a", 1)
    assert not pipeline.can_take()
    pipeline.on_stored(first)
    pipeline.take("b", 1)
    assert pipeline.can_take()
    for sent in list(pipeline):
        pipeline.on_stored(sent)
    pipeline.narrow()
    pipeline.take("c", 1)
    assert not pipeline.can_take()


def test_what_was_refused_for_a_gap_waits_for_those_before_it() -> None:
    pipeline = open_pipeline()
    a, b, c = (pipeline.take(name, 1) for name in "abc")
    pipeline.on_gap(b)
    pipeline.on_gap(c)
    assert pipeline.next_retry() is None
    assert not pipeline.can_take()  # a new one would only be rejected
    pipeline.on_stored(a)
    assert pipeline.next_retry() is b
    pipeline.retry(b)
    assert pipeline.next_retry() is None
    pipeline.on_stored(b)
    assert pipeline.next_retry() is c
    assert pipeline.drain() is None


def test_a_gap_before_which_nothing_is_under_way_raises_the_epoch() -> None:
    """The node has lost acknowledged batches."""
    pipeline = open_pipeline()
    a, b = pipeline.take("a", 1), pipeline.take("b", 1)
    pipeline.on_gap(a)
    assert pipeline.drain() is None  # b may be stored, if the node does not know this producer
    pipeline.on_gap(b)
    assert pipeline.drain() == Drained(["a", "b"], [])
    assert pipeline.take("a", 1).numbers == Numbers(7, 1, 0)
    assert not pipeline.can_take()


def test_a_failure_waits_for_the_fate_of_those_behind_it_and_numbers_them_again() -> None:
    pipeline = open_pipeline()
    a, b, c = (pipeline.take(name, 1) for name in "abc")
    pipeline.on_held(c, is_ambiguous=True)
    pipeline.on_rejected(a, ["a1", "a2"])
    pipeline.on_gap(b)
    assert pipeline.drain() is None
    assert pipeline.next_retry() is c  # with its old numbers, though it is not the first
    pipeline.retry(c)
    assert c.numbers == Numbers(7, 0, 12)
    pipeline.on_gap(c)
    assert pipeline.drain() == Drained(["a1", "a2", "b", "c"], [])


def test_what_may_arrive_behind_a_failure_that_may_arrive_is_given_up() -> None:
    pipeline = open_pipeline()
    a, b, c = (pipeline.take(name, 1) for name in "abc")
    pipeline.on_held(b, is_ambiguous=True)
    pipeline.on_held(a, is_ambiguous=True)
    pipeline.on_rejected(a)
    pipeline.on_gap(c)
    pipeline.retry(b)
    pipeline.on_gap(b)
    assert pipeline.drain() == Drained(["c"], ["b"])


def test_a_lost_id_and_the_last_epoch_ask_for_a_fresh_id() -> None:
    pipeline = open_pipeline()
    pipeline.on_id_lost(pipeline.take("a", 1))
    assert pipeline.drain() == Drained(["a"], [])
    assert (pipeline.needs_id, pipeline.lost_id) == (True, 7)
    pipeline.begin(8, EPOCH_MAX)
    pipeline.on_rejected(pipeline.take("a", 1))
    assert pipeline.drain() == Drained([], [])
    assert (pipeline.needs_id, pipeline.lost_id) == (True, 8)


class RenumbersAtOnce(Pipeline[Item]):
    """A mutant: does not wait for the outcome of requests in flight."""

    def drain(self) -> Drained[Item] | None:
        for sent in self._sent if self._is_draining else ():
            sent.is_in_flight = sent.is_ambiguous = False
        return super().drain()


class KeepsTheEpoch(Pipeline[Item]):
    """A mutant: assigns the numbers of a failed batch to others."""

    def _raise_epoch(self) -> None:
        epoch, sequences = self._epoch, [sent.numbers.sequence for sent in self._sent]
        super()._raise_epoch()
        self._epoch, self._next_sequence = epoch, min(sequences, default=0)


class BelievesInNoGhosts(Pipeline[Item]):
    """A mutant: renumbers batches that may still arrive."""

    def on_held(self, sent: Sent[Item], *, is_ambiguous: bool) -> None:
        super().on_held(sent, is_ambiguous=is_ambiguous)
        sent.may_arrive = False


class RepeatsOutOfTurn(Pipeline[Item]):
    """A mutant: a batch that was rejected for a gap fails, and later batches continue."""

    def on_gap(self, sent: Sent[Item]) -> None:
        self._sent.remove(sent)


THREE = [("produce", 1)] * 3
GHOSTS = [
    *THREE,
    ("answered", 0),
    ("late", 0),
    ("late", 0),
    ("timed out", 0),
    ("answered", 0),
    ("ghost", 0),
    ("ghost", 0),
]
CAUGHT = [
    (RenumbersAtOnce, [*THREE, ("answered", 0), ("refused", 0), ("answered", 1)]),
    (KeepsTheEpoch, [*THREE, ("answered", 0), ("refused", 0)]),
    (BelievesInNoGhosts, GHOSTS),
    (RepeatsOutOfTurn, [*THREE, ("answered", 0), ("answered", 1)]),
]


@pytest.mark.parametrize(("mutant", "steps"), CAUGHT)
def test_a_wrong_pipeline_is_caught(mutant: type[Pipeline[Item]], steps: list[tuple[str, int]]) -> None:
    play(steps, 5)
    pipeline = mutant(5)
    pipeline.begin(1)
    with pytest.raises((AssertionError, ValueError)):
        play(steps, 5, pipeline)
