"""The coordination store of a standalone node or a single-node cluster: a journal in its data directory.

One process opens it: the only one of the node, or its supervisor. Sessions end with the process, so ephemeral keys are
kept in memory only. Commits are planned by tree.py, made durable by journal.py in a thread, one at a time, and applied
once durable: no read returns a value that a crash could lose.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from engine.errors import Corrupt, EngineError, StartRefused, StorageFull
from engine.runtime.disk import Disk
from engine.runtime.tasks import BackgroundTasks
from replication.coordination.interface import (
    Operation,
    SessionLost,
    State,
    Versioned,
    check_key,
    check_operations,
    parents_of,
)
from replication.coordination.journal import Journal, open_journal
from replication.coordination.tree import Tree

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("penstock.coordination")


class EmbeddedStore:
    """All keys of one journal, and the open sessions."""

    def __init__(self, journal: Journal, tree: Tree, executor: Executor) -> None:
        self._journal = journal
        self._tree = tree
        self._executor = executor
        self._committing = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}  # by watched key; a change at or below it wakes them
        self._background = BackgroundTasks()

    def __repr__(self) -> str:
        return f"EmbeddedStore({self._tree}, {self._journal})"

    @classmethod
    async def open(cls, disk: Disk, path: str, executor: Executor) -> EmbeddedStore:
        """Open the journal. Raises StartRefused."""
        try:
            loop = asyncio.get_running_loop()
            journal, tree = await loop.run_in_executor(executor, open_journal, disk, path)
        except Corrupt as error:
            raise StartRefused(error.detail, hint=error.hint) from None
        except OSError as error:
            raise StartRefused(f"{path} cannot be used: {error.strerror}", hint="check the disk") from None
        return cls(journal, tree, executor)

    def session(self) -> EmbeddedSession:
        return EmbeddedSession(self, self._tree, next(self._numbers))

    async def close(self) -> None:
        """Wait for commits in progress, then close the file."""
        async with self._committing:
            self._journal.close()

    async def commit(self, operations: Iterable[Operation], session: EmbeddedSession) -> None:
        await self._background.finish(self._commit(tuple(operations), session), "committing to the journal")

    async def end(self, session: EmbeddedSession) -> None:
        """Delete the ephemeral keys of a session. Its state is LOST already, so it can add none."""
        await self._background.finish(self._end(session), "ending a session")

    async def until(self, key: str, condition: Callable[[], T | None]) -> T:
        """Wait until the condition returns a value; it is evaluated after each change at or below the key."""
        while (found := condition()) is None:
            future = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, set()).add(future)
            try:
                await future
            finally:
                self._remove_waiter(key, future)
        return found

    def _remove_waiter(self, key: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[key]
        waiting.discard(future)
        if not waiting:
            del self._waiting[key]

    def _changed(self, keys: Iterable[str]) -> None:
        """Wakes only the waiters at or above the changed keys: a cluster has a watch on each of its keys."""
        for place in {one for key in keys for one in (key, *parents_of(key))}:
            self._wake(self._waiting.get(place, ()))

    def _wake(self, waiting: Iterable[asyncio.Future[None]]) -> None:
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _end(self, session: EmbeddedSession) -> None:
        async with self._committing:
            self._tree.ended(session.number)
            for waiting in self._waiting.values():
                self._wake(waiting)

    async def _commit(self, operations: tuple[Operation, ...], session: EmbeddedSession) -> None:
        async with self._committing:
            session.check_open()
            plan = self._tree.plan(operations, session.number)
            durable = plan.durable_changes(self._tree.entries)
            try:
                await self._in_thread(self._journal.append, plan.number, durable)
            except StorageFull:
                if not await self._has_moved_into_spare():
                    raise
                await self._in_thread(self._journal.append, plan.number, durable)
            self._tree.apply(plan)
            self._changed(plan.changes)
            await self._compact_if_due()

    async def _has_moved_into_spare(self) -> bool:
        try:
            entries = self._tree.durable_entries()
            return await self._in_thread(self._journal.compact_into_spare, self._tree.number, entries)
        except OSError:
            return False

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **_: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    async def _compact_if_due(self) -> None:
        live = self._tree.durable_entries()
        if not self._journal.is_due_to_compact(sum(len(key) + len(entry.value) for key, entry in live.items())):
            return
        try:
            await self._in_thread(self._journal.compact, self._tree.number, live)
        except (
            OSError,
            EngineError,
        ) as error:  # the commit is durable; the next one fails if the journal is lost
            log.warning("coordination journal not compacted", extra={"reason": str(error)})


class EmbeddedSession:
    """A session with an EmbeddedStore. Implements Session."""

    def __init__(self, store: EmbeddedStore, tree: Tree, number: int) -> None:
        self._store = store
        self._tree = tree
        self.number = number
        self.state = State.CONNECTED

    def __repr__(self) -> str:
        return f"EmbeddedSession({self.number}, {self.state.value})"

    async def get(self, key: str) -> Versioned | None:
        self._check(key)
        return self._tree.get(key)

    async def get_latest(self, key: str) -> Versioned | None:
        return await self.get(key)

    async def children(self, key: str) -> list[str]:
        self._check(key)
        return self._tree.children(key)

    async def commit(self, *operations: Operation) -> None:
        check_operations(operations)
        self.check_open()
        await self._store.commit(operations, self)

    async def wait_for_change(self, key: str, seen: Versioned | None) -> Versioned | None:
        self._check(key)
        (found,) = await self._store.until(key, lambda: _other(self._seen(key), seen))
        return found

    async def wait_for_children(self, key: str, seen: list[str]) -> list[str]:
        self._check(key)

        def names() -> list[str]:
            self.check_open()
            return self._tree.children(key)

        (found,) = await self._store.until(key, lambda: _other(names(), seen))
        return found

    async def wait_for_state(self, seen: State) -> State:
        (found,) = await self._store.until("", lambda: _other(self.state, seen))
        return found

    async def close(self) -> None:
        if self.state is not State.LOST:
            self.state = State.LOST
            await self._store.end(self)

    def _seen(self, key: str) -> Versioned | None:
        self.check_open()
        return self._tree.get(key)

    def _check(self, key: str) -> None:
        check_key(key)
        self.check_open()

    def check_open(self) -> None:
        """Check that the session is not over. Raises SessionLost."""
        if self.state is State.LOST:
            raise SessionLost("the session with the coordination store has ended")


def _other(found: T, seen: T) -> tuple[T] | None:
    return None if found == seen else (found,)
