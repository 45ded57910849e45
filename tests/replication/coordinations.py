"""Each implementation of the coordination store, as its contract's tests see it: open sessions, end one by force."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from engine.disk import RealDisk
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Session


class Coordination(ABC):
    """A store of its own for one test."""

    @abstractmethod
    async def session(self) -> Session:
        """As a node of its own would open it."""

    @abstractmethod
    async def expire(self, session: Session) -> None:
        """The session ends without its node's doing, as after a long pause."""


class Embedded(Coordination):
    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    async def session(self) -> Session:
        return self._store.session()

    async def expire(self, session: Session) -> None:
        await session.close()


@asynccontextmanager
async def embedded(path: Path) -> AsyncIterator[Coordination]:
    with ThreadPoolExecutor(1) as executor:
        store = await EmbeddedStore.open(RealDisk(), str(path / "coordination"), executor)
        yield Embedded(store)
        await store.close()
