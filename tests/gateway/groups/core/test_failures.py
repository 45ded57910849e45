"""Failed records of a consumer group: their partition waits, they are counted, and they become dead letters once."""

from collections.abc import Callable

import pytest
from msgspec import structs

from engine.errors import Invalid
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.failures import trim
from gateway.groups.model.state import Offset
from gateway.groups.model.values import ConfigCall, Failure, Grant, PollCall, Row, Slot, Token, TopicSize
from tests.gateway.groups.core.coordinators import GROUP, Stage, delivery


def configured(stage: Stage, **config: object) -> Stage:
    stage.call(Coordinator.configure, ConfigCall(GROUP, config))  # type: ignore[arg-type]
    return stage


def staged(partitions: int = 1, deliveries_max: int = 2) -> Stage:
    return configured(Stage(t=partitions), dead_letter_topic="dead", deliveries_max=deliveries_max)


def mail(stage: Stage, is_down: Callable[[], bool]) -> tuple[int, int]:
    """Work on one partition of 200 records by a member whose mail server is down for a time.

    Returns the milliseconds that this took, and the number of dead letters.
    """
    begin_ms, dead = stage.now_ms, 0
    grant = stage.poll("a")
    while (at := grant.assignment[0].offset) < 200:
        if grant.delayed:
            stage.sweep(min(20_000, grant.delayed[0].left_ms))  # a long poll: the member is there
            grant = stage.poll("a")
            continue
        token = delivery("a", grant, 1)
        grant = report(stage, token, at) if is_down() else stage.poll("a", token)
        if grant.dead:
            dead += 1
            grant = report(stage, token, at, copied=at + 1)
    return stage.now_ms - begin_ms, dead


def report(stage: Stage, token: Token, *offsets: int, copied: int | None = None, **more: object) -> Grant:
    """Poll with failed records: of partition 0, then 1, …"""
    failed = tuple(Failure("t", number, offset, "no") for number, offset in enumerate(offsets))
    past = () if copied is None else (stage.position(0, copied),)
    call = PollCall(GROUP, "a", ("t",), trim(token, failed), failed=failed, copied=past, **more)  # type: ignore[arg-type]
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
    grant = report(stage, token, 0, copied=1)
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


def test_an_outage_of_four_minutes_makes_no_dead_letters_and_the_work_goes_on_soon_after():
    stage = configured(Stage(t=1), dead_letter_topic="dead")
    end_ms = stage.now_ms + 4 * 60_000
    took_ms, dead = mail(stage, lambda: stage.now_ms < end_ms)
    assert dead == 0
    assert took_ms <= 2 * 4 * 60_000 + 2_000, "one delay is at most as long as all before"


def test_an_outage_without_end_makes_one_dead_letter_in_some_minutes():
    stage = configured(Stage(t=1), dead_letter_topic="dead")
    end_ms = stage.now_ms + 30 * 60_000
    _, dead = mail(stage, lambda: stage.now_ms < end_ms)
    assert 3 <= dead <= 8


def test_a_partition_waits_for_its_failed_record_and_the_others_do_not():
    stage = staged(2, deliveries_max=5)
    grant = report(stage, delivery("a", stage.poll("a"), 10), 3)
    [waits] = grant.delayed
    assert (waits.topic, waits.partition, 500 <= waits.left_ms <= 1000) == ("t", 0, True)
    stage.now_ms += waits.left_ms
    assert stage.poll("a").delayed == ()


def test_a_delay_survives_the_coordinator_and_the_member():
    stage = staged(deliveries_max=5)
    [before] = report(stage, delivery("a", stage.poll("a"), 10), 4).delayed
    stage.fail_over()
    assert stage.poll("a").delayed == (before,)
    stage.leave("a")
    assert stage.poll("b").delayed == (before,)


def test_a_coordinator_whose_clock_is_behind_waits_no_longer_than_the_longest_delay():
    stage = staged(deliveries_max=5)
    report(stage, delivery("a", stage.poll("a"), 10), 4)
    stage.now_ms -= 500_000_000
    stage.fail_over()
    [waits] = stage.poll("a").delayed
    assert waits.left_ms == 600_000


