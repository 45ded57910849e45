"""Calls to the coordination store: a timeout for a store that does not answer, coalescing of equal questions, and
heartbeats.

The timeout is for requests of clients. The node's own work waits indefinitely and continues when the store is back.
Invariant: an error is definite only if nothing was started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from engine.errors import EngineError
from engine.runtime.clock import Clock
from engine.runtime.tasks import in_background, keep_running, start_task
from replication.cluster.keys import CLUSTER
from replication.coordination.interface import CommitUnknown, Session, SessionLost, State, Versioned

PINGS = 6  # per session timeout; acks=1 stops after two thirds of it without an answer
SILENT_S = 8.0  # ZooKeeper's own leader election takes less, and clients wait 30 s for an answer

log = logging.getLogger("penstock.cluster")

Result = TypeVar("Result")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class StoreTimeout(EngineError):
    """The coordination store does not answer. Nothing was started; try again once it answers."""

    code = "overloaded"
    retryable = True


async def with_store_timeout(
    session: Session, work: Callable[[], Awaitable[Result]], *, changes: bool = True, silent_s: float = SILENT_S
) -> Result:
    """Returns the work's result. Raises StoreTimeout if it was not started or changes nothing, else CommitUnknown."""
    silence = start_task(_silence(session, silent_s))
    connected = start_task(_wait_resumed(session))
    working: asyncio.Future[Result] | None = None
    try:
        await asyncio.wait([connected, silence], return_when=asyncio.FIRST_COMPLETED)
        if not silence.done():
            working = start_task(work())
            both: list[asyncio.Future[Any]] = [working, silence]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
    finally:
        for task in (silence, connected, working):
            if task is not None:
                task.cancel()
    text = f"the coordination store has not answered for {silent_s:g} s"
    if working is None or not changes:
        raise StoreTimeout(text, hint="check ZooKeeper, then retry")
    raise CommitUnknown(f"{text}; the outcome is unknown", hint="check ZooKeeper, read the current state, then retry")


async def _wait_resumed(session: Session) -> None:
    while session.state is State.SUSPENDED:
        await session.wait_for_state(State.SUSPENDED)


async def _silence(session: Session, silent_s: float) -> None:
    """Returns once the store has not answered for `silent_s`. Never returns for a lost session: then the work fails
    itself.
    """
    while True:
        if session.state is State.CONNECTED:
            await session.wait_for_state(State.CONNECTED)
            continue
        if session.state is State.LOST:
            await asyncio.Event().wait()
        try:
            async with asyncio.timeout(silent_s):
                await _wait_resumed(session)
        except TimeoutError:
            return


class Coalescer(Generic[K, V]):
    """Asks one question at a time; questions asked meanwhile are part of the next one (single flight).

    Invariant: an answer comes from a question that was sent after the call of `answer`. Any number of concurrent
    callers costs the store one question, and any rate a bounded number per second.
    """

    def __init__(self, ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]], pause_s: float = 0.0) -> None:
        self._ask = ask
        self._pause_s = pause_s
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._asked: dict[K, asyncio.Future[V | None]] = {}  # the question in flight
        self._asking: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if no caller waits for an answer and the pause after the last one is over."""
        return self._asking is None or self._asking.done()

    def __repr__(self) -> str:
        return f"Coalescer(waiting={len(self._waiting)})"

    async def answer(self, key: K) -> V | None:
        """Returns the answer for this key, None if there is none. Raises the error of the question, or StoreTimeout if
        it is cancelled.
        """
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(_retrieve_exception)
        if self.is_idle:
            self._asking = in_background(self._read_all(), "confirming leaders")
        return await asyncio.shield(future)  # a cancelled caller does not cancel the others

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                self._asked, self._waiting = self._waiting, {}
                try:
                    answers = await self._ask(list(self._asked))
                except Exception as error:  # each caller reports it
                    for future in self._asked.values():
                        future.set_exception(error)
                else:
                    for key, future in self._asked.items():
                        future.set_result(answers.get(key))
                await asyncio.sleep(self._pause_s)
        finally:  # also if cancelled: no caller may wait indefinitely
            for future in (*self._asked.values(), *self._waiting.values()):
                if not future.done():
                    future.set_exception(StoreTimeout("the read of the coordination store was cancelled"))
            self._asked, self._waiting = {}, {}


def _retrieve_exception(future: asyncio.Future[V | None]) -> None:
    """Marks the exception as retrieved if every caller has been cancelled."""
    if not future.cancelled():
        future.exception()


class Heartbeat:
    """Reads the cluster's key at an interval, and reports when the last answered request was sent, and what it read."""

    def __init__(
        self,
        session: Session,
        timeout_s: float,
        clock: Clock,
        on_contact: Callable[[float], None],
        on_cluster: Callable[[Versioned | None], None],
    ) -> None:
        self.at = clock.boottime()  # the registration is sent after this, and answered before the value is read
        self._session = session
        self._timeout_s = timeout_s
        self._clock = clock
        self._on_contact = on_contact
        self._on_cluster = on_cluster

    def __repr__(self) -> str:
        return f"Heartbeat(at={self.at})"

    async def run(self) -> None:
        """Sends heartbeats until the session is lost."""
        with suppress(SessionLost):
            while True:
                sent_at = self._clock.boottime()
                found = await self._session.get(CLUSTER)
                self.at = sent_at
                self._on_contact(sent_at)
                self._on_cluster(found)
                await asyncio.sleep(self._timeout_s / PINGS)


class SilenceWatch:
    """Logs a warning when the store has not answered for a session timeout, and a line when it answers again."""

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._at = clock.boottime()
        self._is_silent = False
        self._warned_at = 0.0
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"SilenceWatch(at={self._at}, is_silent={self._is_silent})"

    def on_contact(self, at: float) -> None:
        """Notes that the store has answered a request sent at this time, perhaps long ago.

        A silence ends with the answer to a request from after its warning. The late answer to an earlier one is as old
        as a silence after a moment, and would warn twice.
        """
        if self._is_silent and at > self._warned_at and self._clock.boottime() - at < self._timeout_s / 2:
            self._is_silent = False
            log.warning("the coordination store answers again")
        self._at = at

    def check(self) -> None:
        """Warn once per silence."""
        now = self._clock.boottime()
        silent_s = now - self._at
        if silent_s >= self._timeout_s and not self._is_silent:
            self._is_silent, self._warned_at = True, now
            text = (
                "the coordination store is silent: no leader is elected, no topic changes, and lost nodes stay unseen"
            )
            log.warning(text, extra={"silent_s": round(silent_s), "session_timeout_s": self._timeout_s})

    def start(self) -> None:
        self._watching = keep_running(self._run, "watching for silence of the store")

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._timeout_s / PINGS)
            self.check()
