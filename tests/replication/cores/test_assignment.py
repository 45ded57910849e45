"""The target of reassignments: as few moves as possible, and never fewer racks."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.cores.assignment import TooFewNodes, assigned_replicas, balanced, evacuated, loads, resized
from replication.cores.partition_state import Member, PartitionState

RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


def state(*replicas: int, leader: int | None = None, in_sync: tuple[int, ...] | None = None) -> PartitionState:
    members = tuple(Member(node, 1) for node in (replicas if in_sync is None else in_sync))
    return PartitionState(replicas, Member(leader or members[0].node_id, 1), 1, members)


def nothing(_: str) -> int:
    return 0


def test_another_replica_goes_to_the_rack_that_has_none_and_the_node_with_least():
    states = {"t/0": state(1), "t/1": state(4)}
    assert resized(states, 2, RACKS, nothing) == {"t/0": (1, 3), "t/1": (4, 2)}


def test_who_is_not_in_sync_goes_first_and_the_leader_last():
    assert resized({"t/0": state(1, 2, 3, in_sync=(1, 3))}, 2, RACKS, nothing) == {"t/0": (1, 3)}
    assert resized({"t/0": state(1, 2, 3, leader=3)}, 1, RACKS, nothing) == {"t/0": (3,)}


def test_more_replicas_than_nodes_are_refused():
    with pytest.raises(TooFewNodes):
        resized({"t/0": state(1, 2)}, 3, {1: "", 2: ""}, nothing)


def test_a_node_is_emptied_onto_those_with_least_in_its_place_of_the_order():
    sizes = {"t/0": 10, "t/1": 90, "t/2": 50}
    states = {"t/0": state(4, 1), "t/1": state(2, 1), "t/2": state(2, 3)}
    assert evacuated(states, 1, RACKS, sizes.__getitem__) == {"t/0": (4, 2), "t/1": (2, 4)}


def test_a_node_cannot_be_emptied_when_no_other_is_left():
    with pytest.raises(TooFewNodes):
        evacuated({"t/0": state(1, 2)}, 1, {1: "", 2: ""}, nothing)


def test_what_is_even_stays_where_it_is():
    states = {f"t/{n}": state(1 + n % 4) for n in range(8)}
    assert balanced(states, RACKS, lambda _: 1000) == []


def test_a_new_node_is_given_its_share_and_nothing_else_moves():
    racks = {1: "", 2: "", 3: ""}
    states = {f"t/{n}": state(1 + n % 2) for n in range(12)}
    moves = balanced(states, racks, lambda _: 1000)
    assert len(moves) == 4
    assert {move.to_node for move in moves} == {3}
    assert Counter(move.from_node for move in moves) == {1: 2, 2: 2}


def test_large_partitions_move_before_many_small_ones():
    sizes = {"t/0": 400, "t/1": 400, **{f"t/{n}": 10 for n in range(2, 22)}}
    states = dict.fromkeys(sizes, state(1))
    moves = balanced(states, {1: "", 2: ""}, sizes.__getitem__)
    assert moves[0].bytes == 400
    assert len(moves) <= 2, "the small ones are worth no copying"


def test_a_partition_that_is_being_moved_is_left_alone():
    moving = PartitionState((1, 2), Member(1, 1), 1, (Member(1, 1),), adding=(2,))
    assert balanced({"t/0": moving}, {1: "", 2: "", 3: ""}, lambda _: 1000) == []


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=40),
    st.integers(1, 3),
    st.dictionaries(st.integers(1, 6), st.sampled_from("abc"), min_size=4, max_size=6),
    st.dictionaries(st.integers(7, 9), st.sampled_from("abc"), max_size=2),
)
def test_every_move_helps_and_no_partition_is_on_fewer_racks(sizes, factor, old, new):
    racks = {**old, **new}
    assigned = assigned_replicas(old, len(sizes), factor)
    states = {f"t/{n}": state(*replicas) for n, replicas in enumerate(assigned)}
    weight = {f"t/{n}": size for n, size in enumerate(sizes)}
    before = loads(states, racks, weight.__getitem__)
    moves = balanced(states, racks, weight.__getitem__)
    assert len({move.partition for move in moves}) == len(moves), "nothing is moved twice"
    for move in moves:
        replicas = states[move.partition].replicas
        assert len(set(move.target)) == len(replicas)
        assert len({racks[n] for n in move.target}) >= len({racks[n] for n in replicas})
        assert before[move.from_node] - before[move.to_node] > move.bytes + 1
        before[move.from_node] -= move.bytes + 1
        before[move.to_node] += move.bytes + 1
