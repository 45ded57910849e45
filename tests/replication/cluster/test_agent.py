"""Nodes that form a cluster: on both coordination stores, with the controller and expiring sessions."""

import asyncio
from dataclasses import replace

import pytest

from engine.errors import InvalidConfig, StartRefused, StorageFull, TopicExists, TopicProtected, UnknownTopic
from replication.cluster import agent as cluster_agent
from replication.cluster import controller
from replication.cluster.agent import AgentSettings
from replication.cluster.keys import BLOCK_PARTITIONS, CLUSTER, STATES, node_key, topic_key
from replication.cluster.membership import check_not_older
from replication.cluster.partition_state_store import ControllerFenced
from replication.cluster.values import Confirmed, Proposal, Rejected, node_to_bytes
from replication.coordination.interface import Delete, Put
from tests.replication.clusters import catch_up, leaders, propose, states_of


async def test_a_node_that_dies_is_followed_up_and_comes_back(cluster):
    """All steps on both stores: a topic, a node's death, elections, a restart."""
    one, two, three = await cluster.start_all(1, 2, 3)
    topic, is_new = await two.create_topic("orders", 6, 3, {})
    assert is_new
    assert sorted(leaders(two, topic)) == [1, 1, 2, 2, 3, 3]
    await cluster.until(lambda: len(states_of(three, topic)) == 6)
    first_life = one.member
    await cluster.end(1)
    await cluster.until(lambda: set(leaders(three, topic)) == {2, 3})
    assert all(m.node_id != 1 for state in states_of(three, topic) for m in state.in_sync)
    measured = [agent.view.election_times for agent in (two, three)]  # the controller has measured both of them
    await cluster.until(lambda: sum(times.cumulative()[-1] for times in measured) == 2)
    again = await cluster.start(1)
    assert again.member.broker_epoch > first_life.broker_epoch
    await cluster.until(lambda: cluster.controller() is not None and len(again.view.nodes) == 3)
    assert set(leaders(again, topic)) == {2, 3}, "it is not in sync yet"


async def test_an_expired_session_is_reported_first_and_the_node_registers_again(cluster):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {})
    old = one.member
    await cluster.expire(1)
    await cluster.until(lambda: one.member not in (None, old))
    listener = cluster.listeners[1]
    assert [event for event in listener.events if event in ("registered", "lost")] == [
        "registered",
        "lost",
        "registered",
    ]
    assert listener.members == [old, one.member]
    await cluster.until(
        lambda: all(
            m.broker_epoch == agent.member.broker_epoch
            for agent in (one, two)
            for s in states_of(two, topic)
            if (m := s.leader) and m.node_id == agent.own.node_id
        )
    )
    await cluster.until(lambda: None not in leaders(one, topic) and len(listener.states) == 2)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_registration_that_a_dead_life_has_taken_is_made_again(cluster, is_replaced):
    """A commit of an earlier life arrives late, and the version that it names is also that of the new key."""
    one, two = await cluster.start_all(1, 2)
    old = one.member
    await cluster.until(lambda: len(one.view.nodes) == 2)
    found = await two._now.session.get(node_key(1))
    earlier = replace(one.view.nodes[1], nonce="of an earlier life", offline=frozenset({"t/0"}))
    late = (
        Put(node_key(1), node_to_bytes(earlier), found.version) if is_replaced else Delete(node_key(1), found.version)
    )
    await two._now.session.commit(late)
    await cluster.until(lambda: one.member not in (None, old))
    await cluster.until(lambda: 1 in two.view.nodes and two.view.nodes[1].broker_epoch == one.member.broker_epoch)
    events = [event for event in cluster.listeners[1].events if event in ("registered", "lost")]
    assert events[-2:] == ["lost", "registered"]


async def test_another_node_becomes_controller(cluster):
    await cluster.start_all(1, 2, 3)
    await cluster.until(cluster.controller)
    first = cluster.controller()
    assert first.view.controller == first.own.node_id
    await cluster.end(first.own.node_id)
    await cluster.until(cluster.controller)
    second = cluster.controller()
    topic, _ = await second.create_topic("orders", 2, 2, {})
    await cluster.until(lambda: None not in leaders(second, topic))


