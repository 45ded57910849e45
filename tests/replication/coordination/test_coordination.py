"""The contract of replication/coordination/interface.py, tested on every coordination store."""

import asyncio

import pytest

from engine.errors import Invalid
from replication.cluster.producer_ids import BLOCK_IDS, ProducerIds, StoredBlocks
from replication.coordination.interface import (
    VALUE_BYTES_MAX,
    Check,
    Conflict,
    Create,
    Delete,
    Put,
    Session,
    SessionLost,
    State,
)
from replication.coordination.latch import Latch
from tests.replication.coordinations import lost

WAIT_S = 60.0


@pytest.fixture
async def session(coordination) -> Session:
    return await coordination.session()


async def value_of(session: Session, key: str) -> bytes | None:
    found = await session.get(key)
    return None if found is None else found.value


async def in_time(awaitable):
    return await asyncio.wait_for(awaitable, WAIT_S)


async def still_waits(task: asyncio.Task) -> bool:
    """Return whether the task still waits. Only for waits where more time would not change the verdict."""
    await asyncio.sleep(0.05)
    return not task.done()


async def test_a_key_is_created_read_changed_and_deleted(session):
    assert await session.get("/a") is None
    await session.commit(Create("/a", b"one"))
    created = await session.get("/a")
    assert (created.value, created.version) == (b"one", 0)
    await session.commit(Put("/a", b"two", 0))
    changed = await session.get("/a")
    assert (changed.value, changed.version, changed.created) == (b"two", 1, created.created)
    await session.commit(Delete("/a", 1))
    assert await session.get("/a") is None


async def test_the_latest_value_is_what_another_session_has_just_committed(coordination):
    one, another = await coordination.session(), await coordination.session()
    assert await another.get_latest("/a") is None
    for version, value in enumerate((b"one", b"two", b"three")):
        await one.commit(Put("/a", value, version - 1) if version else Create("/a", value))
        assert (await another.get_latest("/a")).value == value


async def test_values_may_be_empty_and_large_and_any_bytes(session):
    for number, value in enumerate((b"", bytes(range(256)), bytes(VALUE_BYTES_MAX))):
        await session.commit(Create(f"/v{number}", value))
        assert await value_of(session, f"/v{number}") == value
    with pytest.raises(Invalid):
        await session.commit(Create("/more", bytes(VALUE_BYTES_MAX + 1)))


@pytest.mark.parametrize(
    "operation",
    [
        Create("/there", b""),
        Put("/there", b"", 1),
        Put("/absent", b"", 0),
        Delete("/there", 1),
        Delete("/absent", 0),
        Check("/there", 1),
        Check("/absent", 0),
    ],
)
async def test_a_key_that_is_not_as_demanded_is_a_conflict_and_nothing_happens(session, operation):
    await session.commit(Create("/there", b"x"))
    with pytest.raises(Conflict):
        await session.commit(Create("/beside", b"y"), operation)
    assert await session.get("/beside") is None
    assert await value_of(session, "/there") == b"x"


async def test_operations_of_one_commit_see_each_other(session):
    await session.commit(Create("/a", b"1"), Put("/a", b"2", 0), Check("/a", 1), Delete("/a", 1), Create("/a", b"3"))
    found = await session.get("/a")
    assert (found.value, found.version) == (b"3", 0)


@pytest.mark.parametrize("key", ["", "/", "a", "/a/", "//a", "/a b", "/ä", "/a\0", "/..", "/a/."])
async def test_what_is_no_key_is_refused(session, key):
    with pytest.raises(Invalid):
        await session.commit(Create(key, b""))
    with pytest.raises(Invalid):
        await session.get(key)


async def test_a_commit_of_nothing_is_refused(session):
    with pytest.raises(Invalid):
        await session.commit()


async def test_children_are_the_names_directly_below_sorted(session):
    await session.commit(Create("/t/b/1", b""), Create("/t/a", b""), Create("/tx", b""), Create("/t/b/2", b""))
    assert await session.children("/t") == ["a", "b"]
    assert await session.children("/t/b") == ["1", "2"]
    assert await session.children("/t/a") == await session.children("/no") == []
    await session.commit(Delete("/t/b/1", 0))
    assert await session.children("/t/b") == ["2"]
    assert await session.get("/t") is None, "it has keys below it and no value"


async def test_a_key_has_a_value_or_keys_below_it(session):
    await session.commit(Create("/a/b", b""), Create("/c", b""))
    with pytest.raises((Invalid, Conflict)):
        await session.commit(Create("/a", b""))
    with pytest.raises((Invalid, Conflict)):
        await session.commit(Create("/c/d", b""))
    assert await session.children("/c") == []


async def test_created_grows_with_every_life_of_a_key(session):
    seen = []
    for n in range(3):
        await session.commit(Create("/a", b""))
        await session.commit(Create(f"/b{n}", b""))
        seen += [(await session.get("/a")).created, (await session.get(f"/b{n}")).created]
        await session.commit(Delete("/a", 0))
    assert seen == sorted(set(seen))


async def test_of_many_that_compare_and_set_at_once_each_change_counts_once(coordination):
    sessions = [await coordination.session() for _ in range(4)]
    await sessions[0].commit(Create("/n", b"0"))

    async def add_one(session: Session) -> None:
        while True:
            found = await session.get("/n")
            try:
                return await session.commit(Put("/n", b"%d" % (int(found.value) + 1), found.version))
            except Conflict:
                continue

    await in_time(asyncio.gather(*(add_one(sessions[n % 4]) for n in range(24))))
    assert await value_of(sessions[1], "/n") == b"24"


