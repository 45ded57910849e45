"""Membership: joins, revocation step by step, fencing, sessions."""

import json

import pytest

from engine.errors import InvalidConfig
from gateway.groups.core.coordinator import IDLE_LOOK_MS, Coordinator
from gateway.groups.model.errors import GroupsFull, MemberFenced, UnknownMember
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.values import (
    START_EARLIEST,
    Client,
    CommitCall,
    ConfigCall,
    HeartbeatCall,
    Now,
    PartitionRacks,
    PollCall,
    Row,
    Slot,
    TopicSize,
)
from tests.gateway.groups.core.coordinators import GROUP, Stage, delivery, numbers, replayed, snapshot

DAY_MS = 86_400_000


def test_joining_twice_with_one_id_is_one_member():
    stage = Stage(t=4)
    first = stage.heartbeat("m")
    assert stage.heartbeat("m") == first
    assert len(stage.core.groups[GROUP].members) == 1


def test_a_member_that_joins_again_within_its_session_brings_its_timeouts():
    stage = Stage(t=1)
    stage.poll("a")
    stage.call(Coordinator.poll, PollCall(GROUP, "a", ("t",), session_timeout_ms=100_000))
    stage.sweep(90_000)
    assert stage.owned("a") == {0}
    stage.call(Coordinator.heartbeat, HeartbeatCall(GROUP, "a", 0, ("t",), None, 5_000, None, Client("pod")))
    stage.fail_over()
    assert stage.core.groups[GROUP].members["a"].client == Client("pod")
    stage.sweep(6_000)
    assert stage.core.groups[GROUP].members == {}


def test_what_a_later_version_has_stored_is_kept():
    stage = Stage(t=1)
    stage.poll("a")
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"start": "latest"}))
    rows = dict(stage.rows)
    for key, value in rows.items():
        fields = json.loads(value) if value is not None else None
        if isinstance(fields, dict):
            fields |= {"later": {"x": 1}}
            if "config" in fields:
                fields["config"] |= {"start": "noon", "patience": 7}
            rows[key] = json.dumps(fields).encode()
    stage.rows = [Row(key, value) for key, value in rows.items()]
    stage.fail_over()
    assert stage.core.groups[GROUP].settings.start == "earliest"
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"heartbeat_ms": 1000}))
    stage.poll("b")
    stage.leave("b")
    stage.poll("a", topics=("t", "u"))
    stored = {json.loads(key)[0]: json.loads(value) for key, value in dict(stage.rows).items() if value is not None}
    assert stored["group"]["config"] == {"start": "noon", "patience": 7, "heartbeat_ms": 1000}
    assert stored["group"]["later"] == stored["member"]["later"] == {"x": 1}
    with pytest.raises(InvalidConfig):
        stage.call(Coordinator.configure, ConfigCall(GROUP, {"patience": 8}))


def test_a_heartbeat_of_an_earlier_epoch_of_the_same_membership_is_accepted():
    stage = Stage(t=2)
    first = stage.heartbeat("a")
    stage.heartbeat("b")
    assert numbers(stage.heartbeat("a", first.member_epoch, topics=None)) != numbers(first)


def test_a_member_of_an_earlier_membership_is_fenced_and_learns_how_to_return():
    stage = Stage(t=2)
    first = stage.heartbeat("a")
    stage.leave("a")
    stage.heartbeat("a")
    with pytest.raises(MemberFenced) as refused:
        stage.heartbeat("a", first.member_epoch, topics=None)
    assert refused.value.members["recover"] == {"member_epoch": 0}


def test_a_removed_member_learns_how_to_return():
    stage = Stage(t=2)
    first = stage.heartbeat("a")
    stage.sweep(45_001)
    with pytest.raises(UnknownMember) as refused:
        stage.heartbeat("a", first.member_epoch, topics=None)
    assert refused.value.members["recover"] == {"member_epoch": 0}


def test_a_session_ends_without_calls_and_its_partitions_go_to_the_others():
    stage = Stage(t=2)
    stage.poll("a")
    stage.sweep(30_000)
    stage.poll("b")
    stage.sweep(30_000)
    assert list(stage.core.groups[GROUP].members) == ["b"]
    assert stage.owned("b") == {0, 1}


