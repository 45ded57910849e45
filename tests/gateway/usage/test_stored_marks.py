"""Stored time is billed once: by leaders that take turns, that are down, and that are started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Corrupt
from gateway.usage.stored_marks import MARK_MS, StoredMarks, decode_marks


def fresh() -> StoredMarks:
    return StoredMarks(0, {})


def test_a_new_partition_counts_from_its_first_mark():
    marks = fresh()
    assert marks.take(1, MARK_MS, {"a/0": 1}) == {"a/0": 0}
    assert marks.take(2, MARK_MS, {"a/0": 1}) == {"a/0": MARK_MS}


def test_a_leader_that_was_down_counts_the_outage_if_no_other_has_led():
    before = decode_marks(StoredMarks(5, {"a/0": 3, "b/0": 3, "c/0": 0}).encode(), "x")
    down = 100 * MARK_MS
    assert before.take(9, down, {"a/0": 4, "b/0": 5, "c/0": 0}) == {"a/0": down, "b/0": MARK_MS, "c/0": down}


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format": 1}', b'{"format": 1, "mark_ms": "x", "epochs": {}}'])
def test_other_bytes_are_no_marks(data):
    with pytest.raises(Corrupt):
        decode_marks(data, "x")


@given(st.lists(st.sampled_from(["mark", "move", "restart", "down"]), max_size=80))
def test_the_sum_over_nodes_is_the_time_that_passed(steps):
    """Two nodes; the leader marks each minute. A minute at whose end no node leads may be missing; none is double."""
    nodes = [fresh(), fresh()]
    last_mark = [0, 0]  # of each node, by the minute
    leader, epoch, billed, minute, unled = 0, 1, 0, 0, 0
    nodes[0].take(0, 0, {"p": 1})
    for step in steps:
        if step == "move":
            leader, epoch = 1 - leader, epoch + 1
        elif step == "restart":  # of the leader, within the minute: it is elected again
            nodes[leader] = decode_marks(nodes[leader].encode(), "x")
            epoch += 1
        elif step == "down":  # no node leads at this mark; the same node leads again later
            minute += 1
            unled += 1
            epoch += 1
        else:
            minute += 1
            for number, node in enumerate(nodes):
                leads = {"p": epoch} if number == leader else {}
                elapsed_ms = (minute - last_mark[number]) * MARK_MS
                billed += node.take(minute * MARK_MS, elapsed_ms, leads).get("p", 0)
                last_mark[number] = minute
    assert (minute - unled) * MARK_MS - MARK_MS * (minute == 0) <= billed + MARK_MS * unled + unmarked(
        last_mark, minute
    )
    assert billed <= minute * MARK_MS


def unmarked(last_mark: list[int], minute: int) -> int:
    """Return what no node has marked yet."""
    return (minute - max(last_mark)) * MARK_MS
