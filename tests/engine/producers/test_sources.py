"""Source positions: which batches a partition stores, against a twin that keeps the log and searches it."""

from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from engine.format.keyed_batch import SourceEntry
from engine.producers.sources import KEPT, Source, SourceBatch, Sources, decode_sources, encode_sources, source_hash

A, B = source_hash("a"), source_hash("b")
MAX = 100


def entry(first: int, last: int, source: bytes = A) -> SourceEntry:
    return SourceEntry(source, first, last, 1_700_000_000_000)


def stored(*ranges: tuple[int, int], sources_max: int = MAX) -> Sources:
    """Return sources whose log has these batches of one record, at offsets 0, 1, and so on."""
    sources = Sources()
    for offset, one in enumerate(ranges):
        sources.replay(entry(*one), offset, 1, offset, sources_max)
    return sources


def verdict(sources: Sources, first: int, last: int) -> str | int:
    found = sources.validate(entry(first, last))
    if found is None:
        return "new"
    batch, position = found
    return "repeat" if position is None and (batch.first, batch.last) == (first, last) else position or -1


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(8, 8, "new"), (9, 20, "new"), (3, 7, "repeat"), (0, 2, "repeat"), (0, 0, 7), (7, 9, 7), (1, 30, 7), (4, 7, 7)],
)
def test_a_batch_is_stored_if_all_its_positions_are_above_the_last_one(first, last, expected):
    assert verdict(stored((0, 2), (3, 7)), first, last) == expected


def test_the_source_used_longest_ago_is_forgotten():
    sources = stored((0, 2), sources_max=2)
    for offset, name in enumerate("bc", 1):
        sources.replay(entry(0, 0, source_hash(name)), offset, 1, 5, 2)
    assert len(sources) == 2
    assert verdict(sources, 0, 2) == "new"


def test_a_key_of_the_same_text_has_another_hash():
    from hashlib import blake2b

    assert source_hash("order-7") != blake2b(b"order-7", digest_size=16).digest()


