"""Staged faults of share groups, each with the cause that the group's explanation names."""

from __future__ import annotations

from typing import Any

from gateway.groups.core import sharing
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.diagnosis.facts import Behind
from gateway.groups.diagnosis.findings import findings
from gateway.groups.model.values import Slot
from gateway.groups.share.values import Outcome
from tests.gateway.groups.core.coordinators import GROUP
from tests.gateway.groups.share.queues import Queue


def a_queue(count: int = 10, **config: Any) -> Queue:
    queue = Queue(**config)
    queue.ends[0] = count
    return queue


def causes(queue: Queue) -> list[tuple[str, str | None, int | None]]:
    """Return the findings, with the lag that the leaders would report."""
    found = queue.call(Coordinator.explain, GROUP)
    behind = {
        Slot(one.topic, one.partition): Behind(queue.ends[one.partition] - one.start, 0) for one in found.view.shares
    }
    return [(one.cause, one.member_id, one.partition) for one in findings(found, behind)]


def finish(queue: Queue, count: int = 1) -> None:
    lock, _ = queue.acquire(count)
    queue.settle_all(lock, Outcome.ACCEPT)


def test_a_group_that_nobody_has_called():
    assert causes(a_queue()) == [("no_callers", None, None)]


def test_a_worker_that_asks_and_acknowledges_leaves_no_findings():
    queue = a_queue()
    for _ in range(5):
        queue.now_ms += 5_000
        finish(queue)
    assert causes(queue) == []


def test_a_group_without_lag_and_without_callers():
    queue = a_queue(1)
    finish(queue)
    queue.sweep(600_000)
    assert causes(queue) == []


def test_records_wait_and_no_caller_asks():
    queue = a_queue()
    finish(queue)
    queue.sweep(30_000)
    assert causes(queue) == [("no_callers", None, None)]


def test_a_new_coordinator_gives_callers_time_to_call():
    queue = a_queue()
    finish(queue)
    queue.sweep(30_000)
    queue.fail_over()
    assert ("no_callers", None, None) not in causes(queue)
    queue.sweep(30_000)
    assert ("no_callers", None, None) in causes(queue)


def test_a_caller_that_holds_all_records_and_acknowledges_none():
    queue = a_queue()
    queue.acquire(10, lock_ms=600_000)
    queue.sweep(40_000)
    assert causes(queue) == [("unacknowledged", "worker", None)]


def test_a_caller_that_acknowledges_some_of_its_records_works():
    queue = a_queue()
    lock, _ = queue.acquire(10, lock_ms=600_000)
    queue.sweep(40_000)
    queue.settle(lock, 0, 0, 0, Outcome.ACCEPT)
    queue.sweep(5_000)
    assert causes(queue) == []


def test_a_caller_whose_locks_end():
    queue = a_queue()
    for _ in range(3):
        queue.acquire(1)
        queue.sweep(10_001)
    assert ("locks_end", "worker", None) in causes(queue)


def test_an_acknowledged_lock_does_not_count_as_ended():
    queue = a_queue()
    for _ in range(3):
        finish(queue)
        queue.sweep(10_001)
    assert ("locks_end", "worker", None) not in causes(queue)


def test_records_that_wait_for_their_delay():
    queue = a_queue(2, redelivery_delay_ms=300_000)
    lock, _ = queue.acquire(2)
    queue.settle_all(lock, Outcome.RELEASE)
    queue.sweep(30_000)
    assert causes(queue) == [("records_delayed", None, None)]


def test_records_whose_key_is_held_by_an_earlier_one():
    queue = a_queue(3, order="key")
    queue.keys = dict.fromkeys([(0, 0), (0, 1), (0, 2)], 7)
    lock, _ = queue.acquire(1)
    queue.settle_all(lock, Outcome.RELEASE, time_ms=600_000)
    queue.acquire(1)
    queue.sweep(30_000)
    assert causes(queue) == [("records_delayed", None, None), ("key_blocked", None, 0)]


def test_a_window_that_one_record_keeps_full():
    queue = a_queue(10, in_flight_max=4)
    lock, _ = queue.acquire(1)
    queue.settle_all(lock, Outcome.RELEASE, time_ms=600_000)
    finish(queue, 3)
    assert causes(queue) == [("records_delayed", None, None), ("window_full", None, 0)]


def test_dead_letters_that_cannot_be_copied():
    queue = a_queue(1, dead_letter_topic="dead")
    lock, _ = queue.acquire(1)
    queue.settle_all(lock, Outcome.REJECT)
    assert causes(queue) == []
    [letter] = queue.dead_letters()
    for _ in range(3):
        queue.call(lambda core, now, _: sharing.keep_dead_letters(core, GROUP, "there is no topic 'dead'", now))
    assert causes(queue) == [("dead_letters_fail", None, None)]
    assert [one.count for one in queue.core.groups[GROUP].history.events if one.cause == "dead_letters_failed"] == [1]
    queue.bury(letter)
    assert causes(queue) == [("dead_letters", None, None)]
    queue.sweep(700_000)
    assert causes(queue) == []


def test_a_partition_whose_leader_does_not_answer():
    queue = a_queue()
    finish(queue)
    found = queue.call(Coordinator.explain, GROUP)
    assert ("partition_unreachable", 0) in [(one.cause, one.partition) for one in findings(found, {})]
