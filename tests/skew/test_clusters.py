"""Short runs of the simulator with nodes whose clocks differ and step: no key is stored twice within its window.

The time of a key is that of the node that received the request. `make skew-long` has 10,000 runs.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from engine.producers.key_window import KeyWindow, StoredKey
from replication.cores.partition_state import TopicRules
from tests.checking.mutants import Mutant, patched
from tests.simulation.report import swept_by_hand
from tests.simulation.run import Options, findings_of, run
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


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_key_is_stored_twice_whatever_the_clocks_say() -> None:
    counts: Counter[str] = Counter()
    began_s = time.process_time()
    with swept_by_hand():
        for seed in range(RUNS):
            outcome = run(seed, options_for(seed))
            assert not outcome.problems, outcome.report()
            counts += outcome.counts
            if seed % 20 == 0:
                gc.collect()
    print(f"{RUNS} runs in {time.process_time() - began_s:.1f} s of processor time: {dict(counts)}")
    for what in ("keyed repeats answered", "fault jump_clock", "elections", "repeats recognised"):
        assert counts[what] > 0, what


_add = KeyWindow.add


def _aged_by_the_stamp(self: KeyWindow, stored: Sequence[StoredKey], now_ms: int, since_ms: int, *limits: int) -> bytes:
    return b"".join([_add(self, [one], one[0].time_ms, one[0].time_ms, *limits) for one in stored])


IN_RUNS = findings_of(run, options_for)
MUTANTS = {
    "keys age by the clock of the node that received the request": Mutant(
        patched(KeyWindow, "add", _aged_by_the_stamp), IN_RUNS, "C4 duplicate"
    ),
    "a step of the node's own clock ages its keys": Mutant(
        patched(NodeClock, "steady_ms", NodeClock.now_ms), IN_RUNS, "C4 duplicate"
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    with swept_by_hand():
        assert MUTANTS[name].found_by_seed(range(TRIES)) is not None
