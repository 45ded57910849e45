"""A real disk that counts its calls by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from engine.disk import RealDisk

SYNCS = ("fdatasync", "fsync_dir")


class CountingDisk(RealDisk):
    """`calls` since the last reset. `when_synced` is called after each sync, in whatever thread it was made."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.when_synced: Callable[[], None] | None = None

    def __getattribute__(self, name: str) -> object:
        if name in _CALLS:
            self.calls[name] += 1
        return super().__getattribute__(name)

    @property
    def syncs(self) -> int:
        return sum(self.calls[name] for name in SYNCS)

    def reset(self) -> None:
        self.calls.clear()

    def fdatasync(self, handle: int) -> None:
        super().fdatasync(handle)
        self._synced()

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self._synced()

    def _synced(self) -> None:
        if self.when_synced is not None:
            self.when_synced()


_CALLS = frozenset(name for name in RealDisk.__dict__ if not name.startswith("_"))
