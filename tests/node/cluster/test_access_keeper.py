"""The rules that a node serves are those that the store has, whichever session or call has read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from engine.runtime.disk import RealDisk
from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import AccessState, AddRule, Change
from gateway.access.store import HEAD, AccessStore
from gateway.http.rights import Operation, Resource
from node.cluster.access_keeper import AccessKeeper
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Create, Delete, Session, SessionLost, State

PROMPT_S = 10.0


def adding(rule_id: str) -> Change:
    rule = Rule(
        id=rule_id,
        effect=Effect.ALLOW,
        principals=("*",),
        operations=(Operation.READ,),
        resource=Resource.TOPIC,
        pattern=Pattern.ALL,
    )
    return Change(what=AddRule(rule), author=None, now_ms=0)


class Served:
    """What a keeper has published."""

    def __init__(self, keeper_session: Session) -> None:
        self.session = keeper_session
        self.states: list[AccessState] = []
        self.failures = 0
        self.keeper = AccessKeeper(self._session, self._publish)

    def _session(self) -> Session:
        if self.session.state is State.LOST:
            raise SessionLost("it is over")
        return self.session

    async def _publish(self, state: AccessState) -> None:
        if self.failures:
            self.failures -= 1
            raise SessionLost("a shard could not be called")
        self.states.append(state)

    async def until(self, generation: int) -> None:
        async with asyncio.timeout(PROMPT_S):
            while self.states[-1].generation != generation:
                await asyncio.sleep(0.01)


@pytest.fixture
async def store(tmp_path) -> AsyncIterator[EmbeddedStore]:
    with ThreadPoolExecutor(1) as executor:
        store = await EmbeddedStore.open(RealDisk(), str(tmp_path / "coordination"), executor)
        yield store
        await store.close()


@pytest.fixture
async def served(store) -> AsyncIterator[Served]:
    served = Served(store.session())
    await served.keeper.start()
    yield served
    served.keeper.stop()


async def test_what_changed_without_a_session_is_served_with_the_next_one(store, served) -> None:
    await served.session.close()
    await AccessStore().change(store.session(), adding("other"))
    served.session = store.session()
    await served.until(1)


async def test_a_state_that_another_call_has_read_is_served(store, served) -> None:
    """A change is refused, and has read what another node changed meanwhile."""
    await served.keeper.change(adding("first"))
    await served.session.close()  # the follower sees nothing
    await AccessStore().change(store.session(), adding("other"))
    served.session = store.session()
    await served.keeper._store.read(served.session)  # as a change does that is refused
    await served.until(2)


async def test_a_state_that_could_not_be_published_is_served_with_the_next_round(served) -> None:
    served.failures = 2  # that of the change, and that of the follower
    with suppress(SessionLost):
        await served.keeper.change(adding("first"))
    await served.until(1)


def age_s(served: Served) -> float:
    ((_, _, age),) = served.keeper.gauges()
    return age


async def test_the_age_of_the_rules_grows_only_while_the_store_confirms_nothing(store, monkeypatch) -> None:
    monkeypatch.setattr("node.cluster.access_keeper.CONFIRM_S", 0.02)
    served = Served(store.session())
    assert list(served.keeper.gauges()) == [], "nothing is read yet"
    await served.keeper.start()
    await asyncio.sleep(0.3)
    assert age_s(served) < 0.2
    await served.session.close()
    await asyncio.sleep(0.3)
    assert age_s(served) > 0.2
    served.session = store.session()
    async with asyncio.timeout(PROMPT_S):
        while age_s(served) > 0.1:
            await asyncio.sleep(0.01)
    served.keeper.stop()


async def test_a_store_that_was_restored_is_served_with_its_lower_generation(store, served) -> None:
    for rule_id in ("first", "second"):
        await served.keeper.change(adding(rule_id))
    session = store.session()
    head = await session.get_latest(HEAD)
    assert head is not None
    await session.commit(Delete(HEAD, head.version))
    await session.commit(Create(HEAD, b'{"generation": 1, "blocks": {}}'))
    await served.until(1)
    assert served.states[-1].rules == ()
