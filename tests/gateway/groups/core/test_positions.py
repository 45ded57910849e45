"""Committed positions: tokens, commits of members and zombies, resets."""

import pytest

from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.errors import (
    CoordinatorMoved,
    GroupNotEmpty,
    GroupsFull,
    InvalidToken,
    MemberFenced,
    StaleToken,
    UnknownMember,
)
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.values import CommitCall, ConfigCall, Position, ResetCall, Slot, TopicSize
from tests.gateway.groups.core.coordinators import GROUP, Stage, delivery, numbers


def test_a_token_commits_exactly_its_delivery():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"), 3)
    assert stage.committed(0) == 0
    grant = stage.poll("a", token)
    assert stage.committed(0) == 3
    assert grant.assignment[0].offset == 3


def test_a_poll_repeated_with_the_old_token_reads_from_the_same_positions():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"), 3)
    first = stage.poll("a", token)
    assert stage.poll("a", token).assignment == first.assignment


def test_a_poll_without_a_token_reads_from_the_committed_positions():
    stage = Stage(t=1)
    first = stage.poll("a")
    assert stage.poll("a").assignment == first.assignment


def test_the_token_of_a_removed_member_is_stale_and_its_records_are_delivered_again():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"), 3)
    stage.sweep(60_000)
    with pytest.raises(StaleToken) as refused:
        stage.poll("a", token)
    assert refused.value.members["recover"] == {"token": None}
    assert stage.poll("a").assignment[0].offset == 0


def test_the_token_of_a_deleted_group_is_stale():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"), 3)
    stage.leave("a")
    stage.call(Coordinator.delete, GROUP)
    with pytest.raises(StaleToken):
        stage.poll("a", token)
    assert stage.core.groups == {}


def test_the_token_of_a_deleted_group_is_stale_in_a_new_group_of_its_name():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"), 3)
    stage.leave("a")
    stage.call(Coordinator.delete, GROUP)
    stage.now_ms += 1
    stage.poll("a")
    with pytest.raises(StaleToken):
        stage.poll("a", token)
    assert stage.committed(0) == 0


def test_positions_of_deleted_topics_make_room():
    stage = Stage(CoordinatorLimits(positions_max=2), t=2, u=1)
    stage.commit(0, 5)
    stage.commit(1, 5)
    more = CommitCall(GROUP, None, 0, (Position("u", "id-u", 0, 1),))
    with pytest.raises(GroupsFull):
        stage.call(Coordinator.commit, more)
    del stage.topics["t"]
    stage.call(Coordinator.commit, more)
    assert list(stage.core.groups[GROUP].offsets) == [Slot("u", 0)]
    stage.fail_over()
    assert list(stage.core.groups[GROUP].offsets) == [Slot("u", 0)]


def test_a_refused_commit_of_a_member_purges_nothing():
    stage = Stage(CoordinatorLimits(positions_max=1), t=1, u=1)
    stage.commit(0, 5)
    del stage.topics["t"]
    with pytest.raises(UnknownMember):
        stage.call(Coordinator.commit, CommitCall(GROUP, "a", 1, (Position("u", "id-u", 0, 1),)))
    assert list(stage.core.groups[GROUP].offsets) == [Slot("t", 0)]


def test_the_token_of_an_earlier_membership_is_stale():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"), 3)
    stage.leave("a")
    stage.poll("a")
    with pytest.raises(StaleToken):
        stage.poll("a", token)


def test_the_token_of_a_partition_that_another_member_has_is_stale():
    stage = Stage(t=2)
    token = delivery("a", stage.poll("a"), 3)
    stage.poll("b")
    stage.poll("a", delivery("a", stage.poll("a"), 0))  # it gives up a partition that it has not committed
    stage.poll("b")
    with pytest.raises(StaleToken):
        stage.poll("a", token)
    assert {stage.committed(0), stage.committed(1)} == {0}


def test_a_token_of_another_member_is_refused():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"))
    stage.poll("b")
    with pytest.raises(InvalidToken):
        stage.poll("b", token)


def test_a_token_from_before_a_reset_commits_nothing():
    stage = Stage(t=1)
    token = delivery("a", stage.poll("a"), 9)
    stage.reset(0, 4, force=True)
    with pytest.raises(StaleToken):
        stage.poll("a", token)
    assert stage.poll("a").assignment[0].offset == 4


def test_a_commit_never_goes_back():
    stage = Stage(t=1)
    member = stage.heartbeat("a")
    stage.commit(0, 5, "a", member.member_epoch)
    stage.commit(0, 3, "a", member.member_epoch)
    assert stage.committed(0) == 5


