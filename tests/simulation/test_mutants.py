"""Each planted bug is found by the simulator, by the seed named here, or soon after it."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, found_by_seed

TRIES = 40  # a change of anything changes every run, and with it which seed is the first
FIRST_SEED = {
    "ack before replication": 2,
    "watermark ignores the in-sync set": 0,
    "watermark ignores the minimum": 12,
    "watermark over log_end": 1,
    "rule 1: no reconciliation": 8,
    "truncation skipped": 1,
    "rules 2 and 3: epoch not checked": 80,
    "rule 4: join before the epoch's start": 160,
    "shrink counts at once": 27,
    "growth counts when confirmed": 308,
    "power loss forgotten": 128,
    "lost disk forgotten": 0,
    "unclean by mistake": 94,
    "leader epoch does not grow": 0,
    "a restarted leader leads on": 96,
    "version not checked": 94,
    "answers of other positions": 11,
    "fsync errors ignored": 0,
    "dedup off": 0,
    "sequences not copied": 0,
    "idle partitions lose their followers": 9,
    "end told too early": 12,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name):
    first = FIRST_SEED[name]
    found = found_by_seed(name, range(first, first + TRIES))
    assert found is not None, f"no seed from {first} on finds it: `python -m tests.simulation --mutants` looks anew"


def test_every_planted_bug_has_its_seed_and_is_found_soon():
    assert FIRST_SEED.keys() == MUTANTS.keys()
    assert max(FIRST_SEED.values()) < 2000
