"""Operations on a cluster: moves that start, continue and are cancelled; nodes that are drained and emptied."""

import pytest

from engine.errors import InvalidConfig, UnknownPartition, UnknownTopic
from replication.cluster.agent import AgentSettings
from replication.cluster.view import ClusterView, Reassignment, reassignments
from replication.cores.partition_state import VersionedState, initial_state
from replication.errors import NodesAbsent, NoOtherNode
from tests.replication.cluster.test_values import NODE
from tests.replication.clusters import catch_up, leaders, states_of


async def test_a_partition_moves_once_its_new_replicas_are_in_sync(cluster):
    one, _, _ = await cluster.start_all(1, 2, 3)
    topic, _ = await one.create_topic("orders", 1, 2, {})
    before = states_of(one, topic)[0]
    gone = before.replicas[0]
    (new,) = {1, 2, 3} - set(before.replicas)
    target = (new, before.replicas[1])
    await one.operations.reassign("orders", {0: target})
    await cluster.until(lambda: reassignments(one.view))
    assert reassignments(one.view) == [
        Reassignment("orders", 0, target, (new,), (gone,), tuple(sorted(before.replicas)))
    ]
    assert leaders(one, topic) == [gone], "nothing goes before the new one has everything"
    await catch_up(one, topic)
    await cluster.until(lambda: not reassignments(one.view) and None not in leaders(one, topic))
    after = states_of(one, topic)[0]
    assert (after.replicas, {m.node_id for m in after.in_sync}) == (target, set(target))
    assert after.leader.node_id in target
    assert after.leader_epoch == before.leader_epoch + 1


async def test_a_move_that_is_called_off_leaves_what_was(alone):
    one, _, _ = await alone.start_all(1, 2, 3)
    topic, _ = await one.create_topic("orders", 1, 1, {})
    before = states_of(one, topic)[0]
    other = next(n for n in (1, 2, 3) if n not in before.replicas)
    await one.operations.reassign("orders", {0: [other]})
    await one.operations.cancel_reassignment("orders", 0)
    await alone.until(lambda: not reassignments(one.view))
    assert states_of(one, topic)[0] == before
    await one.operations.cancel_reassignment("orders", 0)
    assert states_of(one, topic)[0] == before


@pytest.mark.parametrize(
    ("targets", "match"),
    [
        ({0: [1, 9]}, r"unknown \[9\]"),
        ({0: [1, 1]}, r"\[1, 1\]"),
        ({0: [1]}, "replication_factor 2"),
        ({0: [1, 2], 1: [2, 9]}, "unknown"),
    ],
)
async def test_a_wrong_target_is_refused_and_nothing_is_begun(alone, targets, match):
    one, _ = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {})
    before = states_of(one, topic)
    with pytest.raises(InvalidConfig, match=match) as refused:
        await one.operations.reassign("orders", targets)
    assert refused.value.members["setting"] == "replicas"
    assert states_of(one, topic) == before


async def test_what_is_not_there_cannot_be_moved(alone):
    (one,) = await alone.start_all(1)
    await one.create_topic("orders", 1, 1, {})
    with pytest.raises(UnknownTopic):
        await one.operations.reassign("order", {0: [1]})
    with pytest.raises(UnknownPartition):
        await one.operations.reassign("orders", {0: [1], 1: [1]})
    with pytest.raises(InvalidConfig, match="no node has the id 7"):
        await one.operations.drain_node(7)


async def test_the_replication_factor_grows_and_shrinks(cluster):
    one, two, _ = await cluster.start_all(1, 2, 3)
    topic, _ = await one.create_topic("orders", 3, 1, {})
    grown = await one.operations.change_replication_factor("orders", 3)
    assert grown.replication_factor == 3
    await cluster.until(lambda: len(reassignments(one.view)) == 3)
    await catch_up(one, topic)
    await cluster.until(lambda: not reassignments(one.view))
    assert all(len(state.in_sync) == 3 for state in states_of(one, topic))
    await cluster.until(lambda: two.view.topics.get("orders") == grown and not reassignments(two.view))
    led_by = leaders(two, topic)
    await two.operations.change_replication_factor("orders", 2)
    await cluster.until(lambda: all(len(state.replicas) == 2 for state in states_of(two, topic)))
    assert leaders(two, topic) == led_by, "the leaders stay"


async def test_a_factor_that_cannot_be_met_is_refused(alone):
    one, _ = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 1, 2, {"min_insync_replicas": 2})
    with pytest.raises(InvalidConfig, match="replication_factor is 3, and 2 nodes"):
        await one.operations.change_replication_factor("orders", 3)
    with pytest.raises(InvalidConfig, match="min_insync_replicas is 2, above"):
        await one.operations.change_replication_factor("orders", 1)
    assert await one.find_topic("orders") == topic
    assert reassignments(one.view) == []


