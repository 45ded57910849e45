"""Members in any order of polls, lost answers, heartbeats, deaths and failovers, against a dumb twin.

The twin knows what each member was given and which tokens it presented. It holds the coordinator to: one owner for each
partition; positions that only a reset moves back; nothing below a committed position that no presented token had; a
delivery that begins at the committed position; a failed record that is passed only as a dead letter, after as many
reports as it takes; and a replay that gives the same state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs

from engine.errors import EngineError
from gateway.groups.core import coordinator, failures, positions
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.membership import reconcile
from gateway.groups.model import records
from gateway.groups.model.errors import MemberFenced, StaleToken, UnknownMember
from gateway.groups.model.state import Group, Member
from gateway.groups.model.values import (
    ConfigCall,
    Failure,
    Grant,
    Now,
    PollCall,
    ResetCall,
    Setting,
    Slot,
    Token,
    TopicSize,
    TopicSource,
)
from tests.gateway.groups.core.coordinators import GROUP, Stage, at, delivery, replayed, snapshot

MEMBERS = ("a", "b", "c")
DELIVERIES_MAX = 2
members = st.sampled_from(MEMBERS)


class Groups(RuleBasedStateMachine):
    """`given` has every offset that a presented token covered, or that a reset or a start skipped."""

    @initialize(partitions=st.integers(1, 5), has_dead_letters=st.booleans())
    def begin(self, partitions: int, has_dead_letters: bool) -> None:
        self.stage = Stage(t=partitions)
        self.tokens: dict[str, list[Token]] = {member: [] for member in MEMBERS}
        self.spans: dict[int, list[tuple[Slot, int, int]]] = {}  # of each token
        self.given: set[tuple[Slot, int]] = set()
        self.committed: dict[Slot, int] = {}
        self.epochs: dict[str, int] = {}
        self.resets = 0
        self.resets_of: dict[int, int] = {}  # the twin's own count at each token's delivery
        if has_dead_letters:
            config: dict[str, Setting] = {"dead_letter_topic": "dead", "deliveries_max": DELIVERIES_MAX}
            self.stage.call(Coordinator.configure, ConfigCall(GROUP, config))
        self.reports: dict[tuple[Slot, int], set[int]] = {}  # the tokens that reported each failed record

    @rule(member=members, count=st.integers(0, 3), is_lost=st.booleans(), age=st.integers(0, 2))
    def poll(self, member: str, count: int, is_lost: bool, age: int) -> None:
        """Poll with one of the last tokens or none; a lost answer leaves the member with what it had."""
        known = self.tokens[member]
        token = known[-age] if 0 < age <= len(known) else None
        group = self._group()
        owners = {} if group is None else dict(group.owners)
        before = {} if group is None else dict(group.offsets)
        try:
            grant = self.stage.poll(member, token)
        except StaleToken:
            known.clear()
            return
        if token is not None:
            assert self.resets_of[id(token)] == self.resets, "a token from before a reset was accepted"
            self._present(token)
            moved = {slot for slot, found in self.stage.core.groups[GROUP].offsets.items() if found != before.get(slot)}
            assert all(owners.get(slot, member) == member for slot in moved), "a member has committed what it lost"
        self._check_positions(grant, token)
        if not is_lost:
            self._deliver(member, grant, count)

    @rule(
        member=members,
        place=st.integers(0, 20),
        is_copied=st.booleans(),
        repeats=st.integers(1, 2),
        age=st.integers(1, 3),
    )
    def fail(self, member: str, place: int, is_copied: bool, repeats: int, age: int) -> None:
        """Poll with one of the last tokens and a failed record of its delivery, and copy the dead letters or not."""
        if not self.tokens[member]:
            self.poll(member, 2, is_lost=False, age=0)
        token = self.tokens[member][-min(age, len(self.tokens[member]))]
        places = [(one[0], at) for one in self.spans[id(token)] for at in range(*one[1:])]
        if not places:
            return
        slot, offset = places[place % len(places)]
        failed = (Failure(*slot, offset, ""),)
        call = PollCall(GROUP, member, ("t",), failures.trim(token, failed), failed=failed)
        for _ in range(repeats):
            try:
                grant: Grant = self.stage.call(Coordinator.poll, call)
            except StaleToken:
                self.tokens[member].clear()
                return
            self._present(token, slot, offset)
            reports = self.reports.setdefault((slot, offset), set())
            reports.add(id(token))
            for letter in grant.dead:
                assert DELIVERIES_MAX <= letter.deliveries <= len(reports), "it failed more often than was reported"
                assert (letter.first, letter.last) == (offset, offset)
                if is_copied:
                    copied = (self.stage.position(slot.partition, offset + 1),)
                    grant = self.stage.call(Coordinator.poll, structs.replace(call, copied=copied))
                    self.given.add((slot, offset))
            if starts := tuple(at(one, 0) for one in grant.assignment if one.offset < 0):
                grant = self.stage.call(Coordinator.poll, structs.replace(call, starts=starts))
        self._deliver(member, grant, 2)

    @rule(member=members, is_owning=st.booleans())
    def heartbeat(self, member: str, is_owning: bool) -> None:
        group = self.stage.core.groups.get(GROUP)
        found = None if group is None else group.members.get(member)
        owned = None
        if found is not None and is_owning:
            owned = {slot.partition for slot in found.assigned}
        try:
            self.epochs[member] = self.stage.heartbeat(member, self.epochs.get(member, 0), owned=owned).member_epoch
        except (MemberFenced, UnknownMember):
            self.epochs[member] = 0

    @rule(member=members, offset=st.integers(0, 30))
    def commit(self, member: str, offset: int) -> None:
        number = offset % self.stage.topics["t"].partitions
        try:
            self.stage.commit(number, offset, member, max(1, self.epochs.get(member, 0)))
        except EngineError:
            return
        slot = Slot("t", number)
        assert self.stage.core.groups[GROUP].owners[slot] == member
        self.given |= {(slot, one) for one in range(offset)}

    @rule(member=members)
    def leave(self, member: str) -> None:
        self.stage.leave(member)

    @rule(ms=st.sampled_from((1_000, 20_000, 50_000, 70_000)))
    def sweep(self, ms: int) -> None:
        self.stage.sweep(ms)
        self._check_swept()

    @rule(member=members, change=st.sampled_from((1, -1)))
    def wait(self, member: str, change: int) -> None:
        """Begin an open poll or end one. Its member stays as long as it waits, and a session after it."""
        self.stage.core.wait(GROUP, member, self.stage.now, change)

    @rule()
    def fail_over(self) -> None:
        self.stage.fail_over()

    @precondition(lambda self: GROUP in self.stage.core.groups)
    @rule(offset=st.integers(0, 30))
    def reset(self, offset: int) -> None:
        number = offset % self.stage.topics["t"].partitions
        self.stage.reset(number, offset, force=True)
        slot = Slot("t", number)
        self.committed[slot] = offset
        self.resets += 1
        self.given |= {(slot, one) for one in range(offset)}

    @rule(member=members, offset=st.integers(0, 30))
    def reset_during_a_delivery(self, member: str, offset: int) -> None:
        self.poll(member, 0, is_lost=False, age=0)
        self.reset(offset)
        self.poll(member, 0, is_lost=False, age=1)

    @rule()
    def grow(self) -> None:
        size = self.stage.topics["t"]
        if size.partitions < 7:
            self.stage.topics["t"] = TopicSize(size.topic_id, size.partitions + 1)
            self.stage.sweep()
            self._check_swept()

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self._group()
        if group is None:
            return
        owners: dict[Slot, str] = {}
        for member in group.members.values():
            for slot in (*member.assigned, *member.revoking):
                assert owners.setdefault(slot, member.member_id) == member.member_id
        assert owners == group.owners

    @invariant()
    def positions_do_not_go_back_and_skip_nothing(self) -> None:
        group = self._group()
        if group is None:
            return
        for slot, found in group.offsets.items():
            before = self.committed.get(slot, 0)
            assert found.offset >= before
            assert all((slot, one) in self.given for one in range(before, found.offset))
            self.committed[slot] = found.offset

    @invariant()
    def a_replay_gives_the_same_state(self) -> None:
        if self._is_begun():
            assert snapshot(replayed(self.stage.rows, self.stage.limits)) == snapshot(self.stage.core)

    def teardown(self) -> None:
        """Let the last member take everything: no partition may be lost to all."""
        if not self._is_begun():
            return
        for member in MEMBERS[1:]:
            self.stage.leave(member)
        for _ in range(2):
            self.stage.poll("a")
        assert len(self.stage.owned("a")) == self.stage.topics["t"].partitions
        assert self.stage.core.groups[GROUP].state == "stable"

    def _is_begun(self) -> bool:
        return hasattr(self, "stage")

    def _group(self):
        return self.stage.core.groups.get(GROUP) if self._is_begun() else None

    def _check_swept(self) -> None:
        """A sweep passes over groups, but over none that is due."""
        group, now_ms = self.stage.core.groups.get(GROUP), self.stage.now_ms
        for member in () if group is None else group.members.values():
            assert member.waiting or member.session_ends_ms > now_ms, "a member stays after its session"
            assert member.rebalance_ends_ms is None or member.rebalance_ends_ms > now_ms, "a member keeps partitions"
        if group is not None and group.members:
            assert group.sizes == dict(self.stage.topics), "a topic's growth was passed over"

    def _present(self, token: Token, failed: Slot | None = None, offset: int = 0) -> None:
        """Note what a token covers; of the partition of a failed record only what is before it."""
        for slot, start, end in self.spans[id(token)]:
            self.given |= {(slot, one) for one in range(start, min(end, offset) if slot == failed else end)}

    def _check_positions(self, grant: Grant, token: Token | None) -> None:
        group = self.stage.core.groups[GROUP]
        for one in grant.assignment:
            assert group.owners[one.slot] == (token.member_id if token else group.owners[one.slot])
            assert one.offset == group.offsets[one.slot].offset

    def _deliver(self, member: str, grant: Grant, count: int) -> None:
        token = delivery(member, grant, count)
        self.resets_of[id(token)] = self.resets
        self.spans[id(token)] = [(one.slot, one.offset, one.offset + count) for one in grant.assignment]
        self.tokens[member].append(token)


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestGroups = Groups.TestCase


def _lends(group: Group, member: Member, slots: Iterable[Slot], now: Now) -> None:
    """Free what a member gives up, and let the member keep it."""
    for slot in slots:
        group.owners.pop(slot, None)
    reconcile(group, now)


def _forgets_resets(core: Coordinator, call: ResetCall, now: Now, source: TopicSource) -> None:
    ORIGINAL_RESET(core, call, now, source)
    core.groups[call.group].resets -= 1


def _counts_repeats(group: Group, member: Member, token: Token, failed: Iterable[Failure], now: Now) -> None:
    ORIGINAL_COUNT(group, member, structs.replace(token, delivery=token.delivery + next(COUNTER)), failed, now)


COUNTER = itertools.count(1_000_000)
ORIGINAL_COUNT = failures._count
ORIGINAL_RESET = Coordinator.reset
MUTANTS = {
    "a position goes back": (positions, "_is_committed", lambda group, position: False),
    "a partition has two owners": (coordinator, "release", _lends),
    "a member commits what it lost": (Member, "epoch_of", lambda member, slot: 0),
    "a token survives a reset": (Coordinator, "reset", _forgets_resets),
    "revoked partitions are not stored": (records, "_nest", lambda epochs: {}),
    "a failed record is passed": (failures, "trim", lambda token, failed: token),
    "a repeated report counts twice": (failures, "_count", _counts_repeats),
    "failures are not stored": (records, "_offset_record", lambda one: records._encode((one.offset, "", 0))),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, mutant = MUTANTS[name]
    monkeypatch.setattr(where, what, mutant)
    quick = settings(
        max_examples=300,
        stateful_step_count=25,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
    )
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(Groups, settings=quick)


@pytest.mark.parametrize("seed", range(3))
def test_replaying_a_prefix_never_fails(seed: int) -> None:
    """A coordinator may be replaced after any stored call."""
    stage = Stage(t=4)
    for step in range(12):
        member = MEMBERS[(step * (seed + 1)) % 3]
        grant = stage.poll(member)
        if step % 2:
            stage.poll(member, delivery(member, grant))
        stage.fail_over()
        assert snapshot(replayed(stage.rows, stage.limits)) == snapshot(stage.core)
