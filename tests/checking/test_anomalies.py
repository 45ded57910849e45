"""Each checker finds its anomaly in otherwise sound evidence, and nothing in the sound one."""

from __future__ import annotations

import pytest

from tests.cells import each_cell
from tests.checking.anomalies import ANY_VALUES, LOGS, TIER, check_logs, sound_logs, sound_values
from tests.checking.checkers import check_values, kinds_of
from tests.checking.consumer_anomalies import RECREATIONS, TOPIC_IDS, WORKERS
from tests.checking.group_anomalies import GROUPS, SHARE
from tests.checking.history import History, Produced, Refused, outcome_of

SUBJECTS = {
    "logs": LOGS,
    "values": ANY_VALUES,
    "tier": TIER,
    "groups": GROUPS,
    "share": SHARE,
    "recreations": RECREATIONS,
    "topic ids": TOPIC_IDS,
    "workers": WORKERS,
}
PLANTED = [(subject, plant, kinds) for subject in SUBJECTS.values() for plant, kinds in subject.planted.items()]


@each_cell("name", SUBJECTS)
def test_sound_evidence_has_no_findings(name):
    assert SUBJECTS[name].check(SUBJECTS[name].sound()) == []


@each_cell(("subject", "plant", "kinds"), PLANTED)
def test_a_planted_anomaly_is_found_and_nothing_else(subject, plant, kinds):
    evidence = subject.sound()
    plant(evidence)
    findings = subject.check(evidence)
    assert {kind for kind in kinds if any(text.startswith(kind) for text in findings)} == kinds, findings
    assert all(text.startswith(tuple(kinds)) for text in findings), findings


def test_a_refusal_is_right_above_what_was_committed_when_it_was_asked_for():
    run = sound_logs()
    run.history.polled = run.history.polled[1:]
    run.history.refused += [Refused("c", "t", 2, 4, 9.5), Refused("c", "t", 2, 3, 2.4)]
    assert check_logs(run) == []


def test_a_batch_of_unknown_outcome_may_be_stored():
    run = sound_values()
    run.values["0"].append("b2")
    assert check_values(run.history, run.values) == []


def test_sends_that_overlap_may_come_in_any_order():
    first, other = (
        Produced("a", "0", ["a1"], "all", 0, "ok", "", 1, 10),
        Produced("b", "0", ["b1"], "all", 9, "ok", "", 0),
    )
    assert check_values(History([first, other]), {"0": ["b1", "a1"]}) == []
    other.invoked_at = 11
    assert kinds_of(check_values(History([first, other]), {"0": ["b1", "a1"]})) == {"C7 order"}


def test_partitions_have_no_order_between_them():
    history = History([Produced("a", "", [value], outcome="ok") for value in ("a1", "a2")])
    assert check_values(history, {"0": ["a2"], "1": ["a1"]}) == []
    assert kinds_of(check_values(history, {"0": ["a2", "a1"]})) == {"C11 order"}


def test_a_history_with_equal_values_is_rejected():
    run = sound_values()
    run.history.begin("c", ["a1"], 0, 70)
    with pytest.raises(AssertionError, match="gave a value twice"):
        check_values(run.history, run.values)


@pytest.mark.parametrize(
    ("status", "problem", "outcome"),
    [
        (200, {}, "ok"),
        (202, {}, "ok"),
        (207, {}, "info"),
        (409, {"code": "duplicate_older_than_window", "no_side_effects": True}, "ok"),
        (409, {"code": "sequence_gap", "no_side_effects": True}, "fail"),
        (503, {"code": "draining", "no_side_effects": True}, "fail"),
        (504, {"code": "ack_timeout", "no_side_effects": False}, "info"),
        (502, {}, "info"),
    ],
)
def test_an_answer_counts_as_refused_only_if_it_says_that_nothing_was_done(status, problem, outcome):
    assert outcome_of(status, problem) == outcome
