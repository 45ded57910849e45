"""Each planted bug is found by the simulator, by the seed named here, or soon after it."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, found_by_seed

TRIES = 40  # a change of anything changes every run, and with it which seed is the first
FIRST_SEED = {
    "ack before replication": 4,
    "watermark ignores the in-sync set": 0,
    "watermark ignores the minimum": 32,
    "watermark over log_end": 6,
    "rule 1: no reconciliation": 0,
    "truncation skipped": 2,
    "rules 2 and 3: epoch not checked": 732,
    "rule 4: join before the epoch's start": 130,
    "shrink counts at once": 4,
    "growth counts when confirmed": 36,
    "power loss forgotten": 8,
    "lost disk forgotten": 2,
    "unclean by mistake": 15,
    "leader epoch does not grow": 1,
    "a restarted leader leads on": 33,
    "version not checked": 273,
    "answers of other positions": 0,
    "fsync errors ignored": 13,
    "dedup off": 2,
    "sequences not copied": 2,
    "idle partitions lose their followers": 3,
    "manifest fence off": 21,
    "local delete before manifest": 0,
    "a disk's start taken for the log's": 4,
    "end told too early": 19,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name):
    first = FIRST_SEED[name]
    found = found_by_seed(name, range(first, first + TRIES))
    assert found is not None, f"no seed from {first} on finds it: `python -m tests.simulation --mutants` looks anew"


def test_every_planted_bug_has_its_seed_and_is_found_soon():
    assert FIRST_SEED.keys() == MUTANTS.keys()
    assert max(FIRST_SEED.values()) < 2000
