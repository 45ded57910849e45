"""The controller writes each change once and reads after a conflict; it spreads new topics and handles expiring
sessions.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.cores.assignment import TooFewNodes, assigned_replicas
from replication.cores.controller import Controller, Write, is_unbalanced
from replication.cores.partition_state import Member
from replication.cores.role import Follow, Lead, Leave, Wait, role_of
from replication.cores.session import TRANSITIONS, Session, SessionEvent, SessionState
from tests.replication.cores.states import RULES, alive, state, versioned


def test_a_dead_node_is_written_out_once():
    controller = Controller(7)
    assert controller.on_nodes(alive(1, 2, 3)) == []
    assert controller.on_partition("t-0", versioned(state(), 4), RULES) == []
    assert controller.on_nodes(alive(1, 2)) == [Write("t-0", state(in_sync=(1, 2)), 4, 7)]
    assert controller.on_nodes(alive(1)) == [], "one write at a time"
    (following,) = controller.on_partition("t-0", versioned(state(in_sync=(1, 2)), 5), RULES)
    assert following.state == state(in_sync=(1,), eligible=(2,))
    assert following.partition_epoch == 5


def test_after_a_refusal_what_is_read_decides():
    controller = Controller(7)
    controller.on_nodes(alive(1, 2, 3))
    controller.on_partition("t-0", versioned(state(), 4), RULES)
    controller.on_nodes(alive(2, 3))
    controller.on_rejected("t-0")
    (write,) = controller.on_partition("t-0", versioned(state(in_sync=(1, 3)), 5), RULES)
    assert write.state.leader == Member(3, 3)
    assert controller.on_partition("t-0", versioned(state(), 4), RULES) == [], "an older state is late"


def test_a_deleted_partition_is_looked_at_no_more():
    controller = Controller(7)
    controller.on_nodes(alive(1, 2, 3))
    controller.on_partition("t-0", versioned(state(), 0), RULES)
    controller.on_deleted("t-0")
    assert controller.on_nodes(alive(1)) == []


def test_leaders_go_back_to_where_they_belong():
    controller = Controller(7)
    controller.on_nodes(alive(1, 2, 3))
    controller.on_partition("t-0", versioned(state(leader=2)), RULES)
    (write,) = controller.moves_to_preferred()
    assert write.state.leader == Member(1, 1)


@pytest.mark.parametrize(("percent", "is_too_much"), [(0, True), (24, True), (25, False), (100, False)])
def test_a_share_of_leaders_may_be_elsewhere(percent, is_too_much):
    """One of the four that node 1 is the preferred leader of."""
    states = [state(), state(), state(), state(leader=2)]
    assert is_unbalanced(states, {1, 2, 3}, percent) is is_too_much
    assert not is_unbalanced(states, {2, 3}, percent), "absent nodes get nothing"


def test_a_node_leads_only_in_the_life_that_was_elected():
    assert role_of(Member(1, 1), state()) == Lead(1)
    assert role_of(Member(1, 2), state()) == Wait(1)
    assert role_of(Member(2, 9), state()) == Follow(1, 1)
    assert role_of(Member(4, 4), state()) == Leave()
    assert role_of(Member(2, 2), state(leader=None, in_sync=(), eligible=(1, 2))) == Wait(1)


def test_more_replicas_than_nodes_are_refused():
    with pytest.raises(TooFewNodes, match="replication_factor 4"):
        assigned_replicas({1: "", 2: "", 3: ""}, 1, 4)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 20), st.integers(1, 3))
def test_replicas_are_spread_over_nodes_and_racks(racks, nodes_per_rack, partitions, factor):
    nodes = {rack * 10 + n: f"rack {rack}" for rack in range(racks) for n in range(nodes_per_rack)}
    factor = min(factor, len(nodes))
    found = assigned_replicas(nodes, partitions, factor)
    leaders = [found_one[0] for found_one in found]
    counts = [leaders.count(node) for node in nodes]
    assert max(counts) - min(counts) <= 1
    for replicas in found:
        assert len(set(replicas)) == factor
        assert len({nodes[node] for node in replicas}) == min(factor, racks)
    loads = [sum(node in replicas for replicas in found) for node in nodes]
    assert max(loads) - min(loads) <= max(2, factor)


def test_what_nodes_have_already_counts():
    assert assigned_replicas({1: "", 2: "", 3: ""}, 1, 1, [state(replicas=(1, 2, 3))]) == [(2,)]


def test_every_event_of_a_session_is_provided_for():
    assert TRANSITIONS.keys() == {(s, e) for s in SessionState for e in SessionEvent}


def test_a_leader_stops_acknowledging_alone_before_its_session_can_have_expired():
    session = Session(timeout_s=9.0, now=0.0)
    session.on(SessionEvent.ANSWERED, 10.0)
    session.on(SessionEvent.DISCONNECTED, 11.0)
    assert session.may_acknowledge_locally(15.9)
    assert not session.may_acknowledge_locally(16.0)
    assert session.has_contact(18.9)
    assert not session.has_contact(19.0), "not without any contact for the whole timeout"
    session.on(SessionEvent.ANSWERED, 16.5)
    assert session.may_acknowledge_locally(17.0)
    session.on(SessionEvent.EXPIRED, 17.0)
    assert not session.may_acknowledge_locally(17.0)
    assert not session.has_contact(17.0)
