"""Assignors: every partition has one subscriber, balance, and few moves."""

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.groups.core.assignors import ASSIGN, NOWHERE, Nearby, rack_aware, range_, round_robin, sticky
from gateway.groups.model.values import PartitionRacks, Slot

TOPICS = ("t", "u", "v")
members_of = st.dictionaries(st.sampled_from("abcde"), st.frozensets(st.sampled_from(TOPICS), min_size=1))
sizes_of = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
slots = st.builds(Slot, st.sampled_from(TOPICS), st.integers(0, 9))
previous_of = st.dictionaries(slots, st.sampled_from("abcdef"))
racks = st.sampled_from(("", "r1", "r2", "r3"))
nearby_of = st.builds(
    Nearby,
    st.dictionaries(st.sampled_from("abcde"), racks),
    st.dictionaries(
        st.sampled_from(TOPICS),
        st.lists(st.builds(PartitionRacks, racks, st.frozensets(racks)), max_size=7).map(tuple),
    ),
)


@given(members_of, sizes_of, previous_of, nearby_of, st.sampled_from(sorted(ASSIGN)))
def test_every_partition_with_a_subscriber_has_one_and_no_other_has(members, sizes, previous, nearby, name):
    assignment = ASSIGN[name](members, sizes, previous, nearby)
    subscribed = {topic for topics in members.values() for topic in topics}
    assert set(assignment) == {
        Slot(topic, number) for topic, size in sizes.items() if topic in subscribed for number in range(size)
    }
    assert all(slot.topic in members[member] for slot, member in assignment.items())
    assert ASSIGN[name](members, sizes, previous, nearby) == assignment


@given(members_of, sizes_of, previous_of, st.one_of(st.just(NOWHERE), nearby_of))
def test_sticky_lets_nobody_have_two_more_than_another_that_could_take_one(members, sizes, previous, nearby):
    assignment = rack_aware(members, sizes, previous, nearby)
    loads = Counter(assignment.values())
    for slot, member in assignment.items():
        for other, topics in members.items():
            assert slot.topic not in topics or loads[member] - loads[other] < 2


@given(members_of, sizes_of, previous_of)
def test_sticky_moves_nothing_without_a_change(members, sizes, previous):
    assignment = sticky(members, sizes, previous)
    assert sticky(members, sizes, assignment) == assignment


@given(members_of, sizes_of, previous_of, nearby_of)
def test_rack_aware_moves_only_what_gets_nearer(members, sizes, previous, nearby):
    before, after = sticky(members, sizes, previous), rack_aware(members, sizes, previous, nearby)
    assert before == after or nearby.worth_of(after) > nearby.worth_of(before)
    assert rack_aware(members, sizes, after, nearby) == after


def test_rack_aware_gives_partitions_to_the_rack_of_their_leader_and_then_of_a_replica():
    members = dict.fromkeys("abc", frozenset("t"))
    leaders = [PartitionRacks(f"r{number % 3}", frozenset({"r0", "r1", "r2"})) for number in range(9)]
    in_racks = Nearby({"a": "r0", "b": "r1", "c": "r2"}, {"t": leaders})
    assert rack_aware(members, {"t": 9}, {}, in_racks) == {Slot("t", number): "abc"[number % 3] for number in range(9)}
    led_in_r0 = Nearby(
        {"a": "r0", "b": "r1"},
        {"t": [PartitionRacks("r0", frozenset({"r0"})), PartitionRacks("r0", frozenset({"r0", "r1"}))]},
    )
    assert rack_aware(members, {"t": 2}, {}, led_in_r0)[Slot("t", 0)] == "a"
    assert rack_aware(members, {"t": 2}, {}, led_in_r0)[Slot("t", 1)] == "b"


@given(st.integers(1, 8), st.integers(0, 40))
def test_sticky_moves_only_what_a_new_member_gets(count, size):
    before = sticky({f"m{number}": frozenset("t") for number in range(count)}, {"t": size}, {})
    after = sticky({f"m{number}": frozenset("t") for number in range(count + 1)}, {"t": size}, before)
    moved = [slot for slot in before if before[slot] != after[slot]]
    assert len(moved) == Counter(after.values())[f"m{count}"]


def test_range_gives_neighbours_and_round_robin_deals():
    members = {"a": frozenset("t"), "b": frozenset("t")}
    assert list(range_(members, {"t": 5}, {}).values()) == ["a", "a", "a", "b", "b"]
    assert list(round_robin(members, {"t": 5}, {}).values()) == ["a", "b", "a", "b", "a"]


def test_a_move_costs_the_same_however_many_partitions_a_member_has():
    def seconds(size: int) -> float:
        before = sticky({"a": frozenset("t")}, {"t": size}, {})
        times = []
        for _ in range(3):  # the least: a collection of garbage or another process may take part in one
            begin = time.process_time()
            sticky({"a": frozenset("t"), "b": frozenset("t")}, {"t": size}, before)
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(8000) < 30 * seconds(1000)  # 8 times the moves; 64 times the work with a search for each
