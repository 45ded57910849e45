"""Values in the coordination store and in messages between processes are read as they were written."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Corrupt
from replication.cluster.keys import block_of, partition_key, partition_name, topic_id_of
from replication.cluster.values import (
    ClusterIdentity,
    Confirmed,
    NodeInfo,
    OutcomeUnknown,
    Proposal,
    Rejected,
    TopicEntry,
    block_from_bytes,
    block_to_bytes,
    deleted_ms_from_bytes,
    identity_from_bytes,
    identity_to_bytes,
    node_from_bytes,
    node_from_plain,
    node_to_bytes,
    node_to_plain,
    outcome_from_plain,
    outcome_to_plain,
    proposal_from_plain,
    proposal_to_plain,
    states_from_plain,
    states_to_plain,
    tombstone_to_bytes,
    topic_from_bytes,
    topic_from_plain,
    topic_to_bytes,
)
from replication.cluster.view import ClusterView, ReplicaEndpoint
from replication.cores.partition_state import Member, PartitionState, TopicRules, VersionedState

NUMBERS = st.integers(0, 2**50)
NODE_IDS = st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=5, unique=True)


@st.composite
def states(draw) -> VersionedState:
    replicas = draw(NODE_IDS)
    in_sync = replicas[: draw(st.integers(0, len(replicas)))]
    eligible = replicas[len(in_sync) :] if draw(st.booleans()) else []
    members = tuple(Member(node, draw(NUMBERS)) for node in in_sync)
    leader = draw(st.sampled_from([None, *members]))
    others = tuple(Member(node, draw(NUMBERS)) for node in eligible)
    moves = tuple(draw(NODE_IDS)), tuple(draw(NODE_IDS))
    state = PartitionState(tuple(replicas), leader, draw(NUMBERS), members, others, *moves, draw(NUMBERS))
    return VersionedState(state, draw(NUMBERS))


def over_a_link(plain):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(plain))


@given(st.dictionaries(st.integers(0, 9999), states(), max_size=5))
def test_states_come_back_from_a_block_and_over_a_link(found):
    assert block_from_bytes("/states/t.0", block_to_bytes(found)) == found
    changes = [("t", number, one) for number, one in found.items()]
    assert states_from_plain(over_a_link(states_to_plain(changes))) == changes


@given(states())
def test_proposals_and_their_outcomes_come_back_over_a_link(found):
    proposal = Proposal("t", 7, found.partition_epoch, found.state)
    assert proposal_from_plain(over_a_link(proposal_to_plain(proposal))) == proposal
    for outcome in (Confirmed(3), Rejected(found), Rejected(None), OutcomeUnknown()):
        assert outcome_from_plain(over_a_link(outcome_to_plain(outcome))) == outcome


NODE = NodeInfo(
    *(3, 17, "http://n:8080", ("http://n:1", "http://n:2"), ("http://n:3", "http://n:4"), "a", "1.0", "d", 5, 4, True),
    offline=frozenset({"t/1"}),
    nonce="n",
)


def test_nodes_topics_and_the_cluster_come_back():
    assert node_from_bytes("/nodes/3", node_to_bytes(NODE), 17) == NODE
    assert node_from_plain(over_a_link(node_to_plain(NODE))) == NODE
    topic = TopicEntry("orders", "t", 3, 2, {"retention_ms": None}, 99)
    assert topic_from_bytes("/topics/orders", topic_to_bytes(topic)) == topic
    identity = ClusterIdentity("c", "s")
    assert identity_from_bytes("/cluster", identity_to_bytes(identity)) == identity
    assert "secret='s'" not in repr(identity)
    assert deleted_ms_from_bytes("/deleted/t", tombstone_to_bytes("orders", 5)) == 5


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"0":[1]}', b'{"0":[0,[1],[2,0],0,[],[],[],[],0]}'])
def test_what_nobody_writes_is_corrupt_and_never_guessed_at(value):
    """The last one names a leader that is not in sync."""
    for decode in (lambda v: node_from_bytes("/nodes/1", v, 1), lambda v: topic_from_bytes("/topics/t", v)):
        with pytest.raises(Corrupt):
            decode(value)
    if value != b"{}":
        with pytest.raises(Corrupt, match=r"/states/t\.0"):
            block_from_bytes("/states/t.0", value)


def test_a_registration_without_a_past_is_trusted_from_then_on():
    fresh = NodeInfo(1, 42, "")
    assert (fresh.registration.survives_from, fresh.registration.disk_from) == (42, 42)
    assert (NODE.registration.survives_from, NODE.registration.disk_from) == (5, 4)


def test_rules_follow_the_settings():
    assert TopicEntry("t", "i", 1, 3).rules == TopicRules(2, False, True)
    config = {"min_insync_replicas": 1, "unclean_election": True, "durability": "os"}
    assert TopicEntry("t", "i", 1, 3, config).rules == TopicRules(1, True, False)


def test_partitions_have_a_block_and_a_name():
    assert block_of("t", 99) == "t.0"
    assert block_of("t", 100) == "t.1"
    assert topic_id_of("t.1") == "t"
    assert partition_key(partition_name("t", 12)) == ("t", 12)


def a_view() -> ClusterView:
    view = ClusterView()
    view.put_nodes({3: NODE}, drained=[3])
    view.put_topic(TopicEntry("orders", "t", 2, 1))
    state = PartitionState((3,), Member(3, 17), 1, (Member(3, 17),))
    view.put_states([("t", 0, VersionedState(state, 4)), ("t", 1, VersionedState(state, 4))])
    return view


def test_a_view_comes_back_over_a_link():
    view = a_view()
    plain, again = over_a_link(view.to_plain()), ClusterView()
    again.put_plain_nodes(plain["nodes"])
    for topic in map(topic_from_plain, plain["topics"]):
        again.put_topic(topic)
    again.put_states(states_from_plain(plain["states"]))
    assert (again.nodes, again.topics, again.states) == (view.nodes, view.topics, view.states)
    assert again.registrations == view.registrations
    assert again.registrations[3].is_leaving, "a drained node is not chosen to lead"


def test_a_leader_is_found_in_the_life_in_which_it_was_elected():
    view = a_view()
    places = [view.leader_of("t", number) for number in range(2)]
    assert {place.shard for place in places} == {0, 1}
    assert places[0] == ReplicaEndpoint(3, places[0].shard, NODE.shard_urls[places[0].shard])
    view.put_nodes({3: node_from_bytes("/nodes/3", node_to_bytes(NODE), 18)})
    assert view.leader_of("t", 0) is None
    assert view.leader_of("t", 2) is None


def test_an_older_state_is_ignored():
    view = a_view()
    older = VersionedState(PartitionState((3,), None, 9, ()), 3)
    assert view.put_states([("t", 0, older)]) == []
    assert view.states["t", 0].partition_epoch == 4


def test_unclean_elections_are_counted_once_and_outlive_their_topic():
    view, clock = a_view(), iter(range(100, 200))
    view._now_ms = clock.__next__
    member = Member(3, 17)
    for epoch, unclean in ((5, 1), (5, 1), (6, 1), (7, 3)):
        state = PartitionState((3,), member, epoch, (member,), unclean_elections=unclean)
        view.put_states([("t", 0, VersionedState(state, epoch))])
    assert (view.unclean_elections, view.elections) == (3, 3)
    assert view.last_unclean_ms == next(clock) - 1, "the time of the last one, and of no other change"
    view.remove_topic(view.topics["orders"])
    assert (view.states, view.unclean_elections) == ({}, 3)


def test_a_topic_made_again_takes_the_old_ones_states_along():
    view = a_view()
    view.put_topic(TopicEntry("orders", "u", 1, 1))
    assert view.states == {}
    assert view.topic_by_id("t") is None


def test_a_rotation_has_three_steps_and_nodes_of_two_that_follow_each_other_accept_each_other():
    steps = [ClusterIdentity("c", "old")]
    for _ in range(3):
        steps.append(steps[-1].rotated("new"))
        assert identity_from_bytes("/cluster", identity_to_bytes(steps[-1])) == steps[-1]
    assert [one.secrets for one in steps] == [("old",), ("old", "new"), ("new", "old"), ("new",)]
    for one, other in pairwise(steps):
        assert one.secret in other.secrets
        assert other.secret in one.secrets
        assert one.has_secret_of(other)
    assert not steps[0].has_secret_of(steps[3]), "a store that was rebuilt has another secret, too"
    assert "old" not in repr(steps[1])
    assert "new" not in repr(steps[1])
