"""Leader and in-sync set by the live nodes. `reconciled` is called repeatedly: a second call changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.cores.election import reconciled, with_preferred_leader
from replication.cores.partition_state import Member, Registration, TopicRules, node_ids
from replication.cores.reassignment import UnknownNodes, cancelled, with_reassignment
from tests.replication.cores.states import OS, RULES, alive, members, state


def after(found, nodes, rules=RULES):
    return reconciled("t-0", found, rules, nodes)


def test_nothing_is_changed_while_all_is_well():
    assert after(state(), alive(1, 2, 3)) == state()


def test_who_dies_leaves_and_the_leader_epoch_stays():
    assert after(state(), alive(1, 2)) == state(in_sync=(1, 2))


def test_the_first_replica_in_sync_that_is_alive_leads_in_a_new_epoch():
    assert after(state(), alive(2, 3)) == state(leader=2, in_sync=(2, 3), epoch=2)


def test_below_the_minimum_who_leaves_stays_eligible():
    assert after(state(in_sync=(1, 2)), alive(1)) == state(in_sync=(1,), eligible=(2,))


def test_who_is_eligible_leads_when_nobody_in_sync_is_alive():
    found = after(state(in_sync=(1,), eligible=(2,)), alive(2, 3))
    assert found == state(leader=2, in_sync=(2,), eligible=(1,), epoch=2)


def test_nobody_leads_rather_than_one_who_may_lack_records():
    found = after(state(in_sync=(1, 2)), alive(3))
    assert found == state(leader=None, in_sync=(), eligible=(1, 2), epoch=2)
    assert after(found, alive(3)) == found, "the epoch does not grow again and again"


def test_an_unclean_election_is_counted_and_forgets_who_was_eligible():
    found = after(state(in_sync=(1, 2)), alive(3), replace(RULES, is_unclean_allowed=True))
    assert found == state(leader=3, in_sync=(3,), epoch=2, unclean_elections=1, unclean_epoch=2)


def test_a_restarted_leader_is_elected_again():
    nodes = {**alive(2, 3), 1: Registration(9, 0)}
    found = after(state(), nodes)
    assert found.leader == Member(1, 9)
    assert found.leader_epoch == 2
    assert found.in_sync == members(1, 2, 3), "it still has what it had"


def test_a_power_loss_takes_membership_where_unsynced_records_were_acknowledged():
    nodes = {**alive(2, 3), 1: Registration(9, survives_from=9)}
    assert node_ids(after(state(), nodes, OS).in_sync) == {2, 3}
    assert node_ids(after(state(), nodes, RULES).in_sync) == {1, 2, 3}


def test_a_new_disk_takes_membership_always():
    nodes = {**alive(2, 3), 1: Registration(9, 9, disk_from=9)}
    for rules in (RULES, OS):
        assert node_ids(after(state(), nodes, rules).in_sync) == {2, 3}


def test_a_failed_disk_counts_as_absence_for_that_partition_only():
    nodes = {**alive(2, 3), 1: Registration(1, 0, offline=frozenset(["t-0"]))}
    assert after(state(), nodes).leader == Member(2, 2)
    assert reconciled("t-1", state(), RULES, nodes) == state()


def test_a_leader_that_is_leaving_hands_over_if_it_can():
    leaving = {**alive(2, 3), 1: Registration(1, 0, is_leaving=True)}
    assert after(state(), leaving).leader == Member(2, 2)
    assert after(state(in_sync=(1,), eligible=(2,)), leaving).leader == Member(1, 1)


def test_the_preferred_leader_returns_once_it_is_in_sync():
    nodes = alive(1, 2, 3)
    assert with_preferred_leader("t-0", state(leader=2), RULES, nodes).leader == Member(1, 1)
    behind = state(leader=2, in_sync=(2, 3))
    assert with_preferred_leader("t-0", behind, RULES, nodes) == behind


def test_a_move_ends_when_every_new_replica_is_in_sync():
    nodes = alive(1, 2, 3, 4)
    moving = with_reassignment(state(), (4, 2, 3), nodes.keys())
    assert moving.replicas == (4, 2, 3, 1)
    assert after(moving, nodes) == moving
    moved = after(replace(moving, in_sync=members(1, 2, 3, 4)), nodes)
    assert moved.replicas == (4, 2, 3)
    assert moved.leader == Member(4, 4)
    assert (moved.adding, moved.removing) == ((), ())


def test_a_move_that_is_called_off_leaves_what_was():
    moving = with_reassignment(state(), (4, 2, 3), (1, 2, 3, 4))
    assert set(cancelled(moving).replicas) == {1, 2, 3}
    led_by_new = replace(moving, leader=Member(4, 4), in_sync=members(2, 3, 4))
    assert cancelled(led_by_new).leader is None
    only_new = replace(moving, leader=Member(4, 4), in_sync=members(4))
    assert cancelled(only_new) == only_new


@pytest.mark.parametrize(
    ("target", "reason"), [((), "at least one"), ((1, 1), "at most once"), ((1, 9), r"unknown \[9\]")]
)
def test_a_move_to_nobody_or_to_strangers_is_refused(target, reason):
    with pytest.raises(UnknownNodes, match=reason):
        with_reassignment(state(), target, (1, 2, 3))


@given(
    st.sets(st.integers(1, 3)),
    st.sets(st.integers(1, 3)),
    st.sets(st.integers(1, 3)),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
)
def test_whatever_is_found_one_look_is_enough(in_sync, eligible, living, minimum, unclean):
    rules = TopicRules(minimum, unclean)
    leader = min(in_sync, default=None)
    kept = () if len(in_sync) >= rules.min_in_sync(3) else tuple(sorted(eligible - in_sync))
    before = state(leader=leader, in_sync=tuple(sorted(in_sync)), eligible=kept)
    once = after(before, alive(*living), rules)
    assert after(once, alive(*living), rules) == once
    assert once.leader_epoch - before.leader_epoch == (once.leader != before.leader)
    assert node_ids(once.in_sync) <= living
    may_lead = (in_sync or set(kept)) & living
    assert once.unclean_elections == (bool(living) and not (in_sync | set(kept)) & living and unclean)
    assert (once.leader is None) == (not may_lead and not (set(kept) & living) and not (unclean and bool(living)))


def test_a_log_that_is_trusted_since_a_later_registration_takes_membership_of_its_partition_only():
    nodes = {**alive(2, 3), 1: Registration(9, 0, log_from={"t-0": 9})}
    assert after(state(), nodes) == state(leader=2, in_sync=(2, 3), epoch=2)
    elsewhere = {**alive(2, 3), 1: Registration(9, 0, log_from={"another/0": 9})}
    assert after(state(), elsewhere).in_sync == members(1, 2, 3)


def test_a_log_on_a_disk_that_is_proven_stays_a_member_if_its_records_are_fsynced():
    nodes = {**alive(2, 3), 1: Registration(9, 9, 9, intact_from={"t-0": 0})}
    assert after(state(), nodes, TopicRules(is_fsync_demanded=True)).in_sync == members(1, 2, 3)
    assert after(state(), nodes, TopicRules(is_fsync_demanded=False)).in_sync == members(2, 3)
    assert after(state(), {**nodes, 1: replace(nodes[1], log_from={"t-0": 9})}).in_sync == members(2, 3)
