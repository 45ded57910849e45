"""Who of several holds an office, as the controller's: one at a time, and each holder with an epoch of its own.

Built on any Session. A holder that has lost its session may not know it yet; so whatever it commits carries `fence()`,
which a later holder's epoch makes a Conflict. Keys: `<key>/holder`, registered, and `<key>/epoch`, which stays.
"""

from __future__ import annotations

from replication.coordination.interface import Check, Conflict, Create, Delete, Put, Session


class Latch:
    """One candidate. `epoch` is that of the time it holds the office; None while it does not."""

    def __init__(self, session: Session, key: str, name: str) -> None:
        self._session = session
        self._holder = f"{key}/holder"
        self._epoch = f"{key}/epoch"
        self._name = name.encode()
        self._epoch_version = 0
        self.epoch: int | None = None

    def __repr__(self) -> str:
        return f"Latch({self._holder}, {self._name.decode()}, epoch={self.epoch})"

    async def acquire(self) -> int:
        """Wait until the office is free and this candidate has it; returns the epoch. Raises SessionLost."""
        while True:
            holder = await self._session.get(self._holder)
            if holder is None and await self._try():
                assert self.epoch is not None
                return self.epoch
            if holder is not None:
                await self._session.wait_for_change(self._holder, holder)

    async def release(self) -> None:
        """Give the office up; nothing if another one has it by now."""
        self.epoch = None
        holder = await self._session.get(self._holder)
        if holder is not None and holder.value == self._name:
            await self._session.commit(Delete(self._holder, holder.version))

    def fence(self) -> Check:
        """Goes into every commit of the holder: it fails once another one has taken over."""
        return Check(self._epoch, self._epoch_version)

    async def _try(self) -> bool:
        found = await self._session.get(self._epoch)
        epoch = 1 if found is None else int(found.value) + 1
        value = str(epoch).encode()
        counted = Create(self._epoch, value) if found is None else Put(self._epoch, value, found.version)
        try:
            await self._session.commit(Create(self._holder, self._name, is_ephemeral=True), counted)
        except Conflict:
            return False
        self.epoch, self._epoch_version = epoch, 0 if found is None else found.version + 1
        return True
