"""Keeps the rules and tokens of a node equal to those of the coordination store, and makes changes there.

The process that has the session has one: the node's own, or the supervisor of its shards. Invariants: what is published
is the state that the store has, whichever call has read it; the last one holds while the store does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from engine.errors import Corrupt
from engine.runtime.tasks import keep_running
from gateway.access.state import AccessState, Change
from gateway.access.store import AccessStore
from replication.cluster.store_calls import with_store_timeout
from replication.coordination.interface import Session, SessionLost

RETRY_S = 0.2  # until a new session: changes are to be live within two seconds
CONFIRM_S = 5.0  # the age of the rules is known to this; one reading of a small key


class AccessKeeper:
    """`session` returns the present session; it raises SessionLost without one. `publish` takes each new state."""

    def __init__(self, session: Callable[[], Session], publish: Callable[[AccessState], Awaitable[None]]) -> None:
        self._session = session
        self._publish = publish
        self._store = AccessStore()
        self._publishing = asyncio.Lock()
        self._published: AccessState | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"AccessKeeper({self._store})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        if self._store.confirmed_at is not None:
            text = "Seconds since the coordination store has confirmed the rules and tokens; it is asked every 5 s"
            age_s = asyncio.get_running_loop().time() - self._store.confirmed_at
            yield "penstock_access_age_seconds", text, age_s

    async def start(self) -> None:
        """Publishes what the store has, and then follows it. Raises EngineError of the store."""
        await self._store.read(self._session())
        await self._publish_present()
        self._tasks = [
            keep_running(self._follow, "following the rules and tokens"),
            keep_running(self._confirm, "confirming the rules and tokens"),
        ]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

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

    async def _confirm(self) -> None:
        while True:
            await asyncio.sleep(CONFIRM_S)
            with suppress(SessionLost, Corrupt):  # the follower opens another one, and logs what is not understood
                await self._store.read(self._session())
                await self._publish_present()

    async def _publish_present(self) -> None:
        async with self._publishing:
            state = self._store.state
            if state is not self._published:
                await self._publish(state)
                self._published = state