def test_a_sweep_does_not_pass_over_a_session_that_became_shorter():
    stage = Stage(t=1)
    stage.poll("a")
    stage.sweep()
    assert stage.core.groups[GROUP].look_ms > stage.now_ms + 6_000
    stage.call(Coordinator.heartbeat, HeartbeatCall(GROUP, "a", 0, ("t",), None, 5_000))
    stage.sweep(6_000)
    assert stage.core.groups[GROUP].members == {}


def test_an_open_poll_keeps_a_session():
    stage = Stage(t=2)
    stage.poll("a")
    stage.core.wait(GROUP, "a", stage.now, 1)
    stage.sweep(100_000)
    assert stage.owned("a") == {0, 1}
    stage.core.wait(GROUP, "a", stage.now, -1)
    stage.sweep(44_000)
    assert stage.owned("a") == {0, 1}
    stage.sweep(2_000)
    assert stage.core.groups[GROUP].members == {}


def test_a_member_that_keeps_a_revoked_partition_too_long_is_removed():
    stage = Stage(t=2)
    first = stage.heartbeat("a")
    stage.poll("b")
    for _ in range(7):
        stage.sweep(10_000)
        stage.poll("b")
        if "a" in stage.core.groups[GROUP].members:
            stage.heartbeat("a", first.member_epoch, topics=None)
    assert stage.owned("b") == {0, 1}


def test_a_member_that_left_frees_its_partitions_at_once():
    stage = Stage(t=2)
    stage.poll("a")
    stage.poll("b")
    stage.leave("a")
    assert numbers(stage.poll("b")) == {0, 1}


def test_new_partitions_of_a_topic_are_assigned_and_begin_at_their_first_record():
    stage = Stage(t=2)
    stage.poll("a")
    stage.topics["t"] = TopicSize("id-t", 3)
    stage.sweep()
    grant = stage.core.groups[GROUP]
    assert stage.owned("a") == {0, 1, 2}
    assert grant.topics["t"].first_partitions == 2


def test_a_topic_that_was_created_again_has_no_positions():
    stage = Stage(t=1)
    grant = stage.poll("a")
    token = delivery("a", grant, 7)
    stage.poll("a", token)
    stage.topics["t"] = TopicSize("another", 1)
    stage.sweep()
    assert stage.committed(0) is None
    again = stage.poll("a", token)
    assert [(one.topic_id, one.offset) for one in again.assignment] == [("another", 0)]


def test_a_topic_that_was_created_again_begins_at_its_first_record():
    stage = Stage(t=1)
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"start": "latest"}))
    stage.heartbeat("a")
    stage.topics["t"] = TopicSize("another", 1)
    stage.sweep()
    assert stage.heartbeat("a").assignment[0].offset == START_EARLIEST


def test_a_new_coordinator_has_the_state_of_the_old_one_and_sessions_begin_with_it():
    stage = Stage(t=4)
    token = delivery("a", stage.poll("a"))
    stage.poll("b")
    before = snapshot(stage.core)
    stage.now_ms += 44_000
    stage.fail_over()
    assert snapshot(stage.core) == before
    stage.sweep(44_000)
    assert numbers(stage.poll("a", token)) == stage.owned("a")
    assert len(numbers(stage.poll("b"))) == 2


def test_members_are_limited():
    stage = Stage(CoordinatorLimits(members_max=1), t=1)
    stage.poll("a")
    with pytest.raises(GroupsFull):
        stage.poll("b")


def test_groups_are_limited():
    stage = Stage(CoordinatorLimits(groups_max=0), t=1)
    with pytest.raises(GroupsFull):
        stage.poll("a")


def test_a_hundred_members_share_a_thousand_partitions_after_two_polls_each():
    stage = Stage(t=1000)
    tokens = {}
    for number in range(100):
        grant = stage.poll(f"m{number}")
        tokens[f"m{number}"] = delivery(f"m{number}", grant)
    for _ in range(2):
        for member, token in tokens.items():
            tokens[member] = delivery(member, stage.poll(member, token))
    group = stage.core.groups[GROUP]
    assert group.state == "stable"
    assert {len(member.assigned) for member in group.members.values()} == {10}


def test_a_group_without_members_and_commits_goes_after_its_retention():
    stage = Stage(t=1)
    stage.poll("a")
    stage.leave("a")
    stage.sweep()
    stage.sweep(6 * DAY_MS)
    assert GROUP in stage.core.groups
    stage.sweep(2 * DAY_MS)
    assert GROUP not in stage.core.groups
    stage.fail_over()
    assert GROUP not in stage.core.groups