async def test_a_controller_that_was_replaced_writes_nothing(cluster):
    await cluster.start_all(1, 2)
    await cluster.until(cluster.controller)
    first = cluster.controller()
    topic, _ = await first.create_topic("orders", 1, 2, {})
    of_the_first_term = first._active.candidate._latch.fence()
    await cluster.end(first.own.node_id)
    await cluster.until(cluster.controller)
    second = cluster.controller()
    await cluster.until(lambda: [m.node_id for m in states_of(second, topic)[0].in_sync] == [second.own.node_id])
    seen = second.view.states[topic.topic_id, 0]
    change = Proposal(topic.topic_id, 0, seen.partition_epoch, replace(seen.state, leader_epoch=9))
    with pytest.raises(ControllerFenced):
        await second._active.watch.blocks.write([change], of_the_first_term)
    assert second.view.states[topic.topic_id, 0] == seen
    assert await second._active.watch.blocks.write([change], second._active.candidate._latch.fence()) == [
        Confirmed(seen.partition_epoch + 1)
    ]


async def test_of_two_proposals_that_follow_the_same_state_one_is_refused(cluster):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {})
    await cluster.until(lambda: len(states_of(two, topic)) == 2)
    seen = states_of(one, topic)[0]
    smaller = replace(seen, in_sync=(seen.leader,))
    assert await propose(one, topic, 0, smaller) == Confirmed(1)
    stale = two.view.states[topic.topic_id, 0]
    if stale.partition_epoch == 0:
        outcome = await propose(two, topic, 0, seen)
        assert isinstance(outcome, Rejected)
        assert outcome.found.state == smaller
    await cluster.until(lambda: states_of(two, topic)[0] == smaller)
    assert cluster.listeners[2].states[topic.topic_id, 0] == smaller


async def test_proposals_of_two_nodes_for_one_block_are_both_taken(alone):
    """They change different partitions: the data that one of them read is stale, and no change is lost."""
    one, two = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 40, 2, {})
    await alone.until(lambda: len(states_of(two, topic)) == 40)

    async def shrink(agent, numbers):
        for number in numbers:
            seen = agent.view.states[topic.topic_id, number].state
            assert await propose(agent, topic, number, replace(seen, in_sync=(seen.leader,))) == Confirmed(1)

    await asyncio.gather(shrink(one, range(0, 40, 2)), shrink(two, range(1, 40, 2)))
    await alone.until(lambda: all(len(state.in_sync) == 1 for state in states_of(one, topic)))


async def test_three_hundred_partitions_fail_over_in_a_handful_of_commits(cluster):
    one, two, three = await cluster.start_all(1, 2, 3)
    topic, _ = await one.create_topic("orders", 3 * BLOCK_PARTITIONS, 3, {})
    others = [(await one.create_topic(f"small.{n}", 1, 3, {}))[0] for n in range(10)]
    await cluster.until(lambda: len(states_of(three, topic)) == 300 and cluster.controller())
    controller = cluster.controller()
    gone = next(agent for agent in (one, two, three) if agent is not controller)
    blocks = controller._active.watch.blocks
    before = blocks.commits
    await cluster.end(gone.own.node_id)
    node = gone.own.node_id
    await cluster.until(
        lambda: node not in leaders(controller, topic) and all(node not in leaders(controller, o) for o in others)
    )
    assert all(state.leader_epoch in (1, 2) for state in states_of(controller, topic))
    assert blocks.commits - before <= 4


async def test_a_controller_whose_store_has_no_room_continues_when_there_is_some(alone, monkeypatch):
    monkeypatch.setattr(controller, "FAILED_S", 0.01)
    one, _ = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 4, 2, {})
    session = alone.sessions[1][-1]
    commit, commits = session.commit, []

    async def refused(*operations):
        if any(operation.key.startswith("/states/") for operation in operations) and len(commits) < 3:
            commits.append(operations)
            raise StorageFull("coordination: no space is left")
        await commit(*operations)

    assert one.is_controller
    monkeypatch.setattr(session, "commit", refused)
    await alone.end(2)
    await alone.until(lambda: leaders(one, topic) == [1] * 4)
    assert len(commits) == 3


async def test_a_number_that_another_node_has_is_refused_and_ours_is_replaced(alone):
    settings = AgentSettings(session_timeout_ms=400)
    await alone.start(1)
    intruder = alone.agent(1, directory="another", settings=settings)
    await intruder.join_cluster()
    with pytest.raises(StartRefused, match="node id 1 is taken by the node at http://node1:8080") as refused:
        await intruder.start()
    assert "--node-id" in refused.value.hint
    again = alone.agent(1)
    await again.join_cluster()
    await again.start()
    assert again.member.broker_epoch > alone.agents[1].member.broker_epoch
    await again.stop()


