"""Short runs of the simulator with nodes whose clocks differ and step: no key is stored twice within its window.

The time of a key is that of the node that received the request. `make skew-long` has 10,000 runs.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest import mock

import pytest

from engine.producers.key_window import KeyWindow
from replication.cores.partition_state import TopicRules
from tests.simulation.run import Options, run
from tests.simulation.world.node import NodeClock

HOUR_MS = 3_600_000
RUNS = int(os.environ.get("PENSTOCK_TEST_SKEW_RUNS", "100"))
TRIES = 40
KINDS = ("jump_clock", "kill", "expire_session", "bad_weather", "pause", "lose_power")


def options_for(seed: int) -> Options:
    random = Random(f"skew of {seed}")
    return Options(
        rules=TopicRules(min_insync_replicas=2, is_fsync_demanded=True),
        kinds=("jump_clock", "jump_clock", *random.sample(KINDS, 2)),
        fault_every_s=0.3,
        chaos_s=1.2,
        keyed_producers=1,
        ahead_ms=tuple(random.choice((0, HOUR_MS, -HOUR_MS, 48 * HOUR_MS, -48 * HOUR_MS)) for _ in range(3)),
    )


@contextmanager
def quiet() -> Iterator[None]:
    gc.collect()
    gc.disable()
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_key_is_stored_twice_whatever_the_clocks_say() -> None:
    counts: Counter[str] = Counter()
    began_s = time.process_time()
    with quiet():
        for seed in range(RUNS):
            outcome = run(seed, options_for(seed))
            assert not outcome.problems, outcome.report()
            counts += outcome.counts
            if seed % 20 == 0:
                gc.collect()
    print(f"{RUNS} runs in {time.process_time() - began_s:.1f} s of processor time: {dict(counts)}")
    for what in ("keyed repeats answered", "fault jump_clock", "elections", "repeats recognised"):
        assert counts[what] > 0, what


def test_a_memory_that_a_foreign_clock_wipes_is_found() -> None:
    """Planted: keys age by the clock of the node that received the request."""
    add = KeyWindow.add

    def aged_by_the_stamp(self, stored, now_ms, since_ms, *limits):  # type: ignore[no-untyped-def]
        return b"".join([add(self, [one], one[0].time_ms, one[0].time_ms, *limits) for one in stored])

    with quiet(), mock.patch.object(KeyWindow, "add", aged_by_the_stamp):
        for seed in range(TRIES):
            problems = run(seed, options_for(seed)).problems
            if any("C4 duplicate" in problem for problem in problems):
                return
    raise AssertionError(f"none of {TRIES} runs finds it")


def test_an_age_by_wall_time_is_found() -> None:
    """Planted: a step of the node's own clock ages its keys."""
    with quiet(), mock.patch.object(NodeClock, "steady_ms", NodeClock.now_ms):
        for seed in range(TRIES):
            problems = run(seed, options_for(seed)).problems
            if any("C4 duplicate" in problem for problem in problems):
                return
    raise AssertionError(f"none of {TRIES} runs finds it")