async def test_what_one_session_commits_the_others_wait_for(coordination):
    one, other = await coordination.session(), await coordination.session()
    waiting = asyncio.create_task(other.wait_for_change("/a", None))
    assert await still_waits(waiting)
    await one.commit(Create("/a", b"1"))
    seen = await in_time(waiting)
    assert seen.value == b"1"
    waiting = asyncio.create_task(other.wait_for_change("/a", seen))
    assert await still_waits(waiting)
    await one.commit(Create("/other", b""))
    assert await still_waits(waiting)
    await one.commit(Put("/a", b"2", 0))
    seen = await in_time(waiting)
    assert (seen.value, seen.version) == (b"2", 1)
    waiting = asyncio.create_task(other.wait_for_change("/a", seen))
    await one.commit(Delete("/a", 1))
    assert await in_time(waiting) is None


async def test_a_change_before_the_wait_is_returned_at_once(session):
    await session.commit(Create("/a", b"1"))
    seen = await session.get("/a")
    await session.commit(Put("/a", b"2", 0))
    assert (await in_time(session.wait_for_change("/a", seen))).value == b"2"


async def test_names_that_come_and_go_are_waited_for(coordination):
    one, other = await coordination.session(), await coordination.session()
    waiting = asyncio.create_task(other.wait_for_children("/nodes", []))
    assert await still_waits(waiting)
    await one.commit(Create("/nodes/1", b"", is_ephemeral=True))
    assert await in_time(waiting) == ["1"]
    waiting = asyncio.create_task(other.wait_for_children("/nodes", ["1"]))
    assert await still_waits(waiting)
    await coordination.expire(one)
    assert await in_time(waiting) == []


async def test_a_registration_is_there_for_all_until_its_session_ends(coordination):
    one, other = await coordination.session(), await coordination.session()
    await one.commit(Create("/nodes/1", b"here", is_ephemeral=True), Create("/stays", b""))
    first = await other.get("/nodes/1")
    assert first.value == b"here"
    with pytest.raises(Conflict):
        await other.commit(Create("/nodes/1", b"", is_ephemeral=True))
    await one.close()
    assert await other.get("/nodes/1") is None
    assert await other.get("/stays") is not None
    await other.commit(Create("/nodes/1", b"again", is_ephemeral=True))
    assert (await other.get("/nodes/1")).created > first.created


async def test_an_ended_session_is_reported_and_unusable(coordination):
    session, other = await coordination.session(), await coordination.session()
    await session.commit(Create("/r", b"", is_ephemeral=True))
    assert session.state is State.CONNECTED
    ended = asyncio.create_task(lost(session))
    watching = asyncio.create_task(session.wait_for_change("/r", await session.get("/r")))
    await coordination.expire(session)
    await in_time(ended)
    assert session.state is State.LOST
    for call in (session.get("/r"), session.children("/r"), session.commit(Create("/x", b"")), watching):
        with pytest.raises(SessionLost):
            await in_time(call)
    assert await in_time(other.wait_for_change("/r", await other.get("/r"))) is None if await other.get("/r") else True
    assert await other.get("/x") is None


async def test_closing_twice_is_fine(session):
    await session.close()
    await session.close()


async def test_an_election_has_one_winner_and_each_winner_an_epoch(coordination):
    one, other = await coordination.session(), await coordination.session()
    first, second = Latch(one, "/controller", "1"), Latch(other, "/controller", "2")
    assert await in_time(first.acquire()) == 1
    waiting = asyncio.create_task(second.acquire())
    assert await still_waits(waiting)
    await first.release()
    assert await in_time(waiting) == 2
    await first.release()
    assert await value_of(one, "/controller/holder") == b"2", "what it does not hold it cannot give up"


async def test_a_holder_that_was_lost_is_shut_out_by_its_successors_epoch(coordination):
    one, other = await coordination.session(), await coordination.session()
    first, second = Latch(one, "/controller", "1"), Latch(other, "/controller", "2")
    await in_time(first.acquire())
    old = first.fence()
    await one.commit(old, Create("/leaders", b"by 1"))
    waiting = asyncio.create_task(second.acquire())
    await coordination.expire(one)
    assert await in_time(waiting) == 2
    third = await coordination.session()
    with pytest.raises(Conflict):
        await third.commit(old, Put("/leaders", b"by 1 again", 0))
    await third.commit(second.fence(), Put("/leaders", b"by 2", 0))


async def test_blocks_of_producer_ids_do_not_overlap(coordination):
    given = [ProducerIds(StoredBlocks(await coordination.session())) for _ in range(3)]
    ids = await in_time(asyncio.gather(*(given[n % 3].take() for n in range(30))))
    assert len(set(ids)) == 30
    assert {one // BLOCK_IDS for one in ids} == {0, 1, 2}
    assert not await given[0].is_allocated(-1)
    assert await given[0].is_allocated(3 * BLOCK_IDS - 1)
    assert not await given[0].is_allocated(3 * BLOCK_IDS)
    await given[1]._blocks.take()
    assert await given[0].is_allocated(3 * BLOCK_IDS)
