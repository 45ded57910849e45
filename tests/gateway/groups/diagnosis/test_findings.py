"""Staged faults, each with the cause that the group's explanation names."""

import pytest

from gateway.groups.core.coordinator import Coordinator
from gateway.groups.diagnosis.facts import Behind
from gateway.groups.diagnosis.findings import findings
from gateway.groups.model.values import ConfigCall, Slot, TopicSize
from tests.gateway.groups.core.coordinators import GROUP, Stage, delivery

NOTHING = Behind(0, 0)
OLD = 120_000


def causes(stage: Stage, *behind: Behind) -> list[tuple[str, str | None, int | None]]:
    """Return the findings; `behind` is of the partitions of the topic t."""
    found = stage.call(Coordinator.explain, GROUP)
    places = {Slot("t", number): one for number, one in enumerate(behind)}
    return [(one.cause, one.member_id, one.partition) for one in findings(found, places)]


def settled(**partitions: int) -> Stage:
    """Return a group of one member, long after its coordinator began."""
    stage = Stage(**(partitions or {"t": 2}))
    stage.poll("a")
    return stage


def work(stage: Stage, *members: str, ms: int = 20_000) -> None:
    """Commit a delivery of each member, after some time."""
    for member in members:
        token = delivery(member, stage.poll(member))
        stage.now_ms += ms
        stage.poll(member, token)


def test_a_group_that_keeps_up_has_no_findings():
    stage = settled()
    work(stage, "a")
    assert causes(stage, NOTHING, Behind(3, 40)) == []


def test_a_group_without_members():
    stage = settled()
    stage.leave("a")
    assert causes(stage, Behind(5, OLD), NOTHING) == [("no_members", None, None)]


def test_a_member_that_hangs():
    stage = settled()
    stage.sweep(30_000)
    assert causes(stage, Behind(5, OLD), NOTHING) == [("silent_member", "a", None)]


def test_a_member_that_polls_is_not_silent():
    stage = settled()
    stage.core.wait(GROUP, "a", stage.now, 1)
    stage.sweep(300_000)
    assert causes(stage, NOTHING, NOTHING) == []


def test_a_member_that_calls_and_does_not_finish_its_work():
    stage = settled()
    for _ in range(5):
        stage.sweep(20_000)
        stage.heartbeat("a", 1, topics=None)
    assert causes(stage, Behind(5, OLD), NOTHING) == [("stuck_member", "a", None)]


def test_a_member_that_has_to_commit_by_hand_and_does_not():
    stage = settled()
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"auto_commit": False}))
    grant = stage.poll("a")
    for _ in range(4):
        stage.now_ms += 20_000
        grant = stage.poll("a", delivery("a", grant))
    assert causes(stage, Behind(5, OLD), NOTHING) == [("no_commits", "a", None)]


def test_a_member_that_keeps_revoked_partitions():
    stage = settled()
    stage.poll("b")
    stage.sweep(10_000)
    assert causes(stage, NOTHING, NOTHING) == [("slow_revocation", "a", None)]


def test_a_member_whose_session_ends_again_and_again():
    stage = settled()
    for _ in range(3):
        stage.sweep(46_000)
        stage.poll("a")
    assert causes(stage, NOTHING, NOTHING) == [("sessions_expire", "a", None)]


def test_a_member_that_is_removed_for_what_it_keeps():
    stage = settled()
    for _ in range(3):
        first = stage.heartbeat("a")
        stage.leave("b")
        stage.poll("b")
        for _ in range(7):
            stage.sweep(10_000)
            stage.poll("b")
            if "a" in stage.core.groups[GROUP].members:
                stage.heartbeat("a", first.member_epoch, topics=None)
    assert ("rebalance_timeouts", "a", None) in causes(stage, NOTHING, NOTHING)


def test_a_member_that_restarts():
    stage = settled()
    for _ in range(4):
        stage.sweep(5_000)
        stage.poll("a")
    assert causes(stage, NOTHING, NOTHING) == [("member_restarts", "a", None)]


def test_clients_that_share_a_member_id():
    stage = settled()
    tokens = [delivery("a", stage.poll("a")) for _ in range(2)]
    for _ in range(2):
        tokens = [delivery("a", stage.poll("a", token)) for token in tokens]
    assert causes(stage, NOTHING, NOTHING) == [("shared_member_id", "a", None)]


