"""A leader latch, as for the controller: one holder at a time, each with a greater epoch.

Works on any Session. A holder whose session is lost may not have noticed; so it adds `fence()` to every commit, which
conflicts once a later holder has raised the epoch. Keys: `<key>/holder`, ephemeral, and `<key>/epoch`, persistent.
"""

from __future__ import annotations

from replication.coordination.interface import Check, Conflict, Create, Delete, Put, Session


class Latch:
    """One candidate. `epoch` is set while it holds the latch."""

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
        """Wait until this candidate holds the latch; returns the epoch. Raises SessionLost."""
        while True:
            holder = await self._session.get(self._holder)
            if holder is None and await self._try():
                assert self.epoch is not None
                return self.epoch
            if holder is not None:
                await self._session.wait_for_change(self._holder, holder)

    async def release(self) -> None:
        """Release the latch; no-op if another candidate holds it."""
        self.epoch = None
        holder = await self._session.get(self._holder)
        if holder is not None and holder.value == self._name:
            await self._session.commit(Delete(self._holder, holder.version))

    def fence(self) -> Check:
        """Return a check for every commit of the holder: it conflicts once another candidate has taken over."""
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
