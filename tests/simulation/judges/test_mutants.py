"""The simulator finds each planted bug, with the seed named here or one soon after it."""

from __future__ import annotations

import pytest

from tests.simulation.judges.mutants import MUTANTS, found_by_seed

TRIES = 40  # any change of the code changes every run, and with it the first seed
FIRST_SEED = {
    "ack before replication": 9,
    "watermark ignores the in-sync set": 3,
    "watermark over log_end": 1,
    "truncation skipped": 4,
    "rule 4: join before the epoch's start": 51,
    "growth counts when confirmed": 85,
    "lost disk forgotten": 2,
    "leader epoch does not grow": 2,
    "version not checked": 2,
    "what is on its way counts": 45,
    "fsync errors ignored": 5,
    "sequences not copied": 45,
    "manifest fence off": 4,
    "a disk's start taken for the log's": 0,
    "rule 1: no reconciliation": 0,
    "shrink counts at once": 51,
    "start counter ignored": 0,
    "committed records truncated": 22,
    "a leader that lacks committed records leads on": 2,
    "unclean by mistake": 170,
    "answers of other positions": 97,
    "idle partitions lose their followers": 4,
    "unknown producers begin anywhere": 0,
    "end reported too early": 10,
    "a leader that cannot read leads on": 11,
    "permanent refusals by the clock": 286,
    "rules 2 and 3: epoch not checked": 192,
    "power loss forgotten": 119,
    "a restarted leader leads on": 28,
    "dedup off": 0,
    "local delete before manifest": 13,
    "watermark ignores the minimum": 112,
}
RARE = dict.fromkeys(["power loss forgotten", "what is on its way counts"], pytest.mark.long)  # few seeds find it


@pytest.mark.parametrize("name", [pytest.param(one, marks=RARE.get(one, ())) for one in MUTANTS])
def test_a_planted_bug_is_found(name):
    first = FIRST_SEED[name]
    found = found_by_seed(name, range(first, first + TRIES))
    assert found is not None, f"no seed from {first} on finds it: `python -m tests.simulation --mutants` searches again"


def test_every_planted_bug_has_its_seed_and_is_found_soon():
    assert FIRST_SEED.keys() == MUTANTS.keys()
    assert max(FIRST_SEED.values()) < 400