class SourcesAndTwin(RuleBasedStateMachine):
    """Plans, rolls, failures, restarts from a snapshot and transfers. The twin is the log of ranges."""

    @initialize()
    def begin(self):
        self.sources = Sources()
        self.log: list[SourceEntry] = []  # an entry at each offset
        self.now_ms = 0
        self.snapshot = (0, b"")

    @rule(
        plan=st.lists(
            st.tuples(st.sampled_from((A, B)), st.integers(-4, 3), st.integers(0, 3)), min_size=1, max_size=6
        ),
        is_written=st.booleans(),
        roll=st.integers(0, 6),
    )
    def write(self, plan, is_written, roll):
        """A plan of batches that begin a little before or after the last position."""
        self.now_ms += 1
        planned: list[SourceEntry] = []
        for source, ahead, length in plan:
            first = max(0, self._position(source, planned) + ahead)
            one = entry(first, first + length, source)
            expected = self._expected(one, planned)
            assert self.sources.validate(one) == expected, one
            if expected is None:
                self.sources.stage(one, len(self.log) + len(planned), 1, self.now_ms)
                planned.append(one)
        if is_written:
            rolled_at = len(self.log) + roll
            if roll <= len(planned):
                self.sources.commit(MAX, rolled_at)
                self.snapshot = (rolled_at, encode_sources(self.sources.items()))
                for known, one in self.sources.items():
                    assert one.position == self._last(known, [*self.log, *planned][:rolled_at]), "beyond the roll"
            self.log += planned
            self.sources.commit(MAX)
        else:
            self.sources.discard_staged()
        self._check()

    @rule()
    def restart(self):
        """Load the last snapshot and walk the log behind it."""
        offset, data = self.snapshot
        self.sources = Sources()
        self.sources.restore(decode_sources(data), MAX, self.now_ms)
        self._walk(self.sources, offset)
        self._check()

    @rule(back=st.integers(0, 4))
    def transfer(self, back):
        """A replica begins at an offset, with the state of the leader before it."""
        offset = max(0, len(self.log) - back)
        items = [(known, before) for known, one in self.sources.items() if (before := one.before(offset))]
        replica = Sources()
        replica.restore(decode_sources(encode_sources(items)), MAX, self.now_ms)
        for known, one in replica.items():
            assert one.position == self._last(known, self.log[:offset]), "nothing behind the offset"
        self._walk(replica, offset)
        for known in (A, B):
            found, expected = replica.find(known), self.sources.find(known)
            assert (found and found.position) == (expected and expected.position)

    @rule(source=st.sampled_from((A, B)))
    def forget(self, source):
        """All sources but the one that was just used expire."""
        self.now_ms += 1
        one = entry(self._position(source, []) + 1, self._position(source, []) + 1, source)
        self.sources.replay(one, len(self.log), 1, self.now_ms, MAX)
        self.log.append(one)
        self.sources.expire(self.now_ms)
        self.log = [
            kept._replace(source_hash=b"forgotten" * 2) if kept.source_hash != source else kept for kept in self.log
        ]
        self.snapshot = (len(self.log), encode_sources(self.sources.items()))
        self._check()

    def _walk(self, sources: Sources, offset: int) -> None:
        for at, one in enumerate(self.log[offset:], offset):
            sources.replay(one, at, 1, self.now_ms, MAX)

    def _last(self, source: bytes, log: list[SourceEntry]) -> int | None:
        return next((one.last for one in reversed(log) if one.source_hash == source), None)

    def _position(self, source: bytes, planned: list[SourceEntry]) -> int:
        last = self._last(source, [*self.log, *planned])
        return -1 if last is None else last

    def _expected(self, one: SourceEntry, planned: list[SourceEntry]) -> tuple[SourceBatch, int | None] | None:
        mine = [(at, kept) for at, kept in enumerate([*self.log, *planned]) if kept.source_hash == one.source_hash]
        if not mine or one.first > mine[-1][1].last:
            return None
        for at, kept in mine[-KEPT:]:
            if kept[:3] == one[:3]:
                return SourceBatch(*kept[1:3], at, 1, kept.time_ms), None
        at, latest = mine[-1]
        return SourceBatch(*latest[1:3], at, 1, latest.time_ms), latest.last

    def _check(self) -> None:
        for source in (A, B):
            ranges = [one for one in self.log if one.source_hash == source]
            assert all(one.last < other.first for one, other in pairwise(ranges)), "stored twice"
            found = self.sources.find(source)
            assert (found and found.position) == (ranges[-1].last if ranges else None)


def run_machine(examples: int) -> None:
    """Without shrinking: a planted fault is to be found, not explained."""
    run_state_machine_as_test(
        SourcesAndTwin,
        settings=settings(
            max_examples=examples,
            stateful_step_count=10,
            deadline=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            database=None,
        ),
    )


def test_sources_and_their_twin_agree():
    run_machine(30)


validate, stage, commit, before = Sources.validate, Sources.stage, Sources.commit, Source.before


def overlapping(self: Sources, one: SourceEntry):
    found = validate(self, one)
    return None if found is not None and found[0].last < one.last else found


def at_the_position(self: Sources, one: SourceEntry):
    return validate(self, one._replace(first=one.first + 1))


def kept_after_a_failure(self: Sources) -> None:
    """Planted: the notes of a failed plan stay."""


def all_at_a_roll(self: Sources, sources_max: int, below: int | None = None) -> None:
    commit(self, sources_max)


def not_in_the_plan(self: Sources, one: SourceEntry, *args: int) -> None:
    stage(self, one, *args)
    self._noted.clear()


def one_too_many(self: Source, offset: int) -> Source | None:
    return before(self, offset + 1)


@pytest.mark.parametrize(
    ("kind", "name", "mutant"),
    [
        (Sources, "validate", overlapping),
        (Sources, "validate", at_the_position),
        (Sources, "discard_staged", kept_after_a_failure),
        (Sources, "commit", all_at_a_roll),
        (Sources, "stage", not_in_the_plan),
        (Source, "before", one_too_many),
    ],
)
def test_a_mutant_is_caught(kind, name, mutant):
    with mock.patch.object(kind, name, mutant), pytest.raises(AssertionError):
        run_machine(200)
