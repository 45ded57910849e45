"""The model holds with every rule and breaks without any one of them. So each rule is needed, and the model detects
bugs.

The rules are those of Kip320 (1 to 4), AsyncIsr, the strict minimum, KIP-966, and unclean restarts. Where a bug needs
many steps, the test gives the first steps and the exploration starts after them. The same exploration with all rules
finds nothing.
"""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from engine.log.epochs import EpochEnd, EpochStart
from replication.cores import election
from replication.cores.fetch import Diverging
from replication.cores.follower import FollowerPosition, Truncate, next_fetch, on_answer
from tests.simulation.model.explore import explore, walk
from tests.simulation.model.protocol import FSYNC, PAGE_CACHE, Bounds, Rules
from tests.simulation.mutants.replication import own_end_only, same_epoch, without_minimum

WIDE = Bounds(records=4, epochs=6, versions=14, crashes=3, expiries=3, power_losses=0)
WITH_POWER_LOSSES = replace(WIDE, power_losses=2)
NARROW = Bounds(records=1, epochs=4, versions=9, crashes=1, expiries=2)
STATES = 2500

# 3 copies a record from 2, and that fetch is delayed. 1 leads and makes 3 truncate the record. 2 leads again and still
# has it. The delayed fetch now claims a log end that 3 does not have.
A_FETCH_OF_LONG_AGO = (
    *("1 learns", "2 learns", "3 learns", "session of 1 expires", "controller", "2 learns", "3 learns"),
    *("1 registers", "1 learns", "1 fetches", "2 takes 1 in", "store takes the proposal of 2", "2 learns", "2 writes"),
    *("3 fetches", "3 sends a fetch that is late", "preferred leader", "1 learns", "3 learns", "3 fetches"),
    *("session of 1 expires", "controller"),
)
# 1 and 2 have committed a record that 3 does not have. 2 becomes leader and does not know yet that it is committed.
A_LEADER_THAT_KNOWS_LITTLE = (
    *("1 learns", "2 learns", "3 learns", "1 leaves 3 out", "store takes the proposal of 1", "1 learns", "1 writes"),
    *("2 fetches", "2 fetches, the answer is lost", "session of 1 expires", "controller", "2 learns", "3 learns"),
)


# All three have a committed record, and none has fsynced it.
A_RECORD_IN_PAGE_CACHES = (
    *("1 learns", "2 learns", "3 learns", "1 writes", "2 fetches", "3 fetches", "2 fetches", "3 fetches"),
)

# 2 reports a record in a fetch that is delayed, and loses the record in a power loss. It has registered again and left
# the set.
A_FETCH_OF_AN_EARLIER_LIFE = (
    *("1 learns", "2 learns", "3 learns", "1 writes", "2 fetches", "2 sends a fetch that is late", "2 loses power"),
    *("2 registers", "controller", "1 learns", "3 fetches", "3 fetches"),
)


@pytest.mark.parametrize("topic", [PAGE_CACHE, FSYNC], ids=["os", "group"])
def test_every_invariant_holds_with_every_rule(topic):
    rules = Rules(topic=topic)
    for seed in (1, 2):
        trace = walk(rules, WITH_POWER_LOSSES, walks=25, length=120, seed=seed)
        assert trace.invariant is None, trace
    for story in ((), A_FETCH_OF_LONG_AGO, A_LEADER_THAT_KNOWS_LITTLE):
        trace = explore(rules, NARROW, STATES, story)
        assert trace.invariant is None, trace


def test_a_small_world_is_explored_to_its_end():
    trace = explore(Rules(), Bounds(records=1, epochs=1, versions=0, crashes=0, expiries=0), 50_000)
    assert trace.is_complete
    assert trace.invariant is None


