"""A queue of several clients that serves their owners in rotation, and the clients of an owner in rotation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


def _itself(client: int) -> Hashable:
    return client


def _all(owner: Hashable) -> bool:
    return True


class Rotation(Generic[T]):
    """A queue for each client. `owner_of` names the owner of a client; by default each client is its own.

    A thousand clients of one owner have the part of one owner. Items of one client are taken in their order.
    """

    def __init__(self, owner_of: Callable[[int], Hashable] = _itself) -> None:
        self.count = 0
        self._owner_of = owner_of
        self._owners: dict[int, Hashable] = {}  # of each client that is queued: its owner may change meanwhile
        self._queues: dict[Hashable, dict[int, deque[T]]] = {}  # none is empty

    def __repr__(self) -> str:
        return f"Rotation({self.count} of {len(self._owners)} clients)"

    def __contains__(self, client: int) -> bool:
        return client in self._owners

    def put(self, client: int, item: T) -> None:
        owner = self._owners.get(client)
        if owner is None:
            owner = self._owners[client] = self._owner_of(client)
        queues = self._queues.get(owner)
        if queues is None:
            queues = self._queues[owner] = {}
        queue = queues.get(client)
        if queue is None:
            queue = queues[client] = deque()
        queue.append(item)
        self.count += 1

    def peek(self) -> T:
        """Returns the item that `take` takes."""
        return next(iter(next(iter(self._queues.values())).values()))[0]

    def take(self, may: Callable[[Hashable], bool] = _all) -> tuple[int, T] | None:
        """Takes an item of an owner that may have one, and returns it with its client; both go behind the others.

        Returns None if there is none.
        """
        owner = next(filter(may, self._queues), None)
        if owner is None:
            return None
        queues = self._queues.pop(owner)
        client = next(iter(queues))
        queue = queues.pop(client)
        item = queue.popleft()
        self.count -= 1
        if queue:
            queues[client] = queue
        else:
            del self._owners[client]
        if queues:
            self._queues[owner] = queues
        return client, item

    def remove(self, client: int, item: T) -> None:
        """Removes an item. No-op if it was taken."""
        owner = self._owners.get(client)
        if owner is None or item not in (queue := self._queues[owner][client]):
            return
        queue.remove(item)
        self.count -= 1
        if not queue:
            del self._owners[client], self._queues[owner][client]
            if not self._queues[owner]:
                del self._queues[owner]
