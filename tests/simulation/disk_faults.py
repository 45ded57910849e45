"""The faults of disks: lost, rolled back, slow, full, with failing syncs and with read errors. See faults.py."""

from __future__ import annotations

from collections.abc import Sequence

from engine.format.batch import HEADER_BYTES
from engine.testing.recorded_file import RecordedFile
from replication.cluster.keys import starts_key
from replication.cluster.start_counter import starts_from_bytes
from tests.simulation.world.node import Node
from tests.simulation.world.store import Store
from tests.simulation.world.store_client import DIRECTORY
from tests.simulation.world.world import World

CRC_FROM = 21  # a batch's checksum is of the bytes from here on


class DiskFaults:
    """The half of `Faults` that injects faults of disks; `Faults` inherits it."""

    world: World
    store: Store
    nodes: dict[int, Node]
    kinds: Sequence[str]
    is_over: bool
    _may_be_unclean: bool

    def __init__(self) -> None:
        self._disks_lost = 0
        self._unreadable: set[tuple[int, str]] = set()  # the replicas that have had read errors

    def lose_disk(self) -> None:
        node = self._node()
        if self._may_lose_disk():
            self._disks_lost += 1
            node.lose_disk()
            self._start_again(node)

    def roll_back(self) -> None:
        """Copy a node's disk, restart the node, and put the copy back some time later.

        As for a lost disk, only where two other replicas hold everything.
        """
        node = self._node()
        if node.copied is None and self._may_lose_disk():
            node.copy_disk()
            node.kill()
            self._start_again(node)
            self.world.after(self._while(), self._put_back, node)

    def _put_back(self, node: Node) -> None:
        """Put the copy back, if its counter shows that it is older: see `roll_back_at_once` for others."""
        is_older = self._start_number(node) > node.copied_at
        if is_older and self._may_lose_disk() and not self.is_over:
            self._disks_lost += 1
            node.roll_back()
            self._start_again(node)
        node.copied = None

    def roll_back_at_once(self) -> None:
        """Put a copy of the running node back that no counter shows to be older; only its followers can see it."""
        same = [node for node in self.nodes.values() if node.copied and self._start_number(node) == node.copied_at]
        if not same:
            self._node().copy_disk()
        elif self._may_lose_disk():
            node = self.world.random.choice(same)
            node.roll_back()
            node.start()

    def _start_number(self, node: Node) -> int:
        key = starts_key(node.node_id)
        counter = self.store.snapshot.keys.get(key)
        return 0 if counter is None else starts_from_bytes(key, counter.value).counters[DIRECTORY].number

    def slow_disk(self) -> None:
        self._node().slow_until = self.world.now + self._while()

    def failing_sync(self) -> None:
        """Fail a sync; the process is replaced after a while, as an operator would do."""
        node = self._node()
        node.disk.failing_syncs += 1
        self.world.after(self._while(), self._replace_process, node)

    def read_error(self) -> None:
        """Fail reads of a sealed segment for a while, or change a byte of it permanently.

        A changed byte loses records of one disk, so it needs what a lost disk does.
        """
        partition = self.world.random.choice(sorted(self.store.snapshot.partitions))
        leader = self.store.snapshot.partitions[partition].state.leader
        node = self._node() if leader is None or self.world.random.random() < 0.3 else self.nodes[leader.node_id]
        hosted, replica = node.hosted(partition), (node.node_id, partition)
        if hosted is None or hosted.log.offline or replica in self._unreadable or self._is_minimum_of_all:
            return
        end = min(hosted.log.recovery_point, hosted.high_watermark)  # recovery and truncations read what is above
        sealed = [segment for segment in hosted.log.log.segments[:-1] if segment.next_offset <= end]
        if not sealed:
            return
        self._unreadable.add(replica)
        segment = self.world.random.choice(sealed)
        if self._may_lose_disk() and not self._may_be_unclean and self.world.random.random() < 0.6:
            self._disks_lost += 1
            self.world.count("bytes damaged")
            position = self.world.random.randrange(CRC_FROM, min(segment.size_bytes, HEADER_BYTES))
            node.disk.damage(segment.path, position)
        else:
            self.world.count("reads failing")
            self.world.after(self._while(), self._readable, node, node.disk.fail_reads(segment.path))
        node.log("%s: cannot read %r", partition, segment)

    def full_disk(self) -> None:
        node = self._node()
        node.disk.is_full = True
        self.world.after(self._while(), self._room_on, node)

    # Helpers.

    def _may_lose_disk(self) -> bool:
        """True if one node's disk may be lost: only once in a run, and only where two replicas hold everything."""
        return self._disks_lost == 0 and self._least >= 2 and self._rules.is_fsync_demanded

    def _readable(self, node: Node, file: RecordedFile) -> None:
        if file in node.disk.unreadable:
            node.disk.unreadable.remove(file)

    @property
    def _is_minimum_of_all(self) -> bool:
        """True if the topic ever needs all replicas in sync: then no leader may leave."""
        return self._rules.min_insync_replicas > 2 or "alter" in self.kinds

    def _room_on(self, node: Node) -> None:
        node.disk.is_full = False
