"""Rules and tokens in either coordination store: one generation, compare-and-set, and what stays without it."""

from __future__ import annotations

import asyncio
import logging

import orjson
import pytest

from engine.errors import Corrupt
from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import BLOCKS, AddRule, AddToken, Change, RemoveRule, StoredToken
from gateway.access.store import HEAD, AccessStore
from gateway.http.rights import Operation, Resource
from replication.coordination.interface import Create, Delete, Put, Session


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

    async def note():
        seen.put_nowait(other.state.generation)

    following = asyncio.create_task(other.follow(theirs, note))
    for number in range(3):
        await store.change(ours, adding(number))
    while await asyncio.wait_for(seen.get(), 10) < 3:  # generations in between may be skipped
        pass
    following.cancel()
    assert other.state == store.state
    assert [rule.id for rule in other.state.rules] == ["r0000", "r0001", "r0002"]


async def test_what_is_of_no_tenant_is_stored_as_versions_without_tenants_read_it(coordination) -> None:
    """Their rules refuse a field that they do not know."""
    session, store = await coordination.session(), AccessStore()
    await store.change(session, adding(1))
    token = StoredToken(id="t", name="t", sha256="00", created_ms=0)
    await store.change(session, Change(what=AddToken(token), author=None, now_ms=0))
    for kind in ("rules", "tokens"):
        (block,) = await session.children(f"/access/{kind}")
        (item,) = orjson.loads((await session.get(f"/access/{kind}/{block}")).value)["items"]
        assert "tenant" not in item


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


async def damaged(session: Session, what: str) -> None:
    """Has the store have what a newer version, another program or a damage leaves."""
    head = await session.get_latest(HEAD)
    plain = orjson.loads(head.value)
    (name,) = plain["blocks"]
    block = await session.get_latest(f"/access/{name}")
    changes = {
        "newer format": [Put(HEAD, orjson.dumps(plain | {"format": 2}), head.version)],
        "missing block": [
            Delete(f"/access/{name}", block.version),
            Put(HEAD, orjson.dumps(plain | {"generation": 9}), head.version),
        ],
        "unknown kind": [
            Create("/access/moons/1", b'{"generation": 9, "items": []}'),
            Put(HEAD, orjson.dumps(plain | {"blocks": {name: 1, "moons/1": 9}}), head.version),
        ],
        "no head": [Put(HEAD, b"[1", head.version)],
        "no block": [
            Put(f"/access/{name}", b'{"generation": 9, "items": [{"id": 1}]}', block.version),
            Put(HEAD, orjson.dumps(plain | {"blocks": {name: 9}}), head.version),
        ],
        "field of a rule": [
            Put(f"/access/{name}", block.value.replace(b'"note":', b'"moon":'), block.version),
        ],
    }
    await session.commit(*changes[what])


DAMAGES = {
    "newer format": "is of format 2",
    "missing block": "names",
    "unknown kind": "moons/1, a kind of rules",
    "no head": "/access/head cannot be decoded",
    "no block": "/access/rules/",
    "field of a rule": "moon",
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_what_is_not_understood_is_never_read_as_no_rules(coordination, what) -> None:
    session = await coordination.session()
    await AccessStore().change(session, adding(1))
    await damaged(session, what)
    with pytest.raises(Corrupt, match=DAMAGES[what]):
        await AccessStore().read(session)
    with pytest.raises(Corrupt, match=DAMAGES[what]):
        await AccessStore().change(session, adding(2))


async def test_while_the_store_is_not_understood_the_last_state_holds_and_the_log_says_so_once(
    coordination, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("gateway.access.store.REREAD_S", 0.01)
    session, store = await coordination.session(), AccessStore()
    before = await store.change(session, adding(1))
    mended = asyncio.Event()

    async def note():
        mended.set()

    following = asyncio.create_task(store.follow(await coordination.session(), note))
    good = await session.get_latest(HEAD)
    await damaged(session, "newer format")
    for _ in range(200):
        if caplog.records:
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.1)  # it has read it again meanwhile
    assert store.state is before
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "is of format 2" in caplog.text
    mended.clear()
    head = await session.get_latest(HEAD)
    await session.commit(Put(HEAD, orjson.dumps(orjson.loads(good.value) | {"generation": 7}), head.version))
    await asyncio.wait_for(mended.wait(), 10)
    following.cancel()
    assert (store.state.generation, store.state.rules) == (7, before.rules)
    assert "understood again" in caplog.text


async def test_a_head_without_a_format_is_of_the_first(coordination) -> None:
    session, store = await coordination.session(), AccessStore()
    before = await store.change(session, adding(1))
    head = await session.get_latest(HEAD)
    plain = orjson.loads(head.value)
    assert plain.pop("format") == 1
    await session.commit(Put(HEAD, orjson.dumps(plain), head.version))
    assert await AccessStore().read(session) == before


async def test_a_head_that_is_gone_takes_no_change_and_a_new_one_replaces_the_state(coordination) -> None:
    session, store = await coordination.session(), AccessStore()
    await store.change(session, adding(1))
    head = await session.get_latest(HEAD)
    await session.commit(Delete(HEAD, head.version))
    with pytest.raises(Corrupt, match="is gone"):
        await store.change(session, adding(2))
    await session.commit(Create(HEAD, orjson.dumps({"generation": 0, "blocks": {}})))
    assert (await store.read(session)).rules == ()