@pytest.mark.parametrize("ending", ["commit", "reset", "settings", "new topic"])
def test_a_delay_ends_with_the_position_of_its_record_or_by_the_settings(ending):
    stage = staged(deliveries_max=5)
    grant = report(stage, delivery("a", stage.poll("a"), 10), 4)
    assert grant.delayed
    if ending == "commit":
        stage.commit(0, 5, "a", grant.member_epoch)
    elif ending == "reset":
        stage.reset(0, 4, force=True)
    elif ending == "settings":
        configured(stage, redelivery_delay_ms=0, redelivery_delay_ms_max=0)
    else:
        stage.topics["t"] = TopicSize("id-new", 1)
        stage.sweep()
    assert stage.poll("a").delayed == ()


def test_failures_and_dead_letters_are_events_that_are_counted():
    stage = configured(staged(2, deliveries_max=2), redelivery_delay_ms=0)
    grant = report(stage, delivery("a", stage.poll("a"), 10), 0, 0)
    token = delivery("a", grant, 10)
    report(stage, token, 0, 0)
    call = PollCall(GROUP, "a", ("t",), trim(token, failed := (Failure("t", 0, 0, "no"), Failure("t", 1, 0, "no"))))
    copied = (stage.position(0, 1), stage.position(1, 1))
    stage.call(Coordinator.poll, structs.replace(call, failed=failed, copied=copied))
    group = stage.core.groups[GROUP]
    events = [(one.cause, one.detail, one.count) for one in group.history.events]
    assert ("record_failed", "no", 4) in events
    assert ("dead_lettered", "dead", 2) in events
    assert group.dead_letters == 2


def test_without_a_dead_letter_topic_the_partition_waits():
    stage = configured(Stage(t=1), redelivery_delay_ms=0)
    grant = report(stage, delivery("a", stage.poll("a"), 10), 4)
    for _ in range(5):
        grant = report(stage, delivery("a", grant, 6), 4)
        assert (grant.dead, grant.assignment[0].offset) == ((), 4)
    begun = stage.core.groups[GROUP].history.begun[Slot("t", 0)]
    assert (begun.offset, begun.begins) == (4, 6), "explain names it"


def test_a_position_moves_only_past_the_record_that_failed_there():
    stage = staged()
    grant = report(stage, delivery("a", stage.poll("a"), 10), 4)
    report(stage, delivery("a", grant, 6), 4, copied=9)
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
            trim(token, failed)
    with pytest.raises(Invalid):
        trim(None, [Failure("t", 0, 3)])


def test_a_group_that_commits_by_hand_takes_no_reports():
    stage = configured(Stage(t=1), auto_commit=False)
    with pytest.raises(Invalid):
        report(stage, delivery("a", stage.poll("a"), 10), 3)


def test_the_record_of_a_position_without_failures_is_as_before():
    stage = staged()
    token = delivery("a", stage.poll("a"), 10)
    assert stage.rows[-1].value == b'[0,"",1000000]'
    report(stage, token, 4)
    failed_in, retry_ms = (token.member_epoch, token.delivery), 1_000_000 + stage.poll("a").delayed[0].left_ms
    assert stage.rows[-1].value == b'[4,"",1000000,1,[%d,%d],%d]' % (*failed_in, retry_ms)
    assert Offset(4, "", 0) == Offset(4, "", 0, 0, (0, 0))


def test_a_failure_that_an_earlier_release_has_stored_is_not_delayed():
    stage = staged()
    token = delivery("a", stage.poll("a"), 10)
    report(stage, token, 4)
    key = stage.rows[-1].key
    stage.rows.append(Row(key, b'[4,"",1000000,1,[%d,%d]]' % (token.member_epoch, token.delivery)))
    stage.fail_over()
    assert stage.core.groups[GROUP].offsets[Slot("t", 0)].failures == 1
    assert stage.poll("a").delayed == ()
