"""Keeps the rules and tokens of a node equal to those of the coordination store, and makes changes there.

The process that has the session has one: the node's own, or the supervisor of its shards. Invariants: what is published
is the state that the store has, whichever call has read it; the last one holds while the store does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.runtime.tasks import keep_running
from gateway.access.state import AccessState, Change
from gateway.access.store import AccessStore
from replication.cluster.store_calls import with_store_timeout
from replication.coordination.interface import Session, SessionLost

RETRY_S = 0.2  # until a new session: changes are to be live within two seconds


class AccessKeeper:
    """`session` returns the present session; it raises SessionLost without one. `publish` takes each new state."""

    def __init__(self, session: Callable[[], Session], publish: Callable[[AccessState], Awaitable[None]]) -> None:
        self._session = session
        self._publish = publish
        self._store = AccessStore()
        self._publishing = asyncio.Lock()
        self._published: AccessState | None = None
        self._following: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"AccessKeeper({self._store})"

    async def start(self) -> None:
        """Publishes what the store has, and then follows it. Raises EngineError of the store."""
        await self._store.read(self._session())
        await self._publish_present()
        self._following = keep_running(self._follow, "following the rules and tokens")

    def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()

    async def change(self, change: Change) -> int:
        """Makes a change, and returns its generation once this node serves it. Raises Problem, EngineError."""
        session = self._session()
        state = await with_store_timeout(session, lambda: self._store.change(session, change))
        await self._publish_present()
        return state.generation

    async def _follow(self) -> None:
        while True:
            try:
                await self._store.follow(self._session(), self._publish_present)
            except SessionLost:
                await asyncio.sleep(RETRY_S)

    async def _publish_present(self) -> None:
        async with self._publishing:
            state = self._store.state
            if state is not self._published:
                await self._publish(state)
                self._published = state
