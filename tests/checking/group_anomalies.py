"""Anomalies planted into what members of a group and callers of a share group have seen."""

from __future__ import annotations

from math import inf

from gateway.groups.share.values import Outcome
from tests.checking.anomalies import Subject
from tests.checking.group_checkers import check_group
from tests.checking.group_history import Acquisition, GroupHistory, Poll, Settlement, ShareHistory
from tests.checking.share_checkers import check_share


def sound_group() -> GroupHistory:
    """Ann reads two records, and commits them twice: her first request is answered too late. Bob gets the rest."""
    first = Poll("ann", 0, None, 1, 2, {0: (0, 1)})
    lost = Poll("ann", 2, first)
    again = Poll("ann", 3, first, 4, 5, {0: (2, 3)})  # ann leaves at 5
    taken = Poll("bob", 6, None, 7, 8, {0: (2, 3)})
    last = Poll("bob", 8, taken, 9, 10, {0: (4, 5)})
    return GroupHistory(20, [first, lost, again, taken, last, Poll("bob", 10, last, 11, inf)])


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


GROUPS = Subject(
    sound_group,
    lambda history: check_group(history, {0: 6}),
    {
        missed: {"G1 missed"},
        beyond: {"G1 beyond"},
        hole: {"G2 hole"},
        skipped: {"G2 skipped"},
        repeated: {"G3 repeated"},
        two_owners: {"G4 two owners"},
        stale_commit: {"G6 stale commit"},
    },
)

KEYS = {(0, offset): offset % 2 for offset in range(6)}


def settle(
    acquisition: Acquisition, asked_at: float, answered_at: float = inf, outcome: Outcome = Outcome.ACCEPT
) -> Settlement:
    return Settlement(acquisition, outcome, frozenset(acquisition.records), asked_at, answered_at)


def sound_share() -> ShareHistory:
    """The group's record 5 is released once; the answer to the outcome of record 4 is lost. Keys have an order."""
    first = Acquisition("cid", 0, 10, 1, 2, {(0, n): 1 for n in range(4)})
    two = Acquisition("dan", 2.1, 12, 2.2, 3, {(0, 5): 1})
    three = Acquisition("dan", 3.5, 13.5, 4, 5, {(0, 5): 2, (0, 4): 1})
    settlements = [
        settle(first, 2, 3),
        settle(two, 3, 3.2, Outcome.RELEASE),
        settle(three, 5),
        settle(three, 6, 7),
        settle(three, 8, 9),
    ]
    handed = {
        record: {acquisition.caller: acquisition.answered_at}
        for acquisition in (first, two, three)
        for record in acquisition.records
    }
    share = ShareHistory(1000, delay_s=0.4, acquisitions=[first, two, three], settlements=settlements)
    share.handed.update(handed)
    share.unsteady.append((30, 40))
    return share


def no_outcome(share: ShareHistory) -> None:
    for settlement in share.settlements[2:]:
        settlement.outcome = Outcome.RELEASE


def refused_and_no_other(share: ShareHistory) -> None:
    share.settlements[0].refused = share.settlements[0].records


def delivered_beyond(share: ShareHistory) -> None:
    share.handed[0, 6]["x"] = 3.0


def two_outcomes(share: ShareHistory) -> None:
    share.settlements.append(settle(Acquisition("eve", 0, 10, 8, 8, {(0, 4): 2}), 8, 9))


def delivered_again(share: ShareHistory) -> None:
    share.acquisitions.append(Acquisition("eve", 12, 22, 13, 14, {(0, 4): 2}))


def two_holders(share: ShareHistory) -> None:
    """Dan gives his record up too late."""
    share.acquisitions[1].held_until = inf
    share.settlements[1].asked_at, share.settlements[1].answered_at = 4.5, 4.6


def held_after_an_extension(share: ShareHistory) -> None:
    """Dan's lock was extended, and given to him again while he works."""
    share.acquisitions[1].held_until = inf
    share.settlements[1].outcome = Outcome.EXTEND


def locked_twice(share: ShareHistory) -> None:
    """A full disk drops the coordinator with its locks: an acquire, which needs no append, gives the record again."""
    share.acquisitions.append(Acquisition("eve", 2.3, 12.3, 2.4, 2.5, {(0, 5): 1}))


def not_counted(share: ShareHistory) -> None:
    share.acquisitions[2].records = {(0, 5): 1, (0, 4): 1}


def not_counted_after_a_failover(share: ShareHistory) -> None:
    """The release was stored, so another coordinator knows of it."""
    not_counted(share)
    share.acquisitions[2].hosting = 2


def too_often(share: ShareHistory) -> None:
    share.deliveries_max = 1


def too_early(share: ShareHistory) -> None:
    share.delay_s = 4.0


def taken_back(share: ShareHistory) -> None:
    """The repeat comes after a failover, which a judge of locks does not look at."""
    share.unsteady.append((7.2, 7.8))
    share.settlements[4].refused = share.settlements[4].records


def partly_taken_back(share: ShareHistory) -> None:
    share.settlements[4].refused = frozenset({(0, 4)})


def disordered(share: ShareHistory) -> None:
    """Record 5 comes at 2.2, before record 3 of its key has an outcome."""
    share.is_ordered = True
    share.settlements[0].asked_at = 2.5


SHARE = Subject(
    sound_share,
    lambda share: check_share(share, KEYS),
    {
        no_outcome: {"S1 lost"},
        refused_and_no_other: {"S1 lost"},
        delivered_beyond: {"S1 beyond"},
        two_outcomes: {"S2 two outcomes"},
        delivered_again: {"S3 delivered again"},
        two_holders: {"S4 two holders"},
        held_after_an_extension: {"S4 two holders"},
        locked_twice: {"S4 two holders", "S5 not counted"},
        not_counted: {"S5 not counted"},
        not_counted_after_a_failover: {"S5 not counted"},
        too_often: {"S5 delivered too often"},
        too_early: {"S8 too early"},
        disordered: {"S6 disordered"},
        taken_back: {"S9 taken back"},
        partly_taken_back: {"S9 taken back"},
    },
)
