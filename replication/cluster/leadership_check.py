"""Confirms with the coordination store that a replica leads, before it gives an answer that a client takes as final.

A refusal that is not retryable is right only if no other replica has been elected since, and no clock can tell that: a
session may end early, a controller may move the leadership, and a virtual machine that its host pauses sees no time
pass. So the leader asks the store, and the store's answer must be to a question that was sent after the request came.
This file does not decide which refusals are final; the callers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from engine.partition.partition import Partition
from engine.runtime.tasks import in_background
from replication import refusals
from replication.cluster.store_timeout import StoreTimeout
from replication.cores.leader import Leader
from replication.cores.partition_state import VersionedState
from replication.cores.role import Role

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Confirmable(Protocol):
    """What is asked of a replica: replication.replica.replica.Replica."""

    partition: Partition
    role: Role
    state: VersionedState | None

    @property
    def core(self) -> Leader | None: ...
    @property
    def host(self) -> Any: ...


async def confirm_leading(replica: Confirmable) -> None:
    """Return once the store has confirmed, after this call, that the replica leads. Raises NotLeader, NoLeader.

    A leader whose last contact with the store is older than its session's timeout is refused at once.
    """
    core, name = replica.core, replica.partition.name
    if core is None:
        raise refusals.not_leading(name, replica.role, is_known=replica.state is not None)
    is_confirmed = replica.host.has_contact and await replica.host.confirms(replica, core.leader_epoch)
    if not is_confirmed or replica.core is not core:
        raise refusals.without_contact(name)


class Gathering(Generic[K, V]):
    """Asks one question at a time; whatever is asked meanwhile is part of the next question.

    Invariant: an answer comes from a question that was sent after `answer` was called. So many refusals at once cost
    the store one question, and refusals without end a bounded number of questions a second.
    """

    def __init__(self, ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]], pause_s: float = 0.0) -> None:
        self._ask = ask
        self._pause_s = pause_s
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._asked: dict[K, asyncio.Future[V | None]] = {}  # what the question under way is for
        self._asking: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Nobody waits for an answer, and the pause after the last one is over."""
        return self._asking is None or self._asking.done()

    def __repr__(self) -> str:
        return f"Gathering(waiting={len(self._waiting)})"

    async def answer(self, key: K) -> V | None:
        """The answer for this key; None if the answer has none for it. Raises what the asking raises.

        Raises StoreTimeout when the asking is cancelled.
        """
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(_look_at)
        if self.is_idle:
            self._asking = in_background(self._ask_all(), "confirming leaders")
        return await asyncio.shield(future)  # a caller that leaves takes nothing from the others

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                self._asked, self._waiting = self._waiting, {}
                try:
                    answers = await self._ask(list(self._asked))
                except Exception as error:  # the callers report it, each of them
                    for future in self._asked.values():
                        future.set_exception(error)
                else:
                    for key, future in self._asked.items():
                        future.set_result(answers.get(key))
                await asyncio.sleep(self._pause_s)
        finally:  # a cancel, perhaps from within: nobody may wait for ever
            for future in (*self._asked.values(), *self._waiting.values()):
                if not future.done():
                    future.set_exception(StoreTimeout("the question to the coordination store was cut short"))
            self._asked, self._waiting = {}, {}


def _look_at(future: asyncio.Future[V | None]) -> None:
    """An answer that every caller has stopped waiting for is no warning."""
    if not future.cancelled():
        future.exception()
