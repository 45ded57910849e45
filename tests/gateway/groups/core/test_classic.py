"""The classic protocol as a core: generations, parked calls, instances, and calls of members that are none any more."""

from __future__ import annotations

import random

import pytest

from gateway.groups.core import classic
from gateway.groups.model.classic import (
    ClassicState,
    JoinAnswer,
    JoinCall,
    MemberCall,
    Phase,
    Refusal,
    SyncAnswer,
    SyncCall,
)

SESSION_MS, REBALANCE_MS = 10_000, 20_000
RANGE = (("range", b"r"), ("sticky", b"s"))


class Cluster:
    """A group with a clock that the test moves."""

    def __init__(self) -> None:
        self.state = ClassicState()
        self.now_ms = 1000
        self.ids = 0

    def join(
        self,
        member_id: str = "",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        kind: str = "consumer",
        *,
        must_know_id: bool = False,
        may_skip: bool = True,
        session_ms: int = SESSION_MS,
    ) -> JoinAnswer:
        self.ids += 1
        call = JoinCall(
            *("g", member_id, instance, kind, protocols, session_ms, REBALANCE_MS, f"id{self.ids}"),
            *(must_know_id, may_skip),
        )
        return classic.join(self.state, call, self.now_ms, 10)

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> SyncAnswer:
        call = SyncCall(MemberCall("g", member_id, None, generation), tuple((assignments or {}).items()))
        return classic.sync(self.state, call, self.now_ms)

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> Refusal:
        return classic.heartbeat(self.state, MemberCall("g", member_id, instance, generation), self.now_ms)

    def commit(self, member_id: str, generation: int) -> Refusal:
        return classic.check_commit(self.state, MemberCall("g", member_id, None, generation), self.now_ms)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        classic.advance(self.state, self.now_ms)

    def stable(self, *instances: str | None) -> list[str]:
        """Returns the ids of members of a stable group of generation 1, the leader first."""
        ids = [self.join(instance=instance).member_id for instance in instances]
        self.wait(classic.INITIAL_DELAY_MS)
        assert self.sync(ids[0], 1, {one: one.encode() for one in ids}).assignment == ids[0].encode()
        return ids


@pytest.fixture
def group() -> Cluster:
    return Cluster()


def test_members_that_arrive_together_are_one_generation(group: Cluster) -> None:
    first = group.join()
    assert first.is_parked
    group.wait(1000)
    second = group.join()
    group.wait(classic.INITIAL_DELAY_MS - 1)
    assert group.join(first.member_id).is_parked  # the second has prolonged the wait
    group.wait(1)
    one, two = group.join(first.member_id), group.join(second.member_id)
    assert (one.generation, one.leader, one.protocol) == (1, first.member_id, "range")
    assert [member[0] for member in one.members] == [first.member_id, second.member_id]
    assert [member[2] for member in one.members] == [b"r", b"r"]
    assert (two.leader, two.members) == (first.member_id, ())  # the leader alone gets them
    assert group.state.phase is Phase.COMPLETING


def test_the_leaders_bytes_are_handed_out(group: Cluster) -> None:
    first, second = group.join().member_id, group.join().member_id
    group.wait(classic.INITIAL_DELAY_MS)
    assert group.sync(second, 1).is_parked
    assert group.beat(second, 1) is Refusal.NONE  # in CompletingRebalance
    assert group.commit(second, 1) is Refusal.REBALANCING
    assert group.sync(first, 1, {first: b"1", second: b"2"}).assignment == b"1"
    assert group.sync(second, 1).assignment == b"2"
    assert group.sync(first, 1).assignment == b"1"  # a repeat
    assert group.commit(second, 1) is Refusal.NONE


def test_a_new_member_gets_its_id_first(group: Cluster) -> None:
    asked = group.join(must_know_id=True)
    assert (asked.refusal, asked.member_id) == (Refusal.MEMBER_ID_REQUIRED, "id1")
    assert group.state.phase is Phase.EMPTY
    assert group.join("id1", must_know_id=True).is_parked
    assert group.join("other").refusal == Refusal.UNKNOWN_MEMBER
    assert group.join(must_know_id=True).member_id == "id4"
    group.wait(SESSION_MS)
    assert group.join("id4").refusal == Refusal.UNKNOWN_MEMBER  # it came too late


def test_a_new_member_rebalances_and_old_ones_may_commit_meanwhile(group: Cluster) -> None:
    leader, other = group.stable(None, None)
    late = group.join()
    assert late.is_parked
    assert group.beat(leader, 1) is Refusal.REBALANCING
    assert group.sync(other, 1).refusal == Refusal.REBALANCING
    assert group.commit(other, 1) is Refusal.NONE
    assert group.join(leader).is_parked
    answer = group.join(other)  # the last one
    assert (answer.generation, answer.leader) == (2, leader)
    assert group.join(late.member_id).generation == 2
    assert group.commit(other, 1) is Refusal.ILLEGAL_GENERATION
    assert group.beat("nobody", 2) is Refusal.UNKNOWN_MEMBER