def test_a_member_commits_what_it_has_yet_to_give_up():
    stage = Stage(t=2)
    member = stage.heartbeat("a")
    stage.heartbeat("b")
    kept = stage.heartbeat("a", member.member_epoch, topics=None)
    [lost] = {0, 1} - numbers(kept)
    stage.commit(lost, 5, "a", member.member_epoch)
    assert stage.committed(lost) == 5


def test_a_zombie_commits_nothing():
    stage = Stage(t=1)
    member = stage.heartbeat("a")
    stage.sweep(60_000)
    stage.heartbeat("b")
    with pytest.raises(UnknownMember):
        stage.commit(0, 5, "a", member.member_epoch)
    stage.heartbeat("a")
    with pytest.raises(MemberFenced):
        stage.commit(0, 5, "a", member.member_epoch)
    assert stage.committed(0) is None


def test_a_member_commits_only_what_it_owns():
    stage = Stage(t=2)
    stage.poll("a")
    second = stage.heartbeat("b")
    with pytest.raises(MemberFenced):
        stage.commit(0, 5, "b", second.member_epoch)


def test_a_position_in_a_topic_is_not_committed_into_another_of_its_name():
    stage = Stage(t=1)
    member = stage.heartbeat("a")
    stage.topics["t"] = TopicSize("another", 1)  # the sweep has not seen it yet
    with pytest.raises(MemberFenced):
        stage.commit(0, 50, "a", member.member_epoch)
    assert stage.committed(0) is None


def test_positions_of_a_topic_that_the_coordinator_does_not_know_yet_are_asked_for_again():
    stage = Stage(t=1)
    stage.poll("a")
    positions = (stage.position(0, 5),)
    del stage.topics["t"]
    with pytest.raises(CoordinatorMoved):
        stage.call(Coordinator.commit, CommitCall("new", None, 0, positions))
    with pytest.raises(CoordinatorMoved):
        stage.call(Coordinator.reset, ResetCall(GROUP, positions, True))


def test_without_membership_the_group_must_be_empty_or_overruled():
    stage = Stage(t=1)
    stage.commit(0, 2)
    stage.poll("a")
    with pytest.raises(GroupNotEmpty):
        stage.commit(0, 5)
    stage.commit(0, 5, force=True)
    assert stage.committed(0) == 5


def test_a_reset_needs_an_empty_group_or_is_forced():
    stage = Stage(t=1)
    stage.poll("a")
    with pytest.raises(GroupNotEmpty):
        stage.reset(0, 3)
    stage.leave("a")
    stage.commit(0, 8)
    stage.reset(0, 3)
    assert stage.committed(0) == 3


def test_a_forced_reset_fences_the_commits_of_members_from_before_it():
    stage = Stage(t=1)
    before = stage.heartbeat("a")
    stage.reset(0, 0, force=True)
    with pytest.raises(MemberFenced):
        stage.commit(0, 6, "a", before.member_epoch)
    after = stage.heartbeat("a", before.member_epoch, topics=None)
    stage.commit(0, 1, "a", after.member_epoch)
    assert stage.committed(0) == 1


def test_without_auto_commit_a_token_moves_the_reader_and_commits_nothing():
    stage = Stage(t=2)
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"auto_commit": False}))
    token = delivery("a", stage.poll("a"), 3)
    grant = stage.poll("a", token)
    assert [one.offset for one in grant.assignment] == [3, 3]
    assert {stage.committed(0), stage.committed(1)} == {0}
    stage.poll("b")
    assert len(numbers(stage.poll("a", delivery("a", grant)))) == 1
    assert [one.offset for one in stage.poll("b").assignment] == [0]


def test_a_deleted_group_leaves_nothing_behind():
    stage = Stage(t=1)
    stage.poll("a")
    with pytest.raises(GroupNotEmpty):
        stage.call(Coordinator.delete, GROUP)
    stage.leave("a")
    stage.call(Coordinator.delete, GROUP)
    stage.fail_over()
    assert stage.core.groups == {}
    latest = {row.key: row.value for row in stage.rows}
    assert set(latest.values()) == {None}


def test_a_reset_that_knows_an_earlier_count_of_resets_changes_nothing():
    stage = Stage(t=1)
    grant = stage.poll("a")
    lower = ResetCall(GROUP, (stage.position(0, 5),), True, grant.resets)
    stage.call(Coordinator.reset, lower)
    assert stage.committed(0) == 5
    stage.reset(0, 9, force=True)
    stage.call(Coordinator.reset, lower)
    assert stage.committed(0) == 9
