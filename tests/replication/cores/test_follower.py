"""A follower's reaction to an answer: append, truncate, reset, or ignore it as outdated."""

from dataclasses import replace

import pytest

from engine.log.epochs import EpochEnd, EpochStart
from replication.cores.fetch import BatchesEnd, Diverging, FetchError, OutOfRange, Send
from replication.cores.follower import (
    Append,
    Backoff,
    FollowerPosition,
    KeepCommitted,
    RefreshState,
    ResetLog,
    Truncate,
    follower_watermark,
    next_fetch,
    on_answer,
)
from replication.cores.partition_state import Member, PartitionState

HERE = FollowerPosition(5, 2, 4, 20, 18, 15, (EpochStart(2, 0), EpochStart(4, 10)))
MEMBER = Member(1, 1)
CLEAN = PartitionState((1, 2), MEMBER, 5, (MEMBER,))
UNCLEAN = replace(CLEAN, unclean_elections=1, unclean_epoch=5)
REQUEST = next_fetch(2, 7, HERE)


def test_a_fetch_says_where_it_stands():
    assert (REQUEST.log_end, REQUEST.durable_end, REQUEST.last_epoch, REQUEST.leader_epoch) == (20, 18, 4, 5)


@pytest.mark.parametrize(
    ("answer", "effect"),
    [
        (Send(20, 19, 3), Append(19, 3)),
        (Send(20, 19, 3, 9), Append(19, 3, 9)),
        (Diverging(EpochEnd(4, 17)), Truncate(17)),
        (OutOfRange(0, 16, 0), Truncate(16)),
        (OutOfRange(30, 40, 25), ResetLog(30, 25)),
        (OutOfRange(10, 40, 1), ResetLog(10, 1)),
        (FetchError.UNKNOWN_LEADER_EPOCH, Backoff()),
        (FetchError.FENCED_LEADER_EPOCH, RefreshState()),
        (FetchError.NOT_LEADER, RefreshState()),
    ],
)
def test_an_answer_and_its_effect(answer, effect):
    assert on_answer(HERE, REQUEST, answer) == effect


LOSING = [
    (Diverging(EpochEnd(4, 12)), Truncate(12, is_below_watermark=True), 12),
    (Diverging(EpochEnd(3, 14)), Truncate(10, is_below_watermark=True), 10),
    (Diverging(EpochEnd(2, 5)), Truncate(5, is_below_watermark=True), 5),
    (Diverging(EpochEnd(1, 0)), ResetLog(0, 0), 0),
    (Diverging(EpochEnd(2, 3)), ResetLog(2, 2), 3),
    (OutOfRange(1, 3, 0), ResetLog(1, 0), 3),
]


@pytest.mark.parametrize(("answer", "effect", "leaders_end"), LOSING)
def test_committed_records_are_truncated_only_after_an_unclean_election(answer, effect, leaders_end):
    for state in (CLEAN, replace(UNCLEAN, unclean_epoch=4), replace(UNCLEAN, unclean_epoch=3)):
        assert on_answer(replace(HERE, state=state), REQUEST, answer) == KeepCommitted(leaders_end)
    assert on_answer(replace(HERE, state=UNCLEAN), REQUEST, answer) == effect


@pytest.mark.parametrize(("answer", "effect", "leaders_end"), LOSING)
def test_an_unclean_election_of_unknown_epoch_explains_a_truncation(answer, effect, leaders_end):
    """A node of an older version has written the state, without the epoch."""
    assert on_answer(replace(HERE, state=replace(UNCLEAN, unclean_epoch=0)), REQUEST, answer) == effect


def test_a_high_watermark_above_the_log_protects_only_what_is_there():
    ahead = replace(HERE, high_watermark=30, state=CLEAN)
    assert on_answer(ahead, REQUEST, Diverging(EpochEnd(4, 19))) == KeepCommitted(19)
    empty = replace(ahead, local_log_start=20)
    assert on_answer(empty, REQUEST, OutOfRange(5, 10, 0)) == ResetLog(5, 0)


@pytest.mark.parametrize(
    "now",
    [
        FollowerPosition(6, 2, 4, 20, 18, 15, HERE.epochs),
        FollowerPosition(5, 2, 4, 21, 18, 15, HERE.epochs),
        FollowerPosition(5, 2, 4, 20, 18, 15, (EpochStart(2, 0), EpochStart(5, 10))),
    ],
    ids=["another epoch", "another end", "other records up to the same end"],
)
def test_an_answer_to_another_question_has_no_effect(now):
    assert on_answer(now, REQUEST, Send(20, 19, 3)) is None
    assert on_answer(now, REQUEST, Diverging(EpochEnd(4, 12))) is None


def test_what_a_follower_shows_never_goes_back():
    assert follower_watermark(15, 12, 20) == 15
    assert follower_watermark(15, 19, 17) == 17


def test_a_store_that_was_set_back_makes_nobody_cut_its_log():
    later = FollowerPosition(3, 2, 4, 20, 18, 15, HERE.epochs)
    request = next_fetch(2, 7, later)
    assert on_answer(later, request, OutOfRange(30, 40, 25)) == Backoff()


AHEAD = next_fetch(2, 7, HERE, BatchesEnd(30, 5))  # while 20 to 30 is being written
WRITTEN = FollowerPosition(5, 2, 4, 30, 18, 15, (*HERE.epochs, EpochStart(5, 22)))


def test_a_fetch_ahead_sends_the_end_of_the_log():
    assert (AHEAD.log_end, AHEAD.durable_end, AHEAD.last_epoch, AHEAD.wanted) == (20, 18, 4, 30)


def test_what_was_asked_for_ahead_counts_once_the_answer_before_is_written():
    assert on_answer(HERE, AHEAD, Send(30, 19, 3)) is None, "the one before could not be written, or is not yet"
    assert on_answer(WRITTEN, AHEAD, Send(30, 19, 3)) == Append(19, 3)


@pytest.mark.parametrize(
    "now",
    [
        FollowerPosition(6, 2, 4, 30, 18, 15, WRITTEN.epochs),
        FollowerPosition(5, 2, 4, 30, 18, 15, HERE.epochs),
    ],
    ids=["another leadership", "other records up to the same end"],
)
def test_what_was_asked_for_ahead_belongs_to_one_log(now):
    assert on_answer(now, AHEAD, Send(30, 19, 3)) is None


@pytest.mark.parametrize("verdict", [Diverging(EpochEnd(4, 17)), OutOfRange(30, 40, 25), FetchError.NOT_LEADER])
def test_a_verdict_on_where_the_log_stood_before_is_asked_for_again(verdict):
    assert on_answer(WRITTEN, AHEAD, verdict) is None
