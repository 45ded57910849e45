"""The ceiling of a tenant's topics and partitions holds for all nodes, whatever they do at once."""

from __future__ import annotations

import asyncio

import pytest

from engine.directory.ceilings import Ceiling
from engine.errors import QuotaExhausted
from replication.cluster.keys import tenant_key
from replication.coordination.interface import Delete, Put


def ceiling(topics: int | None = None, partitions: int | None = None) -> Ceiling:
    return Ceiling("acme", topics, partitions)


async def create(agent, name: str, of: Ceiling | None, partitions: int = 1) -> bool:
    """Return whether there was room."""
    try:
        _, is_new = await agent.create_topic(name, partitions, 1, {}, of)
    except QuotaExhausted:
        return False
    assert is_new
    return True


async def test_nodes_that_create_at_once_never_pass_the_ceiling_together(cluster):
    one, two = await cluster.start_all(1, 2)
    await cluster.until(lambda: len(one.view.nodes) == len(two.view.nodes) == 2)
    await one.create_topic("acme.before", 3, 1, {})
    await one.create_topic("acmes.other", 3, 1, {})
    names = [f"acme.t{number}" for number in range(12)]
    made = await asyncio.gather(
        *(create(agent, name, ceiling(topics=6)) for agent, name in zip([one, two] * 6, names, strict=True))
    )
    assert sum(made) == 5
    with pytest.raises(QuotaExhausted) as refused:
        await two.create_topic("acme.more", 1, 1, {}, ceiling(topics=6))
    assert refused.value.members == {"quota": "topics", "limit": 6, "used": 6}
    first = next(name for name, is_made in zip(names, made, strict=True) if is_made)
    assert not (await two.create_topic(first, 1, 1, {}, ceiling(topics=6)))[1], "a repeat makes nothing"
    await one.delete_topic(first)
    assert await create(two, first, ceiling(topics=6))


async def test_partitions_count_when_a_topic_is_made_grows_and_goes(cluster):
    [one] = await cluster.start_all(1)
    assert await create(one, "acme.a", ceiling(partitions=5), partitions=3)
    assert not await create(one, "acme.b", ceiling(partitions=5), partitions=3)
    with pytest.raises(QuotaExhausted):
        await one.alter_topic("acme.a", {}, 6, ceiling(partitions=5))
    assert (await one.alter_topic("acme.a", {}, 5, ceiling(partitions=5))).partitions == 5
    assert not await create(one, "acme.b", ceiling(partitions=5))
    await one.alter_topic("acme.a", {"retention_ms": 60_000}, None, ceiling(partitions=5))
    await one.delete_topic("acme.a")
    assert await create(one, "acme.b", ceiling(partitions=5), partitions=5)


async def test_a_counter_that_is_gone_or_wrong_is_taken_again_before_a_refusal(cluster):
    [one] = await cluster.start_all(1)
    session, key = one._now.session, tenant_key("acme")
    assert await create(one, "acme.a", ceiling(topics=2))
    await session.commit(Put(key, b'{"topics":9,"partitions":9}', (await session.get(key)).version))
    assert await create(one, "acme.b", ceiling(topics=2))
    assert not await create(one, "acme.c", ceiling(topics=2))
    await session.commit(Delete(key, (await session.get(key)).version))
    assert not await create(one, "acme.c", ceiling(topics=2))
    await one.delete_topic("acme.a")
    assert await create(one, "acme.c", ceiling(topics=2))
