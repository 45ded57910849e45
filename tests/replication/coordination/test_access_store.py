"""Rules and tokens in either coordination store: one generation, compare-and-set, and what stays without it."""

from __future__ import annotations

import asyncio

from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import AddRule, AddToken, Change, RemoveRule, StoredToken
from gateway.access.store import BLOCKS, HEAD, AccessStore
from gateway.http.rights import Operation, Resource
from replication.coordination.interface import Delete


def adding(number: int) -> Change:
    rule = Rule(
        id=f"r{number:04}",
        effect=Effect.ALLOW,
        principals=("*",),
        operations=(Operation.READ,),
        resource=Resource.TOPIC,
        pattern=Pattern.PREFIX,
        name=f"t{number}.",
    )
    return Change(what=AddRule(rule), author=None, now_ms=0)


async def test_what_one_node_changes_another_one_follows(coordination) -> None:
    ours, theirs = await coordination.session(), await coordination.session()
    seen: asyncio.Queue[int] = asyncio.Queue()
    store, other = AccessStore(), AccessStore()

    async def note(state):
        seen.put_nowait(state.generation)

    following = asyncio.create_task(other.follow(theirs, note))
    for number in range(3):
        await store.change(ours, adding(number))
    while await asyncio.wait_for(seen.get(), 10) < 3:  # generations in between may be skipped
        pass
    following.cancel()
    assert other.state == store.state
    assert [rule.id for rule in other.state.rules] == ["r0000", "r0001", "r0002"]


async def test_of_two_that_change_at_once_none_is_lost(coordination) -> None:
    sessions = [await coordination.session() for _ in range(3)]

    async def change(index: int) -> None:
        store = AccessStore()
        for number in range(5):
            await store.change(sessions[index], adding(10 * index + number))

    await asyncio.gather(*map(change, range(3)))
    state = await AccessStore().read(sessions[0])
    assert (state.generation, len(state.rules)) == (15, 15)


async def test_a_change_writes_its_block_and_the_head_alone(coordination) -> None:
    session, store = await coordination.session(), AccessStore()
    for number in range(3 * BLOCKS):
        await store.change(session, adding(number))
    blocks = await session.children("/access/rules")
    assert 1 < len(blocks) <= BLOCKS

    async def versions():
        return {name: (await session.get(f"/access/rules/{name}")).version for name in blocks}

    before = await versions()
    await store.change(session, Change(what=RemoveRule("r0003"), author=None, now_ms=0))
    after = await versions()
    assert sum(after[name] - before[name] for name in blocks) == 1
    assert (await AccessStore().read(session)) == store.state


async def test_a_store_that_was_emptied_ends_no_right(coordination) -> None:
    session, store = await coordination.session(), AccessStore()
    token = StoredToken(id="00000001", name="shop", sha256="00" * 32, created_ms=1)
    before = await store.change(session, Change(what=AddToken(token), author=None, now_ms=0))
    head = await session.get_latest(HEAD)
    await session.commit(Delete(HEAD, head.version))
    assert await store.read(session) == before