async def test_a_drained_node_leads_nothing_and_is_given_nothing_until_it_is_taken_back(cluster):
    settings = AgentSettings(session_timeout_ms=3000, leader_imbalance_check_ms=50)
    one, two = await cluster.start_all(1, 2, settings=settings)
    topic, _ = await one.create_topic("orders", 4, 2, {})
    await two.operations.drain_node(1)
    await cluster.until(lambda: leaders(two, topic) == [2, 2, 2, 2])
    assert all(len(state.in_sync) == 2 for state in states_of(two, topic)), "it goes on copying"
    await cluster.until(lambda: one.view.drained == {1})
    with pytest.raises(InvalidConfig, match=r"1 node can hold a replica.*start more nodes"):
        await one.create_topic("more", 1, 2, {})
    await two.operations.drain_node(1, False)
    await cluster.until(lambda: sorted(leaders(two, topic)) == [1, 1, 2, 2])


async def test_the_first_replica_is_elected_where_it_is_in_sync(cluster):
    one, _ = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {})
    await catch_up(one, topic)
    preferred = [state.replicas[0] for state in states_of(one, topic)]
    await one.operations.drain_node(1)
    await cluster.until(lambda: leaders(one, topic) == [2, 2])
    await one.operations.drain_node(1, is_drained=False)
    assert await one.operations.elect_preferred("orders", [0, 1]) == [0, 1]
    await cluster.until(lambda: leaders(one, topic) == preferred)
    with pytest.raises(UnknownPartition):
        await one.operations.elect_preferred("orders", [7])


async def test_a_topic_for_which_a_dead_node_is_missing_is_to_be_asked_for_again(alone):
    one, _ = await alone.start_all(1, 2)
    await one.create_topic("orders", 1, 2, {})
    await alone.end(2)
    await alone.until(lambda: list(one.view.nodes) == [1])
    for call in (
        lambda: one.create_topic("more", 1, 2, {}),
        lambda: one.alter_topic("orders", {}, 2),
    ):
        with pytest.raises(NodesAbsent, match="1 node can hold a replica; absent: 2") as refused:
            await call()
        assert (refused.value.retryable, refused.value.no_side_effects) == (True, True)
    with pytest.raises(InvalidConfig, match="replication_factor is 3"):
        await one.create_topic("more", 1, 3, {})
    await alone.start(2)
    await alone.until(lambda: sorted(one.view.nodes) == [1, 2])
    assert (await one.create_topic("more", 1, 2, {}))[1]
    assert (await one.alter_topic("orders", {}, 2)).partitions == 2


def test_absent_nodes_are_those_that_may_come_back():
    view = ClusterView()
    view.put_nodes({1: NODE, 2: NODE, 3: NODE})
    view.put_nodes({1: NODE}, drained=[3])
    assert view.absent_nodes() == [2], "a drained node was emptied on purpose"
    state = initial_state((1, 7), view.registrations)
    view.put_states([("id", 0, VersionedState(state, 0))])
    assert view.absent_nodes() == [2, 7], "one that has replicas was there before this process was"


async def test_the_last_node_is_neither_drained_nor_emptied(alone):
    one, two = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 1, {})
    await one.operations.drain_node(2)
    before = states_of(one, topic)
    with pytest.raises(NoOtherNode, match="node 1 is the only node"):
        await one.operations.drain_node(1)
    with pytest.raises(NoOtherNode):
        await two.operations.decommission_node(1, lambda _: 0)
    assert one.view.drained == {2}
    assert states_of(one, topic) == before
    await one.operations.drain_node(2)
    await one.operations.drain_node(2, False)
    await one.operations.drain_node(1)


async def test_a_node_is_emptied_and_can_be_switched_off(alone):
    one, _, three = await alone.start_all(1, 2, 3)
    topic, _ = await one.create_topic("orders", 6, 2, {})
    count = sum(3 in state.replicas for state in states_of(one, topic))
    assert await one.operations.decommission_node(3, lambda _: 0) == count > 0
    await alone.until(lambda: len(reassignments(one.view)) == count)
    await catch_up(one, topic)
    await alone.until(lambda: not reassignments(one.view))
    assert all(set(state.replicas) == {1, 2} for state in states_of(one, topic))
    await alone.until(lambda: three.view.hosted_on(3, topic) == ())


async def test_a_node_without_which_too_few_are_left_is_not_emptied(alone):
    one, _ = await alone.start_all(1, 2)
    await one.create_topic("orders", 1, 2, {})
    with pytest.raises(InvalidConfig, match="no node remains"):
        await one.operations.decommission_node(2, lambda _: 0)
    assert not one.view.drained


async def test_a_plan_is_shown_and_then_carried_out(alone):
    one, _ = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 6, 1, {})
    await alone.start(3)
    await alone.until(lambda: len(one.view.nodes) == 3)
    moves = await one.operations.plan_balance(lambda _: 1000)
    assert [move.to_node for move in moves] == [3, 3]
    assert reassignments(one.view) == []
    await one.operations.apply(moves)
    await alone.until(lambda: len(reassignments(one.view)) == 2)
    await catch_up(one, topic)
    await alone.until(
        lambda: sorted(state.replicas for state in states_of(one, topic)) == [(n,) for n in (1, 1, 2, 2, 3, 3)]
    )