@pytest.mark.parametrize("wall_ms", [-400 * DAY_MS, 30 * DAY_MS])
def test_a_wrong_wall_clock_deletes_no_positions(wall_ms):
    stage = Stage(t=1)
    stage.commit(0, 0)
    stage.sweep()
    for _ in range(2):  # the clock of this coordinator steps, then that of the next one at its start
        stage.now_ms += DAY_MS
        stage.core.sweep(Now(stage.now_ms, stage.now_ms + wall_ms), stage.topics)
        assert stage.committed(0) == 0
        stage.core = replayed(stage.rows, stage.limits)
        stage.core.begin(Now(stage.now_ms, stage.now_ms + wall_ms), stage.topics)
    stage.sweep(8 * DAY_MS)
    assert GROUP not in stage.core.groups


def test_the_age_of_an_idle_group_goes_on_in_the_next_coordinator():
    stage = Stage(t=1)
    stage.commit(0, 0)
    stage.now_ms += 3 * DAY_MS
    stage.call(Coordinator.commit, CommitCall("other", None, 0, (stage.position(0, 0),)))
    stage.fail_over()
    stage.sweep(5 * DAY_MS)
    assert set(stage.core.groups) == {"other"}


def test_a_commit_under_a_clock_that_is_ahead_leaves_other_groups_half_of_their_retention():
    stage = Stage(t=1)
    stage.commit(0, 0)
    stage.now_ms += 30 * DAY_MS
    stage.call(Coordinator.commit, CommitCall("other", None, 0, (stage.position(0, 0),)))
    stage.now_ms -= 30 * DAY_MS
    stage.fail_over()
    stage.sweep(3 * DAY_MS)
    assert set(stage.core.groups) == {GROUP, "other"}


def racked(stage: Stage, member: str, rack: str) -> set[int]:
    """Poll as a member in a rack."""
    call = PollCall(GROUP, member, ("t",), client=Client("", "", rack))
    return numbers(stage.call(Coordinator.poll, call))


def test_a_member_gets_partitions_whose_leader_is_in_its_rack():
    stage = Stage(t=4)
    stage.topics.placed["t"] = placed("r1", "r1", "r0", "r0")
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"assignor": "rack_aware"}))
    racked(stage, "a", "r0")
    racked(stage, "b", "r1")
    stage.poll("a", delivery("a", stage.poll("a")))
    assert (stage.owned("a"), stage.owned("b")) == ({2, 3}, {0, 1})
    assert stage.core.describe(GROUP, stage.now, stage.topics).members[1].rack == "r1"


def test_partitions_follow_leaders_only_when_two_looks_find_them_in_other_racks():
    stage = Stage(t=2)
    stage.topics.placed["t"] = placed("r0", "r1")
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"assignor": "rack_aware"}))
    racked(stage, "a", "r0")
    racked(stage, "b", "r1")
    stage.poll("a", delivery("a", stage.poll("a")))
    for member in "ab":
        stage.core.wait(GROUP, member, stage.now, 1)
    epoch = stage.core.groups[GROUP].epoch
    stage.topics.placed["t"] = placed("r1", "r0")
    stage.sweep(IDLE_LOOK_MS)
    stage.topics.placed["t"] = placed("r0", "r1")
    stage.sweep(IDLE_LOOK_MS)
    assert stage.core.groups[GROUP].epoch == epoch
    stage.topics.placed["t"] = placed("r1", "r0")
    for _ in range(2):
        stage.sweep(IDLE_LOOK_MS)
    assert stage.core.groups[GROUP].target == {Slot("t", 0): "b", Slot("t", 1): "a"}


def test_a_member_that_joins_again_in_another_rack_gets_other_partitions():
    stage = Stage(t=2)
    stage.topics.placed["t"] = placed("r0", "r1")
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"assignor": "rack_aware"}))
    racked(stage, "a", "r0")
    racked(stage, "b", "r1")
    racked(stage, "b", "r2")
    racked(stage, "a", "r1")
    assert stage.core.groups[GROUP].target == {Slot("t", 0): "b", Slot("t", 1): "a"}


def placed(*leaders: str) -> tuple[PartitionRacks, ...]:
    return tuple(PartitionRacks(one, frozenset({one})) for one in leaders)
