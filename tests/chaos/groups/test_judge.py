"""Each finding about groups is planted into a sound history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest

from tests.chaos.groups.history import Acquisition, GroupHistory, Outcome, Poll
from tests.chaos.groups.judge import judge_groups

ENDS = {0: 6}


def sound() -> GroupHistory:
    """Ann reads two records, and commits them twice: her first request is answered too late. Bob gets the rest.

    The share group's record 5 is released once; the answer to the outcome of record 4 is lost.
    """
    first = Poll("ann", 0, None, 1, 2, {0: (0, 1)})
    lost = Poll("ann", 2, first)
    again = Poll("ann", 3, first, 4, 5, {0: (2, 3)})  # ann leaves at 5
    taken = Poll("bob", 6, None, 7, 8, {0: (2, 3)})
    last = Poll("bob", 8, taken, 9, 10, {0: (4, 5)})
    polls = [first, lost, again, taken, last, Poll("bob", 10, last, 11, inf)]
    one = Acquisition("cid", 0, 10, 1, 2, {(0, n): 1 for n in range(4)})
    two = Acquisition("dan", 1, 10, 2, 3, {(0, 5): 1})
    three = Acquisition("dan", 3.5, 10, 4, 5, {(0, 5): 2, (0, 4): 1})
    outcomes = [
        Outcome(one, True, 2, 3, frozenset(one.records)),
        Outcome(two, False, 3, 3.2, frozenset(two.records)),
        Outcome(three, True, 5),
        Outcome(three, True, 6, 7, frozenset({(0, 5), (0, 4)})),
        Outcome(three, True, 8, 9, frozenset({(0, 5), (0, 4)})),
    ]
    return GroupHistory(20, polls, [one, two, three], outcomes, [(30, 40)])


def test_a_sound_history_has_no_findings():
    found, figures = judge_groups(sound(), ENDS)
    assert found == []
    assert (figures.delivered, figures.repeated) == (8, 2)
    assert (figures.acquired, figures.acquired_again, figures.steady) == (7, 1, 7)


def missed(history: GroupHistory) -> None:
    history.polls[4].offsets[0] = (4,)


def beyond(history: GroupHistory) -> None:
    history.polls[4].offsets[0] = (4, 5, 6)


def hole(history: GroupHistory) -> None:
    history.polls[2].offsets[0] = (2, 4)


def skipped(history: GroupHistory) -> None:
    """Bob begins at 4, and no member has sent a token for 2 and 3."""
    history.polls[3].offsets[0] = (4,)


def repeated(history: GroupHistory) -> None:
    """The commit of 2 was answered to ann."""
    history.polls[3].offsets[0] = (1, 2, 3)


def two_owners(history: GroupHistory) -> None:
    history.polls[2].held_until = 15


def stale_commit(history: GroupHistory) -> None:
    """Ann's second delivery is committed after bob got its records, and before he commits."""
    history.polls.insert(4, Poll("ann", 8.1, history.polls[2], 8.2, 8.3))
    history.polls[5].asked_at = 8.5


def no_outcome(history: GroupHistory) -> None:
    for one in history.outcomes[2:]:
        one.is_accept = False


def refused_and_no_other(history: GroupHistory) -> None:
    history.outcomes[0].settled = frozenset()


def two_outcomes(history: GroupHistory) -> None:
    extra = Acquisition("eve", 0, 10, 8, 8, {(0, 4): 2})
    history.outcomes.append(Outcome(extra, True, 8, 9, frozenset(extra.records)))


def delivered_again(history: GroupHistory) -> None:
    history.acquisitions.append(Acquisition("eve", 12, 10, 13, 14, {(0, 4): 2}))


def two_holders(history: GroupHistory) -> None:
    history.acquisitions[1].held_until = inf


def locked_twice(history: GroupHistory) -> None:
    """A full disk drops the coordinator with its locks: an acquire, which needs no append, gives the record again."""
    history.acquisitions.append(Acquisition("eve", 2.2, 10, 2.4, 2.5, {(0, 5): 1}))


def not_counted(history: GroupHistory) -> None:
    history.acquisitions[2].records = {(0, 5): 1, (0, 4): 1}


def taken_back(history: GroupHistory) -> None:
    """The repeat comes after a failover, which a judge of locks does not look at."""
    history.unsteady.append((7.2, 7.8))
    history.outcomes[4].settled, history.outcomes[4].expired = frozenset(), frozenset({(0, 4), (0, 5)})


def partly_taken_back(history: GroupHistory) -> None:
    history.outcomes[4].settled, history.outcomes[4].expired = frozenset({(0, 5)}), frozenset({(0, 4)})


PLANTED: dict[str, list[Callable[[GroupHistory], None]]] = {
    "G1 missed": [missed],
    "G1 beyond": [beyond],
    "G2 hole": [hole],
    "G2 skipped": [skipped],
    "G3 repeated": [repeated],
    "G4 two owners": [two_owners],
    "G6 stale commit": [stale_commit],
    "H1 no outcome": [no_outcome, refused_and_no_other],
    "H2 two outcomes": [two_outcomes],
    "H3 delivered again": [delivered_again],
    "H4 two holders": [two_holders, locked_twice],
    "H5 not counted": [not_counted, locked_twice],
    "H6 taken back": [taken_back, partly_taken_back],
}


CASES = [(kind, plant) for kind, plants in PLANTED.items() for plant in plants]


@pytest.mark.parametrize(("kind", "plant"), CASES, ids=[plant.__name__ for _, plant in CASES])
def test_a_planted_anomaly_is_found(kind, plant):
    history = sound()
    plant(history)
    found, _ = judge_groups(history, ENDS)
    assert any(text.startswith(kind) for text in found), found


def test_a_session_that_is_over_and_a_lock_that_a_failover_ended_hold_nothing():
    history = sound()
    two_owners(history)
    two_holders(history)
    assert judge_groups(replace(history, session_s=3, unsteady=[(3.6, 3.7)]), ENDS)[0] == []
