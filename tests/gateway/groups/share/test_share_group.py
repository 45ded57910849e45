"""A share group: what it hands out, what outcomes do, and what it refuses."""

from __future__ import annotations

import pytest

from gateway.groups.core import sharing
from gateway.groups.model.errors import GroupNotEmpty, WrongGroupKind
from gateway.groups.model.values import ConfigCall
from gateway.groups.share.values import AcquireCall, Outcome
from tests.gateway.groups.core.coordinators import GROUP
from tests.gateway.groups.share.queues import KEEPING, Queue, offsets_of, ranges

ACCEPT, RELEASE, REJECT, EXTEND = Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT, Outcome.EXTEND


def a_queue(count: int = 10, **config: object) -> Queue:
    queue = Queue(**config)
    queue.ends[0] = count
    return queue


def test_two_callers_get_different_records():
    queue = a_queue()
    assert ranges(queue.acquire(4)[1]) == [(0, 3, 1)]
    assert ranges(queue.acquire(4)[1]) == [(4, 7, 1)]
    assert ranges(queue.acquire(4)[1]) == [(8, 9, 1)]
    assert ranges(queue.acquire(4)[1]) == []


def test_a_call_that_is_repeated_gets_the_same_records():
    queue = a_queue()
    lock, first = queue.acquire(4)
    assert queue.acquire(4, lock)[1].granted == first.granted


def test_the_start_moves_over_what_is_done():
    queue = a_queue()
    lock, _ = queue.acquire(4)
    queue.settle(lock, 0, 1, 2, ACCEPT)
    assert (queue.start(), queue.records()[1]) == (0, ("DONE", 0))
    queue.settle(lock, 0, 0, 0, ACCEPT)
    assert (queue.start(), list(queue.records())) == (3, [3])


def test_a_released_record_is_delivered_again_after_its_delay():
    queue = a_queue(1)
    lock, _ = queue.acquire(1)
    queue.settle(lock, 0, 0, 0, RELEASE, time_ms=500)
    found = queue.acquire(1)[1]
    assert (ranges(found), found.due_ms) == ([], 500)
    queue.sweep(500)
    assert ranges(queue.acquire(1)[1]) == [(0, 0, 2)]


@pytest.mark.parametrize("is_failover", [True, False])
def test_a_clock_that_is_hours_behind_keeps_what_is_left_of_a_delay(is_failover: bool):
    """Before, the record waited for as long as the clocks of the two coordinators differed."""
    queue = a_queue(2)
    queue.sweep(30 * 3_600_000)
    lock, _ = queue.acquire(2)
    queue.settle(lock, 0, 0, 0, RELEASE, time_ms=500)
    queue.sweep(100)
    queue.settle(lock, 0, 1, 1, RELEASE, time_ms=5000)
    queue.now_ms -= 30 * 3_600_000
    if is_failover:
        queue.fail_over()
    found = queue.acquire(2)[1]
    assert (ranges(found), found.due_ms) == ([], 400)
    queue.sweep(400)
    assert ranges(queue.acquire(2)[1]) == [(0, 0, 2)]


