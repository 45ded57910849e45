"""A real disk that counts its calls by name, and its syncs by path."""

import os
import threading
from collections import Counter
from collections.abc import Callable

from engine.format import paths
from engine.runtime.disk import RealDisk

_COUNTING = threading.Lock()
SYNCS = ("fdatasync", "fsync_dir")


class CountingDisk(RealDisk):
    """`calls` since the last reset.

    Calls `on_sync` after each sync and `on_remove` before each rmdir, in the thread of the operation.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.synced: Counter[str] = Counter()
        self.listed: set[str] = set()
        self.on_sync: Callable[[], None] | None = None
        self.on_remove: Callable[[], object] | None = None

    def __getattribute__(self, name: str) -> object:
        if name in _CALLS:
            with _COUNTING:
                self.calls[name] += 1
        return super().__getattribute__(name)

    @property
    def syncs(self) -> int:
        return sum(self.calls[name] for name in SYNCS)

    @property
    def topic_syncs(self) -> int:
        """Return the syncs without those of checkpoints, whose number depends on how long a test takes."""
        return sum(count for path, count in self.synced.items() if f"/{paths.TOPICS}" in path)

    def reset(self) -> None:
        self.calls.clear()
        self.synced.clear()
        self.listed.clear()

    def listdir(self, path: str) -> list[str]:
        self.listed.add(path)
        return super().listdir(path)

    def fdatasync(self, handle: int) -> None:
        super().fdatasync(handle)
        self._synced(os.readlink(f"/proc/self/fd/{handle}"))

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self._synced(path)

    def rmdir(self, path: str) -> None:
        if self.on_remove is not None:
            self.on_remove()
        super().rmdir(path)

    def _synced(self, path: str) -> None:
        with _COUNTING:
            self.synced[path] += 1
        if self.on_sync is not None:
            self.on_sync()


_CALLS = frozenset(name for name in RealDisk.__dict__ if not name.startswith("_"))
