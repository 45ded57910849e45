"""Runs with rare events, and how a run is replayed and printed. test_seeds.py runs many."""

from __future__ import annotations

import gc
import logging
import sys
from collections import Counter
from dataclasses import replace

from tests.simulation.__main__ import main
from tests.simulation.report import READ_ERRORS, never_happened
from tests.simulation.run import Options, options_for, run


def test_a_leader_that_was_replaced_without_knowing_answers_and_nothing_is_wrong():
    """This occurs in one of about forty runs with these faults, and in one of a thousand with any faults."""
    options = Options(kinds=("pause", "cut_two_ways", "cut_from_store", "expire_session"), fault_every_s=0.3)
    for seed in range(400):
        outcome = run(seed, options)
        assert not outcome.problems, outcome.report()
        if outcome.counts["answers of replaced leaders"]:
            return
    raise AssertionError("none of 400 runs has such an answer")


def test_a_leader_that_cannot_read_is_replaced_and_repaired():
    counts = Counter[str]()
    for seed in range(12):
        options = Options(kinds=("read_error", "kill", "lose_power"), fault_every_s=0.3)
        outcome = run(seed, options)
        assert not outcome.problems, outcome.report()
        counts += outcome.counts
    assert never_happened(counts, 12, READ_ERRORS) == []


def test_the_first_batch_of_a_pipelining_producer_is_never_a_gap():
    counts = Counter[str]()
    for seed in range(12):
        outcome = run(seed, replace(options_for(seed), has_pipelining=True))
        assert not outcome.problems, outcome.report()
        counts += outcome.counts
    assert counts["pipelined ok"] > 100
    assert counts["refused: sequence_gap"] > 100


def test_one_seed_is_one_run():
    first, second = run(11), run(11)
    assert first.counts == second.counts
    assert first.problems == second.problems == []


def test_a_failure_is_reported_with_its_seed_and_the_last_events_of_each_node():
    outcome = run(3)
    outcome.problems.append("C1 lost: a planted one")
    outcome.story = "--- node 1\n   0.3 is here"
    report = outcome.report()
    assert "make sim SEED=3" in report
    assert "C1 lost" in report
    assert "--- node 1" in report


def test_the_command_replays_a_seed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["simulation", "--seed", "7"])
    try:
        assert main() == 0
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
    assert capsys.readouterr().out.startswith("seed 7 is fine")
