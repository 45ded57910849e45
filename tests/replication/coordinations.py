"""Each implementation of the coordination store for the contract tests: open sessions, expire one by force."""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from engine.runtime.disk import RealDisk
from loadtests.cluster.zookeeper import START_S
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Session, State
from replication.coordination.zookeeper import Address, ZookeeperSession

SESSION_TIMEOUT_MS = 20_000  # allows for a busy machine


class Coordination(ABC):
    """A separate store for each test."""

    @abstractmethod
    async def session(self) -> Session:
        """Open a session, as a separate node does."""

    @abstractmethod
    async def expire(self, session: Session) -> None:
        """Expire the session on the store's side, as after a long pause."""


class Embedded(Coordination):
    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    async def session(self) -> Session:
        return self._store.session()

    async def expire(self, session: Session) -> None:
        await session.close()


class Zookeeper(Coordination):
    def __init__(self, port: int, root: str) -> None:
        self._address = Address(f"127.0.0.1:{port}", root)
        self._sessions: list[ZookeeperSession] = []

    async def session(self) -> Session:
        session = await ZookeeperSession.open(
            self._address, session_timeout_ms=SESSION_TIMEOUT_MS, new_id=lambda: uuid.uuid4().hex, start_s=START_S
        )
        self._sessions.append(session)
        return session

    async def expire(self, session: Session) -> None:
        """Have ZooKeeper expire it: a second client takes over the session and closes it.

        The first one reconnects at once. On a busy machine it may have its session back before the close: then again.
        """
        assert isinstance(session, ZookeeperSession)
        client_id = session._client.client_id
        async with asyncio.timeout(START_S):
            while session.state is not State.LOST:
                await asyncio.to_thread(self._take_over, client_id)
                with suppress(TimeoutError):
                    await asyncio.wait_for(lost(session), 1)

    def _take_over(self, client_id: tuple[int, bytes]) -> None:
        usurper = KazooClient(self._address.hosts, client_id=client_id, timeout=SESSION_TIMEOUT_MS / 1000)
        with suppress(KazooTimeoutError):  # `start` raises it too if the connection is lost as soon as it is there
            usurper.start(START_S)
        usurper.stop()
        usurper.close()

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()


async def lost(session: Session) -> None:
    state = session.state
    while state is not State.LOST:
        state = await session.wait_for_state(state)


@asynccontextmanager
async def zookeeper(path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Coordination]:
    made = Zookeeper(request.getfixturevalue("zookeeper_server").port, f"/{path.name}")
    yield made
    await made.close()


@asynccontextmanager
async def embedded(path: Path, _: pytest.FixtureRequest) -> AsyncIterator[Coordination]:
    with ThreadPoolExecutor(1) as executor:
        store = await EmbeddedStore.open(RealDisk(), str(path / "coordination"), executor)
        yield Embedded(store)
        await store.close()


STORES = {"embedded": embedded, "zookeeper": zookeeper}
