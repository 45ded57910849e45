"""Shares of a limit on virtual clocks: lenders die, processes join, reports are lost, clocks jump.

The sum of what all processes may use is followed over time. Each disturbance may add one interval of the limit.
"""

from __future__ import annotations

from random import Random

import pytest

from gateway.quotas.lent_shares import LIFE_S, Borrower, Lender

LIMIT = 1000.0
INTERVAL_S = 1.0
STEP_S = 0.1


class Process:
    def __init__(self, name: int, offset_s: float) -> None:
        self.name = name
        self.offset_s = offset_s  # of its clock
        self.borrower = Borrower(INTERVAL_S)
        self.rate = 0.0
        self.wanted = 0.0
        self.demand = 0.0  # units a second that its clients ask for
        self.is_cut_off = False


class Cluster:
    """Processes, their clocks, and the lender of the limit."""

    def __init__(self, count: int, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.processes = [Process(name, self.random.uniform(-500, 500)) for name in range(count)]
        self.lender: Lender | None = Lender(INTERVAL_S, self.now)
        self.lost = 0.0  # the share of reports or answers that are lost
        for process in self.processes:
            process.rate = LIMIT / count
        self.granted = self.used = 0.0
        self.disturbances = 0

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for process in self.processes:
                process.wanted += process.demand * STEP_S
                self.report(process)
            active = [process for process in self.processes if process.demand]
            self.granted += sum(process.rate for process in active) * STEP_S
            self.used += sum(min(process.rate, process.demand) for process in active) * STEP_S

    def report(self, process: Process) -> None:
        now = self.now + process.offset_s
        demand = process.borrower.demand(process.wanted, now)
        if demand is None:
            return
        process.wanted = 0.0
        names = [other.name for other in self.processes]
        if self.lender is not None and not process.is_cut_off and self.random.random() >= self.lost:
            share = self.lender.lend(LIMIT, process.name, demand, names, self.now)
            if self.random.random() >= self.lost:
                process.borrower.grant(now)
                process.rate = share
                return
        if process.borrower.is_alone(now):
            process.rate = LIMIT / len(self.processes)

    def begin(self) -> None:
        """Counts from now on."""
        self.granted = self.used = 0.0
        self.disturbances = 0
        self.began = self.now

    def disturb(self) -> None:
        self.disturbances += 1

    def assert_bounded(self) -> None:
        bound = LIMIT * (self.now - self.began + INTERVAL_S * (1 + self.disturbances))
        assert self.granted <= bound * (1 + 1e-9), (self.granted, bound)


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_the_limit_follows_the_demand(count):
    cluster = Cluster(count, 1)
    cluster.processes[0].demand = 5 * LIMIT
    cluster.run(12)
    cluster.begin()
    cluster.run(10)
    assert cluster.used / 10 == pytest.approx(LIMIT, rel=0.05)
    cluster.assert_bounded()
    cluster.processes[-1].demand = 5 * LIMIT  # another one begins
    cluster.disturb()
    cluster.run(10)
    cluster.assert_bounded()
    assert cluster.processes[-1].rate == pytest.approx(cluster.processes[0].rate, rel=0.05)


def test_without_a_lender_each_has_the_even_split_and_no_more():
    cluster = Cluster(3, 2)
    cluster.processes[0].demand = cluster.processes[1].demand = 5 * LIMIT
    cluster.run(12)
    assert cluster.processes[0].rate > LIMIT / 3
    cluster.begin()
    cluster.lender = None
    cluster.disturb()
    cluster.run(LIFE_S + 2 * INTERVAL_S)
    assert [process.rate for process in cluster.processes[:2]] == [LIMIT / 3] * 2
    cluster.assert_bounded()


def test_a_process_that_is_cut_off_keeps_the_even_split_and_the_others_share_the_rest():
    cluster = Cluster(3, 3)
    for process in cluster.processes:
        process.demand = 5 * LIMIT
    cluster.run(12)
    cluster.begin()
    cluster.processes[2].is_cut_off = True
    cluster.disturb()
    cluster.processes[1].demand = 0
    cluster.run(30)
    cluster.assert_bounded()
    assert cluster.processes[2].rate == pytest.approx(LIMIT / 3)
    assert cluster.processes[0].rate == pytest.approx(2 / 3 * LIMIT, rel=0.05)


def test_a_new_lender_knows_nothing_and_lends_no_more_than_is_there():
    cluster = Cluster(3, 4)
    cluster.processes[0].demand, cluster.processes[1].demand = 5 * LIMIT, 100
    cluster.run(12)
    cluster.begin()
    for _ in range(4):
        cluster.lender = Lender(INTERVAL_S, cluster.now)
        cluster.disturb()
        cluster.run(7)
        cluster.assert_bounded()


def test_a_clock_that_jumps_ends_a_share_and_nothing_more():
    cluster = Cluster(3, 5)
    for process in cluster.processes:
        process.demand = 2 * LIMIT
    cluster.run(12)
    cluster.begin()
    for jump_s in (3600, -3600):
        cluster.processes[0].offset_s += jump_s
        cluster.disturb()
        cluster.run(10)
        cluster.assert_bounded()


def test_a_share_grows_once_the_others_have_the_answers_that_made_theirs_smaller():
    lender, members = Lender(INTERVAL_S, 0.0), ["a", "b", "c"]
    now = LIFE_S + 1
    first = lender.lend(LIMIT, "a", 5 * LIMIT, members, now)
    assert first == LIMIT, "the others have reported nothing for the life of a share"
    assert lender.lend(LIMIT, "b", 5 * LIMIT, members, now) < 0.05 * LIMIT
    assert lender.lend(LIMIT, "a", 5 * LIMIT, members, now + 1) == pytest.approx(LIMIT / 2)
    assert lender.lend(LIMIT, "b", 5 * LIMIT, members, now + 1) == pytest.approx(LIMIT / 2)


def test_a_lender_that_has_begun_lends_no_more_than_the_even_split():
    lender = Lender(INTERVAL_S, 0.0)
    assert lender.lend(LIMIT, "a", 5 * LIMIT, ["a", "b", "c"], 0.1) == pytest.approx(LIMIT / 3)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_shares_stay_within_the_limit(seed):
    cluster = Cluster(Random(seed).randint(1, 6), seed)
    random = Random(seed + 1000)
    cluster.begin()
    for _ in range(60):
        kind = random.randrange(6)
        process = random.choice(cluster.processes)
        if kind == 0:
            process.demand = random.choice([0.0, 1.0, 100.0, 5 * LIMIT])
        elif kind == 1:
            cluster.lender = random.choice([None, Lender(INTERVAL_S, cluster.now)])
        elif kind == 2:
            cluster.lost = random.choice([0.0, 0.3])
        elif kind == 3:
            process.offset_s += random.choice([-1000, 1000])
        elif kind == 4:
            process.is_cut_off = not process.is_cut_off
        elif len(cluster.processes) < 8:
            joined = Process(max(one.name for one in cluster.processes) + 1, random.uniform(-500, 500))
            joined.rate = LIMIT / (len(cluster.processes) + 1)
            cluster.processes.append(joined)
        cluster.disturb()
        cluster.run(random.choice([0.3, 1, 4, 12]))
        cluster.assert_bounded()
