"""One leader epoch: its answers, the fetches it accepts, and changes of the in-sync set and the high watermark."""

from dataclasses import replace

import pytest

from engine.log.epochs import EpochEnd, EpochStart
from replication.cores.fetch import BatchesEnd, Diverging, FetchError, FollowerFetch, OutOfRange, Send
from replication.cores.leader import AdvanceWatermark, Leader, LogBounds, Propose, StepDown, position_verdict
from replication.cores.partition_state import Member, Registration, node_ids
from replication.cores.progress import AckVerdict
from replication.cores.reassignment import with_reassignment
from tests.replication.cores.states import OS, RULES, alive, state, versioned

EPOCHS = (EpochStart(1, 0), EpochStart(3, 10))
LAG_S = 10.0


def leader(found=None, rules=OS, log_end=12, watermark=0, log_start=0) -> Leader:
    made = Leader(
        Member(1, 1),
        versioned(found or state(epoch=3)),
        rules,
        partition="t/0",
        lag_s_max=LAG_S,
        log_start=log_start,
        local_log_start=log_start,
        log_end=log_end,
        durable_end=log_end,
        watermark=watermark,
        epochs=EPOCHS,
        now=0.0,
    )
    made.on_nodes(alive(1, 2, 3))
    return made


def fetch(
    node=2, log_end=12, epoch=3, last_epoch: int | None = 3, durable_end=None, broker_epoch=None
) -> FollowerFetch:
    end = log_end if durable_end is None else durable_end
    return FollowerFetch(node, broker_epoch or node, epoch, log_end, end, last_epoch)


@pytest.mark.parametrize(
    ("fetched", "answer"),
    [
        (fetch(epoch=2), FetchError.FENCED_LEADER_EPOCH),
        (fetch(epoch=4), FetchError.UNKNOWN_LEADER_EPOCH),
        (fetch(node=9), FetchError.UNKNOWN_REPLICA),
        (fetch(log_end=1, last_epoch=1), OutOfRange(2, 12, 2)),
        (fetch(log_end=11, last_epoch=1), Diverging(EpochEnd(1, 10))),
        (fetch(log_end=11, last_epoch=2), Diverging(EpochEnd(1, 10))),
        (fetch(log_end=13, last_epoch=3), Diverging(EpochEnd(3, 12))),
        (fetch(log_end=12, last_epoch=4), OutOfRange(2, 12, 2)),
        (fetch(log_end=10, last_epoch=1), Send(10, 2, 2)),
        (fetch(log_end=2, last_epoch=None), Send(2, 2, 2)),
    ],
)
def test_a_fetch_is_answered_in_this_order(fetched, answer):
    made = leader(log_start=2, watermark=2)
    assert made.answer_to(fetched) == answer
    assert (made.on_fetch(fetched, 1.0)[1] == []) or isinstance(answer, Send)


def test_what_all_replicas_have_compacted_is_the_least_of_their_ends_and_never_goes_back():
    made = leader(log_start=2, watermark=2)
    made.on_compacted(9)
    assert made.compacted_by_all == 0
    found = []
    for node, end in ((2, 8), (3, 5), (3, 9), (2, 0)):
        asked = replace(fetch(node, log_end=10, last_epoch=1), compacted_end=end)
        answer, _ = made.on_fetch(asked, 1.0)
        assert answer == made.answer_to(asked)
        found.append(answer.compacted_by_all)
    assert found == [0, 5, 8, 8]


def test_who_asks_ahead_is_sent_what_follows_and_acknowledges_nothing_of_it():
    made = leader(log_start=2, watermark=2)
    for node in (2, 3):
        answer, effects = made.on_fetch(replace(fetch(node, log_end=10, last_epoch=1), ahead=BatchesEnd(11, 3)), 1.0)
        assert answer == Send(11, made.high_watermark, 2)
    assert effects == [AdvanceWatermark(10)]