def test_who_does_not_join_again_is_removed(group: Cluster) -> None:
    leader, other = group.stable(None, None)
    new = group.join().member_id
    for _ in range(REBALANCE_MS // 5000):
        group.wait(5000)
        group.beat(leader, 1)
        group.beat(other, 1)
        group.join(new)
        group.join(leader)
    assert set(group.state.members) == {leader, new}
    assert group.state.phase is Phase.COMPLETING
    assert group.beat(other, 1) is Refusal.UNKNOWN_MEMBER


def test_who_does_not_sync_is_removed(group: Cluster) -> None:
    first, second = group.join().member_id, group.join().member_id
    group.wait(classic.INITIAL_DELAY_MS)
    assert group.sync(second, 1).is_parked
    for _ in range(5):
        group.wait(REBALANCE_MS // 5)
        group.beat(first, 1)
    assert set(group.state.members) == {second}
    assert group.sync(second, 1).refusal == Refusal.REBALANCING
    assert group.join(second).leader == second


def test_a_session_ends(group: Cluster) -> None:
    leader, other = group.stable(None, None)
    group.wait(SESSION_MS - 1)
    assert group.beat(leader, 1) is Refusal.NONE
    group.wait(1)
    assert set(group.state.members) == {leader}
    assert group.join(leader).generation == 2
    assert classic.leave(group.state, leader, None, group.now_ms) is Refusal.NONE
    assert (group.state.phase, group.state.generation) == (Phase.EMPTY, 3)
    assert classic.leave(group.state, other, None, group.now_ms) is Refusal.UNKNOWN_MEMBER


def test_a_repeat_of_a_join_gets_the_same_generation(group: Cluster) -> None:
    leader, other = group.stable(None, None)
    again = group.join(other)
    assert (again.generation, again.is_parked) == (1, False)
    assert group.join(other, protocols=(("range", b"new"),)).is_parked
    assert group.join(leader).generation == 2


def test_protocols_must_have_one_in_common(group: Cluster) -> None:
    assert group.join(protocols=()).refusal == Refusal.INCONSISTENT
    assert group.join(kind="").refusal == Refusal.INCONSISTENT
    group.join(protocols=(("a", b""), ("b", b"")))
    assert group.join(protocols=(("c", b""),)).refusal == Refusal.INCONSISTENT
    assert group.join(protocols=(("b", b""),), kind="connect").refusal == Refusal.INCONSISTENT
    other = group.join(protocols=(("b", b""),))
    group.wait(classic.INITIAL_DELAY_MS)
    assert group.join(other.member_id, protocols=(("b", b""),)).protocol == "b"
    assert group.join(session_ms=1).refusal == Refusal.SESSION_TIMEOUT


def test_an_instance_that_starts_again_keeps_its_assignment(group: Cluster) -> None:
    leader, other = group.stable("a", "b")
    again = group.join(instance="b")
    assert (again.generation, again.is_parked, again.member_id) == (1, False, "id3")
    assert group.sync("id3", 1).assignment == other.encode()
    assert group.beat(other, 1, "b") is Refusal.FENCED
    assert group.join(other, "b").refusal == Refusal.FENCED
    assert group.join(instance="a").skips_assignment
    assert group.state.leader in group.state.members
    old = group.join(instance="a", may_skip=False)
    assert (old.members, old.leader == old.member_id) == ((), False)  # so it does not assign
    assert leader not in group.state.members


def test_an_instance_leaves_by_its_name(group: Cluster) -> None:
    group.stable("a", "b")
    assert classic.leave(group.state, "wrong", "b", group.now_ms) is Refusal.FENCED
    assert classic.leave(group.state, "", "c", group.now_ms) is Refusal.UNKNOWN_MEMBER
    assert classic.leave(group.state, "", "b", group.now_ms) is Refusal.NONE
    assert set(group.state.instances) == {"a"}
    assert group.state.phase is Phase.PREPARING


def test_a_full_group_takes_nobody(group: Cluster) -> None:
    for _ in range(10):
        assert not group.join().refusal
    assert group.join().refusal == Refusal.FULL


@pytest.mark.parametrize("seed", range(30))
def test_random_members_agree(seed: int) -> None:
    """One leader a generation, generations that only grow, and bytes of the present generation alone."""
    dice, group = random.Random(seed), Cluster()
    members: dict[str, int] = {}
    assigned: dict[int, set[str]] = {}
    for _ in range(300):
        before = group.state.generation
        member_id = dice.choice([*members, ""])
        step = dice.randrange(6)
        if step <= 2:
            answer = group.join(member_id)
            members.pop(member_id, None)
            if not answer.refusal:
                members[answer.member_id] = -1 if answer.is_parked else answer.generation
                if answer.members:
                    assert answer.leader == answer.member_id
        elif step == 3 and member_id:
            generation = members[member_id]
            given = {one: b"%d %s" % (generation, one.encode()) for one in group.state.members}
            found = group.sync(member_id, generation, given)
            if not found.refusal and not found.is_parked and found.assignment:
                assert found.assignment == b"%d %s" % (group.state.generation, member_id.encode())
                assigned.setdefault(generation, set()).add(group.state.leader)
        elif step == 4 and member_id:
            group.beat(member_id, members[member_id])
        else:
            group.wait(dice.choice((10, 3000, 9000)))
        assert group.state.generation >= before
        if group.state.phase in (Phase.STABLE, Phase.COMPLETING):
            assert group.state.leader in group.state.members
        assert (group.state.phase is Phase.EMPTY) == (not group.state.members)
    assert all(len(leaders) == 1 for leaders in assigned.values())


def test_ids_that_are_given_out_are_bounded() -> None:
    cluster = Cluster()
    given = [cluster.join(must_know_id=True).member_id for _ in range(30)]
    assert len(cluster.state.pending) == 10
    assert cluster.join(given[0], must_know_id=True).refusal == Refusal.UNKNOWN_MEMBER
    assert cluster.join(given[-1], must_know_id=True).is_parked