def test_a_client_that_repeats_its_polls_shares_no_member_id():
    stage = settled()
    grant = stage.poll("a")
    for _ in range(9):
        token = delivery("a", grant)
        stage.poll("a", token)  # its answer is lost
        stage.poll("a", token)
        grant = stage.poll("a", token)
    assert causes(stage, NOTHING, NOTHING) == []


def test_members_that_choose_a_new_name_at_each_start():
    stage = settled()
    for number in range(5):
        stage.poll(f"pod-{number}")
        stage.leave(f"pod-{number}")
    assert causes(stage, NOTHING, NOTHING) == [("new_names", None, None)]


def test_a_record_that_kills_its_workers():
    stage = settled(t=1)
    for number in range(3):
        stage.leave(f"w{number - 1}" if number else "a")
        stage.poll(f"w{number}")
    age = stage.now_ms
    assert ("poison_record", "w2", 0) in causes(stage, Behind(9, age))
    assert ("poison_record", "w2", 0) not in causes(stage, NOTHING)


def test_the_first_delivery_of_a_new_group_counts_too():
    stage = Stage(t=1)
    for _ in range(3):
        stage.poll("a")
    assert ("poison_record", "a", 0) in causes(stage, Behind(9, stage.now_ms))


def test_a_worker_that_restarts_before_the_record_came_is_not_killed_by_it():
    stage = settled(t=1)
    for _ in range(4):
        stage.poll("a")
        stage.now_ms += 1_000
    assert ("poison_record", "a", 0) not in causes(stage, Behind(1, 10))


def test_a_hot_partition():
    stage = settled(t=3)
    work(stage, "a")
    assert causes(stage, Behind(50_000, 10), Behind(20, 10), Behind(3, 10)) == [("hot_partition", "a", 0)]


def test_a_slow_member():
    stage = settled(t=4)
    stage.poll("b")
    stage.poll("a")
    slow = stage.owned("a")
    work(stage, "a", "b", ms=1_000)
    behind = [Behind(50_000, 10) if number in slow else Behind(5, 10) for number in range(4)]
    assert causes(stage, *behind) == [("slow_member", "a", None)]


def test_a_group_that_is_too_small():
    stage = settled()
    work(stage, "a")
    assert causes(stage, Behind(5_000, OLD), Behind(6_000, OLD)) == [("too_slow", None, None)]


def test_more_members_than_partitions():
    stage = settled(t=1)
    stage.poll("b")
    assert causes(stage, NOTHING) == [("idle_members", None, None)]


def test_a_topic_that_does_not_exist():
    stage = settled()
    stage.poll("a", topics=("t", "gone"))
    assert ("topic_missing", None, None) in causes(stage, NOTHING, NOTHING)


def test_a_partition_without_a_position_that_must_have_one():
    stage = Stage(t=1)
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"start": "error"}))
    stage.heartbeat("a")
    assert causes(stage) == [("no_position", "a", 0)]


def test_a_partition_whose_leader_does_not_answer():
    assert causes(settled(), NOTHING) == [("partition_unreachable", "a", 1)]


@pytest.mark.parametrize("cause", ["coordinator_started", "reset", "topics_changed"])
def test_what_happened_lately(cause):
    stage = settled()
    if cause == "coordinator_started":
        stage.fail_over()
    elif cause == "reset":
        stage.reset(0, 0, force=True)
    else:
        stage.topics["t"] = TopicSize("id-t", 3)
        stage.sweep()
    assert (cause, None, None) in causes(stage, NOTHING, NOTHING, NOTHING)
    stage.core.wait(GROUP, "a", stage.now, 1)
    stage.sweep(700_000)
    assert (cause, None, None) not in causes(stage, NOTHING, NOTHING, NOTHING)


def test_the_history_has_causes_and_a_bound():
    stage = settled()
    stage.poll("b")
    stage.leave("b")
    stage.poll("a", topics=("t", "u"))
    stage.call(Coordinator.configure, ConfigCall(GROUP, {"heartbeat_ms": 1000}))
    stage.sweep(50_000)
    events = stage.call(Coordinator.explain, GROUP).events
    assert [(one.cause, one.member_id, one.detail) for one in events] == [
        ("joined", "a", "t"),
        ("joined", "b", "t"),
        ("left", "b", ""),
        ("joined_again", "a", ""),
        ("subscription_changed", "a", "t, u"),
        ("settings_changed", "", "heartbeat_ms"),
        ("session_expired", "a", ""),
    ]
    for number in range(100):
        stage.poll(f"m{number}")
    assert len(stage.call(Coordinator.explain, GROUP).events) == 40
