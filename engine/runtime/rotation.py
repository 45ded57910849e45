"""A queue of several clients that serves them in rotation."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Rotation(Generic[T]):
    """A queue for each client. Takes items of the clients in rotation, and those of one client in their order."""

    def __init__(self) -> None:
        self.count = 0
        self._queues: dict[int, deque[T]] = {}

    def __repr__(self) -> str:
        return f"Rotation({self.count} of {len(self._queues)} clients)"

    def __contains__(self, client: int) -> bool:
        return client in self._queues

    def put(self, client: int, item: T) -> None:
        queue = self._queues.get(client)
        if queue is None:
            queue = self._queues[client] = deque()
        queue.append(item)
        self.count += 1

    def peek(self) -> T:
        """Returns the item that `take` takes."""
        return next(iter(self._queues.values()))[0]

    def take(self) -> tuple[int, T]:
        """Takes an item, and returns it with its client, which is now behind the others."""
        client, queue = next(iter(self._queues.items()))
        del self._queues[client]
        item = queue.popleft()
        self.count -= 1
        if queue:
            self._queues[client] = queue
        return client, item

    def remove(self, client: int, item: T) -> None:
        """Removes an item. No-op if it was taken."""
        queue = self._queues.get(client)
        if queue is not None and item in queue:
            queue.remove(item)
            self.count -= 1
            if not queue:
                del self._queues[client]