async def test_topics_are_made_changed_grown_and_deleted_from_any_node(cluster):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {"retention_ms": 3_600_000})
    assert await two.find_topic("orders") == topic
    assert await two.create_topic("orders", 2, 2, {"retention_ms": 3_600_000}) == (topic, False)
    with pytest.raises(TopicExists):
        await two.create_topic("orders", 3, 2, {})
    grown = await two.alter_topic("orders", {"retention_ms": None}, BLOCK_PARTITIONS + 5)
    assert (grown.partitions, grown.config) == (105, {"retention_ms": None})
    await cluster.until(lambda: len(states_of(one, grown)) == 105)
    assert cluster.listeners[1].topics["orders"] == grown
    await one.alter_topic("orders", {"deletion_protection": True}, None)
    with pytest.raises(TopicProtected):
        await two.delete_topic("orders")
    await one.alter_topic("orders", {"deletion_protection": False}, None)
    await one.delete_topic("orders")
    assert await one.is_deleted(topic.topic_id)
    assert not await one.is_deleted("unknown")
    await cluster.until(lambda: cluster.listeners[2].deleted == ["orders"])
    assert two.view.states == {}
    with pytest.raises(UnknownTopic):
        await two.alter_topic("orders", {}, 7)
    assert await cluster.sessions[1][-1].children(STATES) == []


@pytest.mark.parametrize(
    ("replicas", "config", "setting"),
    [
        (3, {}, "replication_factor"),
        (0, {}, "replication_factor"),
        (1, {"min_insync_replicas": 2}, "min_insync_replicas"),
        (2, {"no_such": 1}, "no_such"),
    ],
)
async def test_a_wish_that_cannot_be_met_names_its_setting_and_leaves_nothing(alone, replicas, config, setting):
    one, _ = await alone.start_all(1, 2)
    with pytest.raises(InvalidConfig) as refused:
        await one.create_topic("orders", 2, replicas, config)
    assert refused.value.members["setting"] == setting
    session = alone.sessions[1][-1]
    assert await session.get(topic_key("orders")) is None
    assert await session.children(STATES) == []


async def test_min_insync_replicas_above_the_replicas_is_refused_when_it_is_changed(alone):
    one, _ = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 1, 2, {})
    with pytest.raises(InvalidConfig, match="min_insync_replicas is 3, above the replication_factor 2"):
        await one.alter_topic("orders", {"min_insync_replicas": 3}, 5)
    assert await one.find_topic("orders") == topic


async def test_replicas_are_spread_over_racks(alone):
    for node_id, rack in enumerate("aabb", 1):
        await alone.start(node_id, rack=rack)
    one = alone.agents[1]
    await alone.until(lambda: len(one.view.nodes) == 4)
    topic, _ = await one.create_topic("orders", 8, 2, {})
    assert all({1, 2} & set(state.replicas) and {3, 4} & set(state.replicas) for state in states_of(one, topic))


async def test_ten_thousand_partitions_are_made_in_commits_that_a_store_takes(cluster):
    (one,) = await cluster.start_all(1)
    topic, _ = await one.create_topic("wide", 10_000, 1, {})
    await cluster.until(lambda: len(states_of(one, topic)) == 10_000)  # perhaps not yet, with a slow store


async def test_who_leaves_gives_away_what_others_can_lead(cluster):
    one, _ = await cluster.start_all(1, 2)
    shared, _ = await one.create_topic("shared", 4, 2, {})
    await one.create_topic("own", 2, 1, {})
    await one.leave(20.0)
    assert leaders(one, shared) == [2, 2, 2, 2]
    assert cluster.listeners[1].events.count("lost") == 0, "it still takes part"


async def test_a_partition_that_a_disk_has_failed_is_led_by_another(alone):
    one, two = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 4, 2, {})
    number = leaders(one, topic).index(1)
    one.partition_offline(topic.topic_id, number)
    await alone.until(lambda: leaders(two, topic)[number] == 2)
    assert two.view.nodes[1].offline == {f"{topic.topic_id}/{number}"}
    assert 1 in leaders(two, topic), "its other partitions it keeps"


async def test_preferred_leaders_come_back_once_they_are_in_sync(alone):
    settings = AgentSettings(session_timeout_ms=3000, leader_imbalance_check_ms=50)
    one, two = await alone.start_all(1, 2, settings=settings)
    topic, _ = await one.create_topic("orders", 4, 2, {})
    await alone.end(1)
    await alone.until(lambda: leaders(two, topic) == [2, 2, 2, 2])
    await alone.start(1, settings=settings)
    await alone.until(lambda: 1 in two.view.nodes)
    await catch_up(two, topic)
    await alone.until(lambda: sorted(leaders(two, topic)) == [1, 1, 2, 2])


