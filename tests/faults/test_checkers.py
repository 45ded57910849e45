"""Each judge finds its anomaly, planted into an otherwise sound history."""

from __future__ import annotations

import pytest

from tests.faults.checkers import assert_exactly_once, findings
from tests.faults.history import Append, History, Outcome, outcome_of

A1, A2, B1 = ["a1", "a2"], ["a3"], ["b1"]


def sound() -> tuple[History, dict[int, list[str]]]:
    """Return a history: producer a in partition 0, b in 0 while a's append is in flight, and one append of unknown
    outcome.
    """
    history = History(
        [
            Append("a", A1, 10, 0, Outcome.OK, 0, 20),
            Append("b", B1, 15, 0, Outcome.OK, 3, 40),
            Append("a", A2, 25, 0, Outcome.OK, 2, 30),
            Append("b", ["b2"], 41, 0, Outcome.INFO, None, 50),
            Append("b", ["b3"], 51, 0, Outcome.FAIL, None, 60),
            Append("a", ["a4"], 41, 1, Outcome.OK, None, 60),
        ]
    )
    return history, {0: ["a1", "a2", "a3", "b1"], 1: ["a4"]}


def kinds(history: History, log: dict[int, list[str]]) -> set[str]:
    return {one.kind for one in findings(history, log)}


def test_a_sound_history_has_no_findings():
    history, log = sound()
    assert_exactly_once(history, log)
    log[0].append("b2")
    assert_exactly_once(history, log, "an indeterminate record may be there as well")


def test_an_acknowledged_value_that_is_not_there_is_lost():
    history, log = sound()
    log[1].clear()
    assert kinds(history, log) == {"lost"}


def test_a_value_at_two_offsets_is_duplicated():
    history, log = sound()
    log[0].append("a1")
    assert kinds(history, log) == {"duplicated"}
    history, log = sound()
    log[1].append("a1")
    assert kinds(history, log) == {"duplicated"}, "also in another partition"


def test_values_against_the_order_of_their_producer_are_inverted():
    history, _ = sound()
    history.appends[5] = Append("a", ["a4"], 41, 0, Outcome.OK, None, 60)
    assert kinds(history, {0: ["a4", "a1", "a2", "a3", "b1"], 1: []}) >= {"inverted"}
    history.appends[:] = [Append("a", [one], 0, 0, Outcome.OK) for one in ("a1", "a2")]
    assert kinds(history, {0: ["a2", "a1"]}) == {"inverted"}
    assert kinds(history, {0: ["a2"], 1: ["a1"]}) == set(), "partitions have no order between them"


def test_an_offset_below_one_acknowledged_before_the_send_is_inverted():
    history = History([Append("a", ["a1"], 0, 0, Outcome.OK, 1, 10), Append("b", ["b1"], 11, 0, Outcome.OK, 0, 20)])
    assert kinds(history, {0: ["b1", "a1"]}) == {"inverted"}
    history.appends[1].invoked_ns = 9
    assert kinds(history, {0: ["b1", "a1"]}) == set(), "sends that overlap may come in any order"


def test_a_refused_value_that_is_there_is_an_aborted_read():
    history, log = sound()
    log[0].append("b3")
    assert kinds(history, log) == {"aborted_read"}


def test_an_acknowledgement_that_names_the_offset_of_another_value_is_misplaced():
    history, log = sound()
    history.appends[1].base_offset = 4
    assert kinds(history, log) == {"misplaced"}


def test_a_value_that_nobody_sent_is_found():
    history, log = sound()
    log[0].append("a1a2")
    assert kinds(history, log) == {"unknown_value"}


def test_a_history_with_equal_values_is_rejected():
    history, log = sound()
    history.appends.append(Append("c", ["a1"], 0))
    with pytest.raises(AssertionError, match="gave a value twice"):
        findings(history, log)


def test_the_message_names_what_is_wrong():
    history, log = sound()
    log[1].clear()
    with pytest.raises(AssertionError, match="seed 7: 1 findings\n  lost: a: a4 was acknowledged"):
        assert_exactly_once(history, log, "seed 7")


@pytest.mark.parametrize(
    ("status", "problem", "outcome"),
    [
        (200, {}, Outcome.OK),
        (202, {}, Outcome.OK),
        (207, {}, Outcome.INFO),
        (409, {"code": "duplicate_older_than_window", "no_side_effects": True}, Outcome.OK),
        (409, {"code": "sequence_gap", "no_side_effects": True}, Outcome.FAIL),
        (503, {"code": "draining", "no_side_effects": True}, Outcome.FAIL),
        (504, {"code": "ack_timeout", "no_side_effects": False}, Outcome.INFO),
        (502, {}, Outcome.INFO),
    ],
)
def test_an_answer_counts_as_refused_only_if_it_says_that_nothing_was_done(status, problem, outcome):
    assert outcome_of(status, problem) is outcome
