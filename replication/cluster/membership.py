"""One node's registration with its cluster: that it is alive, where it is reached, what it can vouch for.

A registration ends with its session. A node that comes back, as a process or with a new session, registers anew and is
another incarnation; that is what every election goes by. A registration of ours that a dead life has left is replaced
in the same commit; one that lies under our number with another data directory is somebody else, and is never touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from engine.errors import EngineError, StartRefused
from engine.runtime.clock import Clock
from engine.runtime.tasks import warn_of
from replication.cluster.keys import CLUSTER, node_key
from replication.cluster.registration_state import RegistrationState
from replication.cluster.values import NodeInfo, node_from_bytes, node_to_bytes
from replication.coordination.interface import (
    Conflict,
    Create,
    Delete,
    Operation,
    Put,
    Session,
    SessionLost,
    State,
    Unsure,
)
from replication.cores.partition_state import Member

PINGS = 6  # in the time of a session's timeout; acks=1 ends after two thirds of it without an answer


async def _nothing_kept(_: RegistrationState) -> None:
    """For a node that has no data directory yet."""


@dataclass(slots=True)
class OwnNode:
    """What a node says of itself. What only an open data directory and listeners know is set before it registers."""

    node_id: int
    url: str = ""
    rack: str = ""
    version: str = ""
    shard_urls: tuple[str, ...] = ()
    internal_urls: tuple[str, ...] = ()
    vouching: RegistrationState = field(default_factory=RegistrationState)
    keep_vouching: Callable[[RegistrationState], Awaitable[None]] = _nothing_kept


class Membership:
    """Of one session."""

    def __init__(self, session: Session, own: OwnNode, new_id: Callable[[], str], patience_s: float) -> None:
        self._session = session
        self._own = own
        self._new_id = new_id
        self._patience_s = patience_s
        self._key = node_key(own.node_id)
        self._is_leaving = False
        self._offline: frozenset[str] = frozenset()
        self._nonce = ""

    def __repr__(self) -> str:
        return f"Membership({self._key}, is_leaving={self._is_leaving}, offline={len(self._offline)})"

    @property
    def nonce(self) -> str:
        """What tells this registration from those of other lives of the node."""
        return self._nonce

    async def register(self, is_leaving: bool, offline: frozenset[str]) -> Member:
        """Raises StartRefused when the number is another node's, SessionLost, OSError of the data directory's disk."""
        self._is_leaving, self._offline = is_leaving, offline
        self._nonce = self._new_id()
        while True:
            operations = [*await self._replaced(), Create(self._key, self._value(), is_ephemeral=True)]
            with suppress(Conflict, Unsure):  # it shows in what is there now
                await self._session.commit(*operations)
            found = await self._session.get(self._key)
            if found is not None and node_from_bytes(self._key, found.value, found.created).nonce == self._nonce:
                await self._keep_vouching(self._own.vouching.registered(found.created))
                return Member(self._own.node_id, found.created)

    async def update(self, *, is_leaving: bool | None = None, offline: frozenset[str] | None = None) -> None:
        """Change what the registration says; it stays the same one. Raises SessionLost."""
        self._is_leaving = self._is_leaving if is_leaving is None else is_leaving
        self._offline = self._offline if offline is None else offline
        while True:
            found = await self._session.get(self._key)
            if found is None or found.value == self._value():
                return  # without a registration the session is over, too
            try:
                await self._session.commit(Put(self._key, self._value(), found.version))
            except (Conflict, Unsure):
                continue

    async def _replaced(self) -> list[Operation]:
        """What a dead life of ours has left. Somebody else's is given the time that a dead one's takes to go."""
        deadline = asyncio.get_running_loop().time() + self._patience_s
        while (found := await self._session.get(self._key)) is not None:
            other = node_from_bytes(self._key, found.value, found.created)
            if other.directory_id == self._own.vouching.directory_id:
                return [Delete(self._key, found.version)]
            try:
                async with asyncio.timeout_at(deadline):
                    await self._session.wait_for_change(self._key, found)
            except TimeoutError:
                raise StartRefused(
                    f"node id {self._own.node_id} is taken by the node at {other.url or 'an unknown address'}",
                    hint="give each node of a cluster its own --node-id",
                ) from None
        return []

    async def _keep_vouching(self, now: RegistrationState) -> None:
        """A node that comes back with another session has no news for its disk, which may be full."""
        if now != self._own.vouching:
            await self._own.keep_vouching(now)
            self._own.vouching = now

    def _value(self) -> bytes:
        own, vouching = self._own, self._own.vouching
        return node_to_bytes(
            NodeInfo(
                own.node_id,
                0,
                own.url,
                own.shard_urls,
                own.internal_urls,
                own.rack,
                own.version,
                own.vouching.directory_id,
                vouching.survives_from or 0,
                vouching.disk_from or 0,
                self._is_leaving,
                self._offline,
                self._nonce,
            )
        )


class Contact:
    """Asks the store at an interval and reports when the last question that it answered was sent."""

    def __init__(self, session: Session, timeout_s: float, clock: Clock, on_contact: Callable[[float], None]) -> None:
        self.at = clock.boottime()  # the registration is sent after this and is answered before anybody reads it
        self._session = session
        self._timeout_s = timeout_s
        self._clock = clock
        self._on_contact = on_contact

    def __repr__(self) -> str:
        return f"Contact(at={self.at})"

    async def run(self) -> None:
        """Until the session is lost, which its state tells as well."""
        with suppress(SessionLost):
            while True:
                sent_at = self._clock.boottime()
                await self._session.get(CLUSTER)
                self.at = sent_at
                self._on_contact(sent_at)
                await asyncio.sleep(self._timeout_s / PINGS)


async def until_lost(session: Session) -> None:
    """Wait for the end of a session."""
    state = session.state
    while state is not State.LOST:
        state = await session.wait_for_state(state)


async def close_session(session: Session) -> None:
    """Close a session; on error, log it. The registration then ends by its timeout or when the node registers again."""
    try:
        await session.close()
    except (EngineError, OSError) as error:
        warn_of("closing a session failed", error)
