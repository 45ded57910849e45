"""Each planted bug is found by the simulator, by the seed named here, or soon after it."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, found_by_seed

TRIES = 40  # a change of anything changes every run, and with it which seed is the first
FIRST_SEED = {
    "ack before replication": 4,
    "watermark ignores the in-sync set": 12,
    "watermark ignores the minimum": 31,
    "watermark over log_end": 5,
    "rule 1: no reconciliation": 4,
    "truncation skipped": 2,
    "rules 2 and 3: epoch not checked": 111,
    "rule 4: join before the epoch's start": 64,
    "shrink counts at once": 82,
    "growth counts when confirmed": 72,
    "power loss forgotten": 81,
    "lost disk forgotten": 2,
    "unclean by mistake": 22,
    "leader epoch does not grow": 2,
    "a restarted leader leads on": 97,
    "version not checked": 159,
    "answers of other positions": 20,
    "fsync errors ignored": 1,
    "dedup off": 1,
    "sequences not copied": 2,
    "idle partitions lose their followers": 9,
    "end told too early": 8,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name):
    first = FIRST_SEED[name]
    found = found_by_seed(name, range(first, first + TRIES))
    assert found is not None, f"no seed from {first} on finds it: `python -m tests.simulation --mutants` looks anew"


def test_every_planted_bug_has_its_seed_and_is_found_soon():
    assert FIRST_SEED.keys() == MUTANTS.keys()
    assert max(FIRST_SEED.values()) < 2000
