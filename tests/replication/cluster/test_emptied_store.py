"""A coordination store that is emptied under running nodes: no topic counts as deleted."""

import pytest

from replication.cluster import agent as cluster_agent
from replication.cluster.keys import CLUSTER, deleted_key, topic_key
from replication.coordination.interface import Delete


async def test_a_topic_that_vanishes_without_its_tombstone_is_kept(cluster, monkeypatch, caplog):
    """Before: all nodes closed the topic, and clients got 404 for it."""
    monkeypatch.setattr(cluster_agent, "RETRY_S", (0.05,))
    agents = await cluster.start_all(1, 2)
    topic, _ = await agents[0].create_topic("orders", 2, 2, {})
    await cluster.until(lambda: all(one.view.has(topic) for one in agents))
    session = await cluster.coordination.session()
    await session.commit(Delete(topic_key("orders"), (await session.get(topic_key("orders"))).version))
    await cluster.until(lambda: all("lost" in cluster.listeners[node].events for node in (1, 2)))
    await cluster.until(lambda: any("cannot register" in line.message for line in caplog.records))
    reasons = [line.reason for line in caplog.records if hasattr(line, "reason")]
    assert any("has lost topic 'orders'" in one and "docs/operate/coordination.md" in one for one in reasons)
    found = await session.get(CLUSTER)
    await session.commit(Delete(CLUSTER, found.version))
    await cluster.until(
        lambda: any("penstock coordination rebuild" in getattr(one, "reason", "") for one in caplog.records)
    )
    assert all(one.view.has(topic) for one in agents)
    assert [cluster.listeners[node].deleted for node in (1, 2)] == [[], []]


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_deleted_topic_is_gone_once_its_tombstone_is_read(cluster, is_made_again):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 1, 2, {})
    await cluster.until(lambda: two.view.has(topic))
    await one.delete_topic("orders")
    if is_made_again:
        await one.create_topic("orders", 1, 2, {})
    await cluster.until(lambda: two.view.topic_by_id(topic.topic_id) is None)
    await cluster.until(lambda: ("orders" in two.view.topics) is is_made_again)
    assert "lost" not in cluster.listeners[2].events
    assert await two.session.get(deleted_key(topic.topic_id)) is not None