def test_each_failure_doubles_the_delay_and_jitter_takes_up_to_half_of_it():
    queue = a_queue(1, redelivery_delay_ms=100, redelivery_delay_ms_max=300)
    delays = []
    for _ in range(4):
        lock, _ = queue.acquire(1)
        queue.settle_all(lock, RELEASE)
        delays.append(queue.acquire(1)[1].due_ms)
        queue.sweep(delays[-1])
    assert all(longest // 2 <= one <= longest for longest, one in zip((100, 200, 300, 300), delays, strict=True))
    assert delays[2] != delays[3], "two failures with the same bound wait for different times"


def test_records_that_failed_together_come_back_apart():
    """Each is a run of its own: its caller has released it alone."""
    queue = a_queue(50, redelivery_delay_ms=60_000)
    lock, _ = queue.acquire(50)
    for offset in range(50):
        queue.settle(lock, 0, offset, offset, RELEASE)
    runs = queue.core.groups[GROUP].share.partitions["t", 0].window.runs  # type: ignore[union-attr]
    assert len({run.ready_ms for run in runs}) > 40


def test_an_outage_of_four_minutes_makes_no_dead_letters():
    """60 jobs whose workers cannot reach their mail server: each is released at once. Then all are done."""
    queue = Queue(1, redelivery_delay_ms=None, dead_letter_topic="dead")
    queue.ends[0] = 60
    queue.acquire(1, lock_ms=1)
    begin_ms, deliveries = queue.now_ms, 1
    while queue.start() < 60:
        lock, found = queue.acquire(10, lock_ms=30_000)
        is_over = queue.now_ms - begin_ms >= 4 * 60_000
        for partition, offset in offsets_of(found):
            deliveries += 1
            queue.settle(lock, partition, offset, offset, ACCEPT if is_over else RELEASE)
        if not found.granted:
            queue.sweep(found.due_ms or 1000)
        assert queue.now_ms - begin_ms < 20 * 60_000, "the work goes on soon after the outage"
    assert (queue.dead_letters(), queue.core.groups[GROUP].dead_letters) == ([], 0)
    assert deliveries <= 60 * 10


def test_an_outcome_after_the_lock_changes_nothing():
    queue = a_queue(2)
    lock, _ = queue.acquire(2)
    queue.settle(lock, 0, 0, 0, ACCEPT)
    queue.now_ms += KEEPING
    found = queue.settle(lock, 0, 0, 1, ACCEPT)
    assert (found.settled, [(one.first, one.last) for one in found.refused]) == (1, [(1, 1)])
    assert queue.records() == {1: ("AVAILABLE", 1)}


def test_an_outcome_that_is_sent_again_is_answered_as_before():
    queue = a_queue(4)
    lock, _ = queue.acquire(4)
    queue.settle(lock, 0, 1, 2, ACCEPT)
    for _ in range(2):
        found = queue.settle(lock, 0, 0, 3, ACCEPT)
        assert (found.settled, found.refused) == (4, ())
    other = queue.settle(lock, 0, 0, 0, REJECT)
    assert (other.settled, other.refused[0].is_settled) == (0, True)


def test_an_extension_keeps_the_lock():
    queue = a_queue(2)
    lock, _ = queue.acquire(2)
    queue.settle(lock, 0, 0, 0, EXTEND, time_ms=2 * KEEPING)
    queue.sweep(KEEPING)
    assert queue.records() == {0: ("ACQUIRED", 1), 1: ("AVAILABLE", 1)}
    queue.sweep(KEEPING)
    assert queue.records() == {0: ("AVAILABLE", 1), 1: ("AVAILABLE", 1)}


def test_a_record_that_fails_too_often_is_dropped_without_a_topic_for_it():
    queue = a_queue(1, deliveries_max=2)
    for _ in range(2):
        queue.settle_all(queue.acquire(1)[0], RELEASE)
    assert (queue.start(), queue.dead_letters()) == (1, [])
    assert queue.core.describe(GROUP, queue.now, queue.topics).shares[0].dropped == 1


def test_a_dead_letter_holds_its_place_until_it_is_copied():
    queue = a_queue(2, deliveries_max=1, dead_letter_topic="dead")
    lock, _ = queue.acquire(2)
    queue.settle(lock, 0, 0, 0, REJECT, error="no such address")
    queue.sweep(KEEPING)
    rejected, expired = queue.dead_letters()
    assert (rejected.reason, rejected.error, rejected.deliveries) == ("rejected", "no such address", 1)
    assert expired.reason == "deliveries_max"
    queue.fail_over()
    assert queue.dead_letters() == [rejected, expired]
    for letter in (rejected, expired):
        queue.bury(letter)
        queue.bury(letter)
    assert (queue.start(), queue.core.describe(GROUP, queue.now, queue.topics).shares[0].dead_letters) == (2, 2)


def test_the_window_bounds_what_is_in_flight():
    queue = a_queue(10, in_flight_max=3)
    lock, found = queue.acquire(10)
    assert ranges(found) == [(0, 2, 1)]
    queue.settle(lock, 0, 1, 2, ACCEPT)
    assert ranges(queue.acquire(10)[1]) == []
    queue.settle(lock, 0, 0, 0, ACCEPT)
    assert ranges(queue.acquire(10)[1]) == [(3, 5, 1)]


def test_a_failover_drops_locks_and_keeps_outcomes_and_deliveries():
    queue = a_queue(600)
    lock, _ = queue.acquire(600)
    queue.settle(lock, 0, 100, 299, ACCEPT)
    queue.fail_over()
    records = queue.records()
    assert records[0] == records[599] == ("AVAILABLE", 1)
    assert records[100] == records[299] == ("DONE", 0)
    assert queue.settle(lock, 0, 0, 0, ACCEPT).settled == 0
    assert ranges(queue.acquire(1000)[1]) == [(0, 99, 2), (300, 599, 2)]


def test_a_record_waits_for_the_earlier_ones_of_its_key():
    queue = a_queue(6, order="key")
    queue.keys = {(0, 0): 7, (0, 1): 8, (0, 2): 7, (0, 3): 7, (0, 5): 8}
    lock, found = queue.acquire(10)
    assert [offset for _, offset in offsets_of(found)] == [0, 1, 4]
    assert ranges(queue.acquire(10)[1]) == []
    queue.settle(lock, 0, 0, 0, ACCEPT)
    assert [offset for _, offset in offsets_of(queue.acquire(10)[1])] == [2]
    queue.settle(lock, 0, 1, 1, RELEASE)
    assert [offset for _, offset in offsets_of(queue.acquire(10)[1])] == [1]


def test_records_that_the_log_has_no_more_are_skipped():
    queue = a_queue(10)
    lock, _ = queue.acquire(4)
    queue.starts[0] = 6
    assert ranges(queue.acquire(10)[1]) == [(6, 9, 1)]
    assert queue.settle(lock, 0, 0, 3, ACCEPT).settled == 0


def test_partitions_take_turns():
    queue = Queue(3)
    queue.ends = [2, 2, 2]
    found = [offsets_of(queue.acquire(2)[1]) for _ in range(3)]
    assert sorted(part[0][0] for part in found) == [0, 1, 2]


def test_a_reset_moves_the_start_and_ends_locks_with_force():
    queue = a_queue(10)
    lock, _ = queue.acquire(4)
    with pytest.raises(GroupNotEmpty):
        queue.reset_to(0, 8)
    queue.reset_to(0, 8, force=True)
    assert queue.settle(lock, 0, 0, 3, ACCEPT).settled == 0
    assert ranges(queue.acquire(10)[1]) == [(8, 9, 1)]
    queue.reset_to(0, 0, force=True)
    queue.fail_over()
    assert ranges(queue.acquire(20)[1]) == [(0, 9, 1)]


def test_a_deleted_group_leaves_no_state():
    queue = a_queue(300)
    queue.settle_all(queue.acquire(300)[0], RELEASE)
    queue.call(type(queue.core).delete, GROUP)
    queue.fail_over()
    assert GROUP not in queue.core.groups
    assert ranges(queue.acquire(1)[1]) == [(0, 0, 1)]


def test_calls_of_the_other_kind_are_refused():
    queue = a_queue()
    for call in (queue.poll, queue.heartbeat):
        with pytest.raises(WrongGroupKind):
            call("a")
    with pytest.raises(WrongGroupKind):
        queue.commit(0, 1)
    queue.acquire(1)
    with pytest.raises(WrongGroupKind):
        queue.configure(kind="consumer")
    queue.call(type(queue.core).configure, ConfigCall("other", {}))
    with pytest.raises(WrongGroupKind):
        queue.call(sharing.acquire, AcquireCall("other", "l", ("t",), queue.bounds(), 1))


def test_records_above_a_shorter_log_are_forgotten_once():
    queue = a_queue(10)
    _, found = queue.acquire(10)
    call = sharing.ShortenCall(GROUP, "t", 0, 4, found.resets)
    for _ in range(2):
        queue.call(sharing.shorten, call)
    queue.ends[0] = 6
    assert ranges(queue.acquire(10)[1]) == [(4, 5, 1)]
