"""Failed records of a consumer group: their partition waits, they are counted, and they become dead letters once."""

import pytest

from engine.errors import Invalid
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.failures import trimmed
from gateway.groups.model.state import Offset
from gateway.groups.model.values import ConfigCall, Failure, Grant, PollCall, Slot, Token
from tests.gateway.groups.core.coordinators import GROUP, Stage, delivery


def configured(stage: Stage, **config: object) -> Stage:
    stage.call(Coordinator.configure, ConfigCall(GROUP, config))  # type: ignore[arg-type]
    return stage


def staged(partitions: int = 1, deliveries_max: int = 2) -> Stage:
    return configured(Stage(t=partitions), dead_letter_topic="dead", deliveries_max=deliveries_max)


def report(stage: Stage, token: Token, *offsets: int, buried: int | None = None, **more: object) -> Grant:
    """Poll with failed records: of partition 0, then 1, …"""
    failed = tuple(Failure("t", number, offset, "no") for number, offset in enumerate(offsets))
    past = () if buried is None else (stage.position(0, buried),)
    call = PollCall(GROUP, "a", ("t",), trimmed(token, failed), failed=failed, buried=past, **more)  # type: ignore[arg-type]
    grant: Grant = stage.call(Coordinator.poll, call)
    return grant


def test_a_delivery_is_committed_up_to_its_failed_record_and_comes_again_from_there():
    stage = staged(2)
    grant = report(stage, delivery("a", stage.poll("a"), 10), 3)
    assert [one.offset for one in grant.assignment] == [3, 10]
    assert (stage.committed(0), stage.committed(1), grant.dead) == (3, 10, ())


def test_a_record_that_failed_often_enough_is_a_dead_letter_and_the_partition_goes_on_once_it_is_copied():
    stage = staged()
    grant = report(stage, delivery("a", stage.poll("a"), 10), 0)
    assert grant.dead == ()
    token = delivery("a", grant, 10)
    grant = report(stage, token, 0)
    [letter] = grant.dead
    assert (letter.first, letter.last, letter.deliveries, letter.error) == (0, 0, 2, "no")
    assert (letter.group, letter.dead_letter_topic, letter.reason) == (GROUP, "dead", "deliveries_max")
    assert stage.committed(0) == 0, "not before the copy"
    grant = report(stage, token, 0, buried=1)
    assert (stage.committed(0), grant.assignment[0].offset, grant.dead) == (1, 1, ())


def test_a_report_that_is_repeated_counts_once():
    stage = staged()
    token = delivery("a", stage.poll("a"), 10)
    assert [report(stage, token, 4).dead for _ in range(5)] == [()] * 5
    assert report(stage, token, 4).assignment[0].offset == 4


def test_a_report_that_is_repeated_after_a_later_one_counts_no_more():
    stage = staged(deliveries_max=3)
    first = delivery("a", stage.poll("a"), 10)
    grant = report(stage, first, 4)
    grant = report(stage, delivery("a", grant, 6), 4)
    assert [report(stage, first, 4).dead for _ in range(3)] == [()] * 3
    assert stage.core.groups[GROUP].offsets[Slot("t", 0)].failures == 2


def test_a_late_report_of_a_record_that_was_finished_since_changes_nothing():
    stage = staged(deliveries_max=1)
    token = delivery("a", stage.poll("a"), 10)
    grant = report(stage, token, 4)
    stage.poll("a", delivery("a", grant, 6))
    assert stage.committed(0) == 10
    late = report(stage, token, 4)
    assert (stage.committed(0), late.dead) == (10, ())


def test_the_count_survives_the_coordinator_and_the_member():
    stage = staged()
    report(stage, delivery("a", stage.poll("a"), 10), 4)
    stage.fail_over()
    assert stage.core.groups[GROUP].offsets[Slot("t", 0)].failures == 1
    stage.leave("a")
    grant = report(stage, delivery("a", stage.poll("a"), 5), 4)
    assert [letter.deliveries for letter in grant.dead] == [2]


def test_another_record_at_the_position_begins_at_one():
    stage = staged()
    grant = report(stage, delivery("a", stage.poll("a"), 10), 4)
    grant = report(stage, delivery("a", grant, 6), 5)
    assert (stage.committed(0), grant.dead) == (5, ())
    assert stage.core.groups[GROUP].offsets[Slot("t", 0)].failures == 1


def test_without_a_dead_letter_topic_the_partition_waits():
    stage = configured(Stage(t=1), deliveries_max=1)
    grant = report(stage, delivery("a", stage.poll("a"), 10), 4)
    for _ in range(5):
        grant = report(stage, delivery("a", grant, 6), 4)
        assert (grant.dead, grant.assignment[0].offset) == ((), 4)
    begun = stage.core.groups[GROUP].history.begun[Slot("t", 0)]
    assert (begun.offset, begun.begins) == (4, 6), "explain names it"


def test_a_position_moves_only_past_the_record_that_failed_there():
    stage = staged()
    grant = report(stage, delivery("a", stage.poll("a"), 10), 4)
    report(stage, delivery("a", grant, 6), 4, buried=9)
    assert stage.committed(0) == 4
    stage.poll("a", delivery("a", grant, 6))
    assert stage.committed(0) == 10


def test_why_a_dead_letter_is_not_copied_is_an_event():
    stage = staged()
    report(stage, delivery("a", stage.poll("a"), 10), 4, copy_error="dead: no such topic")
    assert [(one.cause, one.detail) for one in stage.core.groups[GROUP].history.events][-1] == (
        "dead_letters_failed",
        "dead: no such topic",
    )


def test_records_outside_of_the_delivery_cannot_fail():
    token = delivery("a", Stage(t=1).poll("a"), 10)
    for failed in ([Failure("t", 0, 10)], [Failure("t", 1, 0)], [Failure("t", 0, 3), Failure("t", 0, 3)]):
        with pytest.raises(Invalid):
            trimmed(token, failed)
    with pytest.raises(Invalid):
        trimmed(None, [Failure("t", 0, 3)])


def test_a_group_that_commits_by_hand_takes_no_reports():
    stage = configured(Stage(t=1), auto_commit=False)
    with pytest.raises(Invalid):
        report(stage, delivery("a", stage.poll("a"), 10), 3)


def test_the_record_of_a_position_without_failures_is_as_before():
    stage = staged()
    token = delivery("a", stage.poll("a"), 10)
    assert stage.rows[-1].value == b'[0,"",1000000]'
    report(stage, token, 4)
    assert stage.rows[-1].value == b'[4,"",1000000,1,[%d,%d]]' % (token.member_epoch, token.delivery)
    assert Offset(4, "", 0) == Offset(4, "", 0, 0, (0, 0))
