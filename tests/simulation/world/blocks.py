"""A node's changes of partition states: read-modify-write of the block, until it is stored or another change came
first.

Does what replication/cluster/partition_state_store.py does over a real session, in virtual time. A change names the
partition_epoch that it follows. The block's own version only guards against writers of other partitions in it; on such
a conflict the change is retried. Invariant: one commit is in flight at a time, so the changes of one partition are
judged in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replication.cluster.values import block_from_bytes, block_to_bytes
from replication.coordination.interface import Check, Put
from replication.cores.partition_state import PartitionState, VersionedState
from tests.simulation.world.store import EPOCH, Snapshot, block_key_of, number_of

if TYPE_CHECKING:
    from tests.simulation.world.node import Life


@dataclass
class StateWrite:
    """`tag`: the proposer, a leader or a controller. `fence`: the latch's version, for a controller."""

    partition: str
    partition_epoch: int
    state: PartitionState
    tag: object
    fence: int | None = None

    @property
    def after(self) -> VersionedState:
        return VersionedState(self.state, self.partition_epoch + 1)


class Blocks:
    """The changes of one connection. After a reconnection a read shows what became of changes in flight."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._waiting: deque[StateWrite] = deque()
        self._is_committing = False

    def write(self, write: StateWrite, snapshot: Snapshot) -> None:
        self._waiting.append(write)
        self._go_on(snapshot)

    def forget(self) -> None:
        """Drop everything in flight: a new connection gets no answers of the old one."""
        self._waiting.clear()
        self._is_committing = False

    def on_committed(self, write: StateWrite, snapshot: Snapshot) -> None:
        self._is_committing = False
        self._life.on_written(write.tag, write.partition, write.after)
        self._go_on(snapshot)

    def on_conflict(self, write: StateWrite, snapshot: Snapshot) -> None:
        """Handle a conflict. 1. The fence is broken: there is another controller. 2. Judge the change against the
        current state, then retry.
        """
        self._is_committing = False
        fence = snapshot.keys.get(EPOCH)
        if write.fence is not None and (fence is None or fence.version != write.fence):
            self._refuse(write, snapshot)
        else:
            self._life.world.count("conflicts within a block")
            self._waiting.appendleft(write)
        self._go_on(snapshot)

    def _go_on(self, snapshot: Snapshot) -> None:
        while self._waiting and not self._is_committing:
            write = self._waiting.popleft()
            if write.partition not in snapshot.partitions:  # of a deleted topic
                continue
            if snapshot.partitions[write.partition].partition_epoch != write.partition_epoch:
                self._refuse(write, snapshot)
                continue
            self._is_committing = True
            self._life.commit([*self._fence(write), self._put(write, snapshot)], write)

    def _refuse(self, write: StateWrite, snapshot: Snapshot) -> None:
        self._life.world.count("writes refused")
        if write.partition in snapshot.partitions:
            self._life.on_rejected(write.tag, write.partition, snapshot.partitions[write.partition])

    def _fence(self, write: StateWrite) -> list[Check]:
        return [] if write.fence is None else [Check(EPOCH, write.fence)]

    def _put(self, write: StateWrite, snapshot: Snapshot) -> Put:
        number, key = number_of(write.partition), block_key_of(write.partition)
        seen = snapshot.keys[key]
        states = {**block_from_bytes(key, seen.value), number: write.after}
        return Put(key, block_to_bytes(states), seen.version)