@pytest.mark.parametrize(
    ("ahead", "answer"),
    [(BatchesEnd(13, 3), Diverging(EpochEnd(3, 12))), (BatchesEnd(11, 1), Diverging(EpochEnd(1, 10)))],
)
def test_what_is_on_its_way_is_compared_too(ahead, answer):
    assert leader(log_start=2).answer_to(replace(fetch(log_end=10, last_epoch=1), ahead=ahead)) == answer


def test_a_fetch_of_an_earlier_life_is_refused():
    made = leader()
    made.on_nodes({**alive(1, 3), 2: Registration(7, 0)})
    assert made.answer_to(fetch(broker_epoch=2)) is FetchError.NOT_LEADER
    assert isinstance(made.answer_to(fetch(broker_epoch=7)), Send)


def test_only_an_answered_fetch_acknowledges():
    made = leader()
    made.on_fetch(fetch(2), 1.0)
    made.on_fetch(fetch(3, log_end=13), 1.0)
    made.on_fetch(fetch(3, epoch=2), 1.0)
    assert made.high_watermark == 0
    assert made.on_fetch(fetch(3, log_end=11), 1.0)[1] == [AdvanceWatermark(11)]


def test_with_durability_group_fsynced_ends_count():
    made = leader(rules=RULES)
    made.on_fetch(fetch(2, durable_end=5), 1.0)
    assert made.on_fetch(fetch(3), 1.0)[1] == [AdvanceWatermark(5)]
    assert made.ack_verdict(12) is AckVerdict.WAITING
    made.on_fetch(fetch(2), 1.0)
    assert made.ack_verdict(12) is AckVerdict.COMMITTED


def test_a_growth_counts_at_once_and_a_shrink_when_confirmed():
    made = leader(state(epoch=3, in_sync=(1, 2)))
    made.on_fetch(fetch(2), 1.0)
    assert made.high_watermark == 12
    (proposal,) = (e for e in made.on_fetch(fetch(3), 1.0)[1] if isinstance(e, Propose))
    assert node_ids(proposal.state.in_sync) == {1, 2, 3}
    made.on_written(13, 1.0)
    made.on_fetch(fetch(2, log_end=13), 1.0)
    assert made.high_watermark == 12, "3 may be in the store's set already"
    made.on_confirmed(1, 1.0)
    made.on_fetch(fetch(2, log_end=13), 15.0)
    (shrink,) = (e for e in made.on_tick(15.0) if isinstance(e, Propose))
    assert node_ids(shrink.state.in_sync) == {1, 2}
    assert made.high_watermark == 12, "3 is still in the store's set"
    assert made.on_confirmed(2, 15.0) == [AdvanceWatermark(13)]


def test_one_change_of_the_set_at_a_time():
    made = leader(state(epoch=3, in_sync=(1,), eligible=(2, 3)))
    assert any(isinstance(e, Propose) for e in made.on_fetch(fetch(2), 1.0)[1])
    assert made.on_fetch(fetch(3), 1.0)[1] == []
    made.on_proposal_rejected()
    assert any(isinstance(e, Propose) for e in made.on_fetch(fetch(3), 1.0)[1])


def test_a_newer_state_settles_what_was_proposed_and_an_older_one_nothing():
    made = leader(state(epoch=3, in_sync=(1, 2)))
    made.on_fetch(fetch(3), 1.0)
    assert made.on_state(versioned(state(epoch=3, in_sync=(1,)), 0), 1.0) == []
    assert made.statistics().proposed == (1, 2, 3)
    made.on_nodes(alive(1, 2))  # or 3 would be proposed again
    made.on_state(versioned(state(epoch=3, in_sync=(1,), eligible=(2,)), 1), 1.0)
    assert made.statistics().proposed is None


def test_who_is_leaving_or_unknown_does_not_join():
    for nodes in ({**alive(1, 2)}, {**alive(1, 2), 3: Registration(3, 0, is_leaving=True)}):
        made = leader(state(epoch=3, in_sync=(1, 2)))
        made.on_nodes(nodes)
        assert not any(isinstance(e, Propose) for e in made.on_fetch(fetch(3), 1.0)[1])


