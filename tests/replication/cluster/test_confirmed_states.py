"""The partition states that the supervisor confirms are those of the store, on both stores."""

import asyncio
from dataclasses import replace

import pytest

from replication.cluster.keys import block_of
from replication.coordination.interface import CommitUnknown, SessionLost
from tests.replication.clusters import propose, states_of
from tests.scale.count import SCALE


async def test_a_confirmed_state_comes_from_the_store_even_without_a_watch_event(cluster):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {})
    await cluster.until(lambda: len(states_of(two, topic)) == 2)
    known = one.view.states[topic.topic_id, 0]
    assert await one.read_confirmed_state(topic.topic_id, 0) == known
    one._active.watch.stop()  # receives nothing, like a node that has just continued after a pause
    smaller = replace(known.state, in_sync=(known.state.leader,))
    await propose(two, topic, 0, smaller)
    confirmed = await one.read_confirmed_state(topic.topic_id, 0)
    assert (confirmed.state, confirmed.partition_epoch) == (smaller, known.partition_epoch + 1)


async def test_the_states_of_a_topic_that_is_gone_are_confirmed_as_gone(cluster):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 1, 2, {})
    one._active.watch.stop()
    await two.delete_topic("orders")
    assert await one.read_confirmed_state(topic.topic_id, 0) is None
    assert await one.read_confirmed_state("never", 0) is None


async def test_nothing_is_confirmed_once_the_session_is_over(cluster):
    one, _ = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 1, 2, {})
    life = one._active
    await cluster.expire(1)
    with pytest.raises((SessionLost, CommitUnknown)):
        await life.confirmed.answer(block_of(topic.topic_id, 0))
    await cluster.until(lambda: one._active not in (None, life))


async def test_many_confirmations_at_once_cost_a_few_commits(alone, monkeypatch):
    one, _ = await alone.start_all(1, 2)
    topics = [(await one.create_topic(f"t{n}", 3, 2, {}))[0] for n in range(5)]
    session, commits = one._active.session, []
    commit = session.commit

    async def counted(*operations):
        commits.append(len(operations))
        await commit(*operations)

    monkeypatch.setattr(session, "commit", counted)
    reads = [one.read_confirmed_state(topic.topic_id, n % 3) for n in range(SCALE // 5) for topic in topics]
    found = await asyncio.gather(*reads)
    assert None not in found
    assert len(commits) <= 3, commits
    assert max(commits) <= len(topics)


async def test_contacts_are_reported_with_the_time_at_which_they_were_sent(cluster):
    """At the registration and then repeatedly, and never with a time in the future."""
    one, _ = await cluster.start_all(1, 2)
    listener = cluster.listeners[1]
    await cluster.until(lambda: len(listener.contacts) > 2)
    assert listener.contacts == sorted(listener.contacts)
    assert listener.contacts[-1] == one.contact_at <= one.clock.boottime()
    await cluster.expire(1)
    await cluster.until(lambda: listener.events.count("registered") == 2)
