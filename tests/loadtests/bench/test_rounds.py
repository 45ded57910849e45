"""The rounds with a server that costs nothing: order, counts, and what a wrong log does."""

import dataclasses
import os

import pytest

from loadtests.bench.entrants.session import Counted
from loadtests.bench.rounds import Rounds
from loadtests.bench.works import KAFKA, PENSTOCK, PLANS, WORKS, Cell
from loadtests.generators.load import GeneratorFailed, Outcome

PLAN = dataclasses.replace(PLANS["quick"], rounds=2, warm_up_s=0.0, jvm_warm_up_s=0.0, round_s=0.01)
PRODUCE = next(work for work in WORKS if work.key == "single")
DELIVERY = next(work for work in WORKS if work.key == "delivery")
FAR = float("inf")
CELLS = [Cell(PRODUCE, PENSTOCK), Cell(PRODUCE, KAFKA)]


class FakeEntrant:
    """Answers at 10,000 requests a second, as the clock of its outcomes says."""

    def __init__(self, runs, step=1, requests_max=1_000_000, problem=""):
        self.runs, self.step, self.requests_max, self.problem_text = runs, step, requests_max, problem
        self.open_sessions = 0
        self.fails = False

    def pid(self, cell):
        return os.getpid()

    def facts(self):
        return []

    def session(self, cell):
        self.open_sessions += 1
        return FakeSession(self, cell)


class FakeSession:
    records_each = 1.0

    def __init__(self, entrant, cell):
        self.entrant, self.cell = entrant, cell
        self.requests_step, self.requests_max = entrant.step, entrant.requests_max

    def run(self, requests):
        if self.entrant.fails:
            raise GeneratorFailed("no answer")
        self.entrant.runs.append((self.cell.server, requests))
        outcome = Outcome(requests, 0, requests / 10_000, [100] * requests, 0, 0.0)
        return Counted(outcome, requests)

    def problem(self):
        return self.entrant.problem_text

    def close(self):
        self.entrant.open_sessions -= 1


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("loadtests.bench.rounds.SETTLE_S", 0)


def test_rounds_alternate_and_the_first_ones_warm_up():
    runs = []
    entrants = {PENSTOCK: FakeEntrant(runs), KAFKA: FakeEntrant(runs)}
    measured = Rounds(PLAN, entrants).run([CELLS], FAR, lambda _: None)
    assert [name for name, _ in runs] == [PENSTOCK, PENSTOCK, KAFKA, KAFKA, KAFKA, PENSTOCK]
    assert {requests for _, requests in runs} == {64, 100}  # of the warm-up; 0.01 s at 10,000 a second
    assert {key: len(rounds) for key, rounds in measured.rounds.items()} == {"single/penstock": 2, "single/kafka": 2}
    assert (measured.checked, measured.problems) == (6, ())
    assert {entrant.open_sessions for entrant in entrants.values()} == {0}


def test_runs_keep_to_the_step_and_the_bound_of_a_session():
    runs = []
    Rounds(PLAN, {KAFKA: FakeEntrant(runs, step=30)}).run([CELLS[1:]], FAR, lambda _: None)
    assert {requests % 30 for _, requests in runs} == {0}
    runs.clear()
    Rounds(PLAN, {KAFKA: FakeEntrant(runs, requests_max=50)}).run([CELLS[1:]], FAR, lambda _: None)
    assert {requests for _, requests in runs} == {50}


def test_an_open_loop_runs_its_whole_schedule():
    runs = []
    Rounds(PLAN, {KAFKA: FakeEntrant(runs, requests_max=2000)}).run([[Cell(DELIVERY, KAFKA)]], FAR, lambda _: None)
    assert runs == [(KAFKA, 2000)] * 3


def test_a_log_with_other_records_is_a_problem():
    entrant = FakeEntrant([], problem="the log has 4 records, acked were 5")
    measured = Rounds(PLAN, {KAFKA: entrant}).run([CELLS[1:]], FAR, lambda _: None)
    assert set(measured.problems) == {"single/kafka: the log has 4 records, acked were 5"}


def test_a_cell_that_fails_is_reported_and_the_others_go_on():
    failing, working = FakeEntrant([]), FakeEntrant([])
    failing.fails = True
    measured = Rounds(PLAN, {PENSTOCK: failing, KAFKA: working}).run([CELLS], FAR, lambda _: None)
    assert measured.problems == ("single/penstock failed: no answer",)
    assert len(measured.rounds["single/kafka"]) == 2
    assert not measured.rounds["single/penstock"]
    assert failing.open_sessions == 0


def test_after_the_deadline_only_the_first_rounds_run():
    measured = Rounds(PLAN, {KAFKA: FakeEntrant([])}).run([CELLS[1:]], 0.0, lambda _: None)
    assert len(measured.rounds["single/kafka"]) == 1