def test_a_burst_throws_nobody_out():
    """A follower is in sync if each fetch reaches the leader's log end at the previous fetch."""
    made, end = leader(state(epoch=3, in_sync=(1, 2), replicas=(1, 2))), 12
    for second in range(0, 60, 5):
        made.on_fetch(fetch(2, log_end=end), float(second))
        end += 1_000_000
        made.on_written(end, float(second))
        assert not any(isinstance(e, Propose) for e in made.on_tick(float(second)))


def test_a_follower_whose_fsync_hangs_is_left_out():
    made = leader(rules=RULES)
    for second in range(0, 16, 3):
        made.on_fetch(fetch(2), float(second))
        made.on_fetch(fetch(3, durable_end=3), float(second))
    (proposal,) = (e for e in made.on_tick(15.0) if isinstance(e, Propose))
    assert node_ids(proposal.state.in_sync) == {1, 2}


def test_too_few_in_sync_stop_the_watermark_and_refuse_produces():
    made = leader(state(epoch=3, in_sync=(1,), eligible=(2, 3)))
    assert not made.has_enough_replicas
    made.on_written(13, 1.0)
    assert made.high_watermark == 0
    committed = leader(state(epoch=3, in_sync=(1, 2)), watermark=0)
    committed.on_fetch(fetch(2), 1.0)
    committed.on_state(versioned(state(epoch=3, in_sync=(1,), eligible=(2,)), 1), 1.0)
    assert committed.ack_verdict(12) is AckVerdict.TOO_FEW_AFTER_APPEND


def test_the_end_is_known_once_this_epoch_has_a_committed_offset():
    made = leader(watermark=9)
    assert made.latest_offset is None
    made.on_fetch(fetch(2, log_end=10), 1.0)
    made.on_fetch(fetch(3, log_end=10), 1.0)
    assert made.latest_offset == 10


def test_a_moved_replica_is_forgotten():
    made = leader()
    made.on_state(versioned(replace(state(epoch=3, in_sync=(1, 2), replicas=(1, 2))), 1), 1.0)
    assert made.answer_to(fetch(3)) is FetchError.UNKNOWN_REPLICA
    assert made.on_fetch(fetch(2), 1.0)[1] == [AdvanceWatermark(12)]


@pytest.mark.parametrize("rules", [OS, RULES])
def test_who_had_all_before_an_idle_partition_is_written_to_again_is_caught_up_at_that_moment(rules):
    made = leader(rules=rules)
    made.on_synced(12, 0.0)
    made.on_fetch(fetch(2), 1.0)
    made.on_fetch(fetch(3, log_end=11), 1.0)
    made.on_written(13, 3600.0)
    (proposal,) = made.on_tick(3600.0 + LAG_S)
    assert node_ids(proposal.state.in_sync) == {1, 2}, "3 was behind before"
    made.on_proposal_rejected()
    (late,) = made.on_tick(3600.0 + LAG_S + 0.1)
    assert node_ids(late.state.in_sync) == {1}, "an hour at the end does not keep a follower that falls behind now"


def test_who_could_not_join_for_another_change_joins_without_fetching_again():
    made = leader(state(epoch=3, in_sync=(1,)))
    assert [type(effect) for effect in made.on_fetch(fetch(2), 1.0)[1]] == [Propose]
    assert made.on_fetch(fetch(3), 1.0)[1] == [], "one change at a time"
    *_, joins = made.on_confirmed(1, 1.1)
    assert node_ids(joins.state.in_sync) == {1, 2, 3}


def test_who_was_leaving_joins_once_it_stays():
    made = leader(state(epoch=3, in_sync=(1, 2)))
    made.on_nodes({**alive(1, 2), 3: Registration(3, 0, is_leaving=True)})
    made.on_fetch(fetch(2), 1.0)
    made.on_fetch(fetch(3), 1.0)
    assert made.on_tick(1.1) == []
    made.on_nodes(alive(1, 2, 3))
    (joins,) = made.on_tick(1.2)
    assert node_ids(joins.state.in_sync) == {1, 2, 3}


