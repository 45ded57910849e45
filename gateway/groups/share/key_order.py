"""Order by key within one partition: a record may be delivered when no earlier unfinished one has its key.

The keys of the window are read in the order of the log. They are not stored: after a failover they are read again.
"""

from __future__ import annotations

from collections import deque

from gateway.groups.share.values import KeyRun
from gateway.groups.share.window import State, Window


class KeyOrder:
    """`known_end`: the keys below it are known. Each queue has the unfinished offsets of a key, in order."""

    def __init__(self, start: int) -> None:
        self.known_end = start
        self._hashes: dict[int, int] = {}
        self._queues: dict[int, deque[int]] = {}

    def __repr__(self) -> str:
        return f"KeyOrder(known_end={self.known_end}, keys={len(self._queues)})"

    def learn(self, run: KeyRun, window: Window) -> None:
        """Adds the keys of the next records. Drops other ranges than the next one."""
        if run.first != self.known_end:
            return
        self.known_end = run.end
        unfinished = {
            offset
            for part in window.find(run.first, run.end - 1)
            if part.state in (State.AVAILABLE, State.ACQUIRED)
            for offset in range(max(part.first, run.first), min(part.last, run.end - 1) + 1)
        }
        for offset, key in zip(run.offsets, run.hashes, strict=True):
            if key and offset in unfinished:
                self._hashes[offset] = key
                self._queues.setdefault(key, deque()).append(offset)

    def is_free(self, offset: int) -> bool:
        """Returns whether no earlier unfinished record has the key of this one."""
        key = self._hashes.get(offset)
        return offset < self.known_end and (key is None or self._queues[key][0] == offset)

    def blocker(self, offset: int) -> int | None:
        """Returns the earlier unfinished record with the key of this one."""
        key = self._hashes.get(offset)
        return None if key is None or self._queues[key][0] == offset else self._queues[key][0]

    def finish(self, first: int, last: int) -> bool:
        """Removes finished records. Returns whether others waited for them."""
        has_freed = False
        for offset in range(first, last + 1):
            key = self._hashes.pop(offset, None)
            if key is None:
                continue
            queue = self._queues[key]
            if queue[0] == offset:
                queue.popleft()
                has_freed |= bool(queue)
            else:
                queue.remove(offset)
            if not queue:
                del self._queues[key]
        return has_freed