@pytest.mark.parametrize(
    ("rules", "bounds"),
    [
        pytest.param(Rules(position_verdict=lambda *_: None), WIDE, id="rule 1: reconcile before data"),
        pytest.param(
            Rules(maximal=lambda committed, proposed: {m.node_id for m in proposed or committed}),
            WIDE,
            id="AsyncIsr: a shrink counts when confirmed",
        ),
        pytest.param(
            Rules(maximal=lambda committed, proposed: {m.node_id for m in committed}),
            WIDE,
            id="AsyncIsr: a growth counts at once",
        ),
        pytest.param(Rules(high_watermark=own_end_only), WIDE, id="the watermark waits for the in-sync set"),
        pytest.param(Rules(high_watermark=without_minimum), WIDE, id="KIP-966: the watermark waits for the minimum"),
        pytest.param(Rules(reconciled=same_epoch), WIDE, id="an election begins a new epoch"),
    ],
)
def test_without_this_rule_an_invariant_breaks(rules, bounds):
    assert walk(rules, bounds, walks=400, length=150, seed=3).invariant is not None


def test_without_clearing_it_a_list_of_eligible_replicas_outlives_what_it_is_true_of():
    """KIP-966: a former member has all committed records only while the high watermark does not move."""
    eligible = election._eligible

    def never_cleared(in_sync, candidates, replicas, minimum):
        return eligible(in_sync, candidates, replicas, len(in_sync) + 1)

    with patch.object(election, "_eligible", never_cleared):
        assert walk(Rules(), WIDE, walks=400, length=150, seed=3).invariant == "AckedDurable"


def test_without_the_version_an_old_proposal_puts_back_who_has_left():
    """The set may have changed in any way meanwhile."""
    trace = walk(Rules(checks_version=False), WIDE, walks=100, length=150, seed=4)
    assert trace.invariant is not None


def test_without_rules_2_and_3_a_fetch_of_an_earlier_epoch_commits_what_is_gone():
    trace = explore(Rules(epoch_verdict=lambda *_: None), NARROW, STATES, A_FETCH_OF_LONG_AGO)
    assert trace.invariant == "AckedDurable"
    assert "stale fetch of 3 reaches 2" in trace.path


def test_without_rule_4_who_lacks_committed_records_joins():
    trace = explore(Rules(may_join=lambda end, hw, start: end >= hw), NARROW, STATES, A_LEADER_THAT_KNOWS_LITTLE)
    assert trace.invariant == "AckedDurable"
    assert "2 takes 3 in" in trace.path


def test_an_undetected_power_loss_loses_acknowledged_records():
    bounds = replace(NARROW, power_losses=1)
    assert explore(Rules(), bounds, STATES, A_RECORD_IN_PAGE_CACHES).invariant is None
    with patch.object(election, "is_log_intact", lambda *_: True):
        assert explore(Rules(), bounds, STATES, A_RECORD_IN_PAGE_CACHES).invariant == "AckedDurable"


def test_a_fetch_of_an_earlier_life_acknowledges_nothing():
    """KIP-903. Nodes enforce it twice: a joining replica must have fetched under its current registration."""
    bounds = replace(NARROW, power_losses=1)
    assert explore(Rules(), bounds, STATES, A_FETCH_OF_AN_EARLIER_LIFE).invariant is None
    trace = explore(Rules(checks_broker_epoch=False), bounds, STATES, A_FETCH_OF_AN_EARLIER_LIFE)
    assert trace.invariant == "AckedDurable"
    assert "stale fetch of 2 reaches 1" in trace.path


def test_an_answer_to_another_log_of_the_same_length_is_not_followed():
    """Found by a walk: the log was truncated and had grown again; the old answer would have truncated it once more."""
    now = FollowerPosition(5, 0, 0, 3, 3, 0, (EpochStart(2, 0), EpochStart(5, 2)))
    then = replace(now, epochs=(EpochStart(2, 0), EpochStart(4, 2)))
    late = next_fetch(3, 1, then)
    assert on_answer(then, late, Diverging(EpochEnd(2, 2))) == Truncate(2)
    assert on_answer(now, late, Diverging(EpochEnd(2, 2))) is None