def test_whose_disk_has_failed_the_partition_does_not_join():
    made = leader(state(epoch=3, in_sync=(1, 2)))
    made.on_nodes({**alive(1, 2), 3: Registration(3, 0, offline=frozenset({"t/0"}))})
    made.on_fetch(fetch(2), 1.0)
    assert made.on_fetch(fetch(3), 1.0)[1] == []
    assert made.on_tick(1.1) == []


def test_a_fetch_below_the_local_log_start_gets_it_beside_the_log_start():
    made = leader(log_start=0, watermark=12)
    made.on_log_start(2, 6)
    assert made.answer_to(fetch(log_end=5, last_epoch=1)) == OutOfRange(6, 12, 2)
    assert made.answer_to(fetch(log_end=6, last_epoch=1)) == Send(6, 12, 2)


def test_a_log_that_began_in_the_middle_does_not_know_the_end_of_an_older_epoch():
    """A follower of epoch 2 with records up to 11 may differ from this log from any offset before 10."""
    epochs = (EpochStart(3, 10),)
    request = fetch(log_end=11, last_epoch=2)
    assert position_verdict(epochs, LogBounds(0, 10, 12), request) == OutOfRange(10, 12, 0)
    assert position_verdict(epochs, LogBounds(10, 10, 12), request) == Diverging(EpochEnd(2, 10)), "the rest is deleted"


def test_a_lowered_minimum_moves_the_watermark_once_nobody_else_is_eligible():
    made = leader(state(epoch=3, in_sync=(1,), eligible=(2, 3)))
    assert made.on_written(13, 1.0) == []
    made.rules = replace(OS, min_insync_replicas=1)
    assert made.on_written(14, 2.0) == [], "2 may still be elected, and does not have these records"
    assert made.on_state(versioned(state(epoch=3, in_sync=(1,)), 1), 3.0) == [AdvanceWatermark(14)]


def test_a_partition_that_gains_replicas_is_written_while_they_copy():
    made = leader(with_reassignment(state(in_sync=(1,), replicas=(1,), epoch=3), (1, 2, 3), (1, 2, 3)))
    assert (made.min_in_sync, made.has_enough_replicas) == (1, True)
    assert made.on_written(13, 1.0) == [AdvanceWatermark(13)]
    leading = leader(state(in_sync=(1,), epoch=3))
    assert (leading.min_in_sync, leading.has_enough_replicas) == (2, False)


BEHIND = FollowerFetch(2, 2, 3, 15, 15, 3, high_watermark=14)


def test_a_leader_that_lacks_committed_records_of_a_member_steps_down():
    answer, effects = leader(log_end=12).on_fetch(BEHIND, 1.0)
    assert answer is FetchError.NOT_LEADER, "an older follower would truncate"
    assert effects == [StepDown(2, 14)]
    eligible = state(epoch=3, in_sync=(1,), eligible=(2,))
    assert leader(eligible, log_end=12).on_fetch(BEHIND, 1.0)[1] == [StepDown(2, 14)]


@pytest.mark.parametrize(
    ("found", "fetched"),
    [
        (state(epoch=3, in_sync=(1, 3)), BEHIND),
        (state(epoch=3, unclean_elections=1, unclean_epoch=4), BEHIND),
        (state(epoch=3, unclean_elections=1), BEHIND),
        (state(epoch=3), replace(BEHIND, high_watermark=12)),
    ],
    ids=["not a member", "an unclean election since", "an unclean election of unknown epoch", "not committed"],
)
def test_other_followers_truncate_or_keep_what_they_have_and_the_leader_stays(found, fetched):
    answer, effects = leader(found, log_end=12).on_fetch(fetched, 1.0)
    assert (answer, effects) == (Diverging(EpochEnd(3, 12)), [])