async def test_a_process_that_died_makes_its_node_another_broker_epoch(alone):
    one, _ = await alone.start_all(1, 2)
    old = one.member
    one.reregister()
    await alone.until(lambda: one.member not in (None, old))
    assert alone.listeners[1].members == [old, one.member]


async def test_the_first_node_makes_the_cluster_and_all_have_its_secret(cluster):
    agents = [cluster.agent(node_id) for node_id in (1, 2)]
    identities = [await agent.join_cluster() for agent in agents]
    assert identities[0] == identities[1]
    with pytest.raises(StartRefused, match="not other"):
        await cluster.agent(3).join_cluster(wanted_id="other")
    for agent in agents:
        await agent.stop()


async def test_a_data_directory_of_a_cluster_refuses_a_store_that_was_wiped(alone):
    with pytest.raises(StartRefused, match="has no cluster"):
        await alone.agent(1).join_cluster(directory_id="the cluster that was")
    session = await alone.coordination.session()
    assert await session.get(CLUSTER) is None, "the next attempt must not find a cluster that this one has made"


async def test_a_store_restored_from_old_data_is_refused(alone):
    one, _ = await alone.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 1, 2, {})
    check_not_older(one.view, {(topic.topic_id, 0): 1, ("unknown", 0): 9})
    with pytest.raises(StartRefused, match=r"leader epoch 1 of orders/0.*epoch 2"):
        check_not_older(one.view, {(topic.topic_id, 0): 2})
    third = alone.agent(3)
    await third.join_cluster()
    with pytest.raises(StartRefused, match="old data"):
        await third.start({(topic.topic_id, 0): 2})
    assert 3 not in one.view.nodes


async def test_a_store_restored_while_the_node_runs_is_refused_again_and_again(alone, monkeypatch, caplog):
    monkeypatch.setattr(cluster_agent, "RETRY_S", (0.01,))
    (one,) = await alone.start_all(1)
    topic, _ = await one.create_topic("orders", 1, 1, {})
    session, key = await alone.coordination.session(), f"{STATES}/{topic.topic_id}.0"
    backup = await session.get(key)
    await alone.expire(1)
    await alone.until(lambda: len(alone.listeners[1].members) == 2 and states_of(one, topic)[0].leader_epoch == 2)
    newest = await session.get(key)
    await session.commit(Put(key, backup.value, newest.version))
    await alone.expire(1)
    await alone.until(lambda: sum("cannot register" in line.message for line in caplog.records) >= 3)
    assert len(alone.listeners[1].members) == 2
    await session.commit(Put(key, newest.value, newest.version + 1))
    await alone.until(lambda: len(alone.listeners[1].members) == 3)


async def test_what_this_version_does_not_understand_it_does_not_act_upon(alone):
    one, _ = await alone.start_all(1, 2)
    session = await alone.coordination.session()
    topic, _ = await one.create_topic("orders", 1, 2, {})
    key = f"{STATES}/{topic.topic_id}.0"
    seen = await session.get(key)
    await session.commit(Put(key, b'{"0":"of a newer version"}', seen.version))
    await alone.until(lambda: "lost" in alone.listeners[1].events and "lost" in alone.listeners[2].events)
    await session.commit(Delete(key, seen.version + 1))


@pytest.mark.parametrize("broken", ["a watch of one key", "a watch of children", "taking a change in"])
async def test_a_watch_that_fails_for_an_unforeseen_reason_ends_the_session(cluster, monkeypatch, broken):
    """Otherwise the node would act on stale state permanently, without any error."""
    one, two = await cluster.start_all(1, 2)
    old, failures = one.member, 1

    def fails_once(real):
        async def call(session, *args):
            nonlocal failures
            found = await real(session, *args)
            if failures and session is one.session:
                failures -= 1
                raise KeyError("a bug")
            return found

        return call

    session = type(one.session)
    if broken == "taking a change in":
        take_in, watch = one._active.watch._apply_topics, one._active.watch
        monkeypatch.setattr(watch, "_apply_topics", lambda: [take_in(), {}["a bug"]])
    elif broken == "a watch of children":
        monkeypatch.setattr(session, "wait_for_children", fails_once(session.wait_for_children))
    else:
        monkeypatch.setattr(session, "wait_for_change", fails_once(session.wait_for_change))
    for name in ("orders", "further"):
        await two.create_topic(name, 2, 1, {})
    await two.alter_topic("orders", {"retention_ms": 3_600_000}, None)
    await cluster.until(lambda: one.member not in (None, old))
    await cluster.until(lambda: {"orders", "further"} <= one.view.topics.keys())
    await cluster.until(lambda: one.view.topics["orders"].config == {"retention_ms": 3_600_000})
