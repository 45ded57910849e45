"""The lag of groups: of committed positions, of the window of a share group, and of many groups together."""

from __future__ import annotations

from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.lags import GROUPS_MAX, behind_of, sum_by_name
from gateway.groups.model.values import CommitCall, Position
from gateway.groups.share.values import Outcome
from tests.gateway.groups.core.coordinators import GROUP, Stage
from tests.gateway.groups.share.queues import Queue


def test_a_group_lags_behind_the_high_watermarks_of_its_positions() -> None:
    stage = Stage(t=3)
    places = (Position("t", "id-t", 0, 7), Position("t", "id-t", 1, 2), Position("t", "id-t", 2, 9))
    stage.call(Coordinator.commit, CommitCall(GROUP, None, 0, places))
    bounds = {("t", 0): (0, 10), ("t", 1): (4, 6)}  # the log of 1 begins above the position, 2 is not known
    assert sum(row.records for row in behind_of(stage.core.groups[GROUP], bounds)) == 3 + 2


def test_records_of_a_share_group_that_are_done_are_no_lag() -> None:
    queue = Queue(1)
    queue.ends[0] = 10
    lock, _ = queue.acquire(6)
    queue.settle(lock, 0, 2, 3, Outcome.ACCEPT)
    assert sum(row.records for row in behind_of(queue.core.groups[GROUP], {("t", 0): (0, 10)})) == 8


def test_many_groups_are_added_up() -> None:
    found = sum_by_name((f"g{number}", 1) for number in range(GROUPS_MAX + 5))
    assert len(found) == GROUPS_MAX + 1
    assert found["other"] == 5
