"""The data directories of a node, and moves of partitions between them, asked from each of its processes.

Each process of a node has the partitions of its shard. engine/shard/directory_moves.py moves them. The process that has
the request asks those of the node that it is about, which may be another node of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from types import NoneType
from typing import TypeVar

from msgspec import Struct, convert

from engine.directory.placement import Placed, PlannedMove, Room, plan_moves
from engine.errors import StorageFull, UnknownPartition
from engine.partition.partition import Partition
from engine.shard.directory_moves import RESERVE_BYTES, MoveState
from engine.shard.shard import Shard
from gateway.http.offload import Offload
from gateway.http.problems import Problem
from gateway.links.link import Handler, Link, handler
from gateway.routing.peers import Peers

T = TypeVar("T")

DISKS_S = 5.0
COPYING = MoveState.COPYING.value
GAP_SHARE = 10  # a balance leaves differences of free bytes below a tenth of the smallest capacity


class DiskRow(Struct, frozen=True, array_like=True):
    """A data directory; `reason` is why it is offline, or empty. None: its file system does not answer."""

    path: str
    reason: str
    free_bytes: int | None
    capacity_bytes: int | None


class ReplicaRow(Struct, frozen=True, array_like=True):
    """The bytes of one replica, and the data directory that has it."""

    directory: str
    topic: str
    partition: int
    size_bytes: int


class MoveRow(Struct, frozen=True, array_like=True):
    """A move that waits, runs or has failed; `state` is that of MoveState, or planned."""

    topic: str
    partition: int
    source: str
    target: str
    state: str
    size_bytes: int
    left_bytes: int
    error: str = ""


class ProcessDisks(Struct, frozen=True, array_like=True):
    """The disks of a node, as its processes or one of them see them."""

    disks: list[DiskRow]
    replicas: list[ReplicaRow]
    moves: list[MoveRow]


class MoveRequest(Struct, frozen=True, array_like=True):
    """Moves of partitions to directories: topic, number, path. A process takes those of its own partitions."""

    moves: list[tuple[str, int, str]]
    is_dry_run: bool


class CancelMove(Struct, frozen=True, array_like=True):
    topic: str
    partition: int


class OwnDisks:
    """The disks of the node, and the moves of this process."""

    def __init__(self, shard: Shard, offload: Offload) -> None:
        self._shard = shard
        self._offload = offload

    def __repr__(self) -> str:
        return f"OwnDisks({self._shard.directories})"

    async def describe(self) -> ProcessDisks:
        disks = await self._offload.in_thread(self._describe_disks)
        directory_of = self._shard.log_manager.directory_of
        replicas = [
            ReplicaRow(directory_of(partition).path, topic.record.name, number, partition.log.size_bytes)
            for topic in self._shard.topics.values()
            for number, partition in topic.partitions.items()
        ]
        moves = [
            MoveRow(row.topic, row.partition, row.source, row.target, row.state.value, row.size_bytes, row.left_bytes,
                    row.error)
            for row in self._shard.moves.statuses()
        ]  # fmt: skip
        return ProcessDisks(disks, replicas, moves)

    def move(self, request: MoveRequest) -> list[MoveRow]:
        """Starts the moves of partitions of this process, or checks them. Raises EngineError for the first that fails.

        A move that is under way, or of a partition that is there, is not started.
        """
        rows = []
        for name, number, path in request.moves:
            partition = self._partition(name, number)
            if partition is None:
                continue
            source = self._shard.log_manager.directory_of(partition).path
            if request.is_dry_run:
                self._shard.moves.check(partition, path)
            else:
                self._shard.moves.start(partition, self._shard.topics[name].record.topic_id, path)
            state, size_bytes = "planned" if request.is_dry_run else MoveState.WAITING.value, partition.log.size_bytes
            left_bytes = 0 if source == path else size_bytes
            rows.append(MoveRow(name, number, source, path, state, size_bytes, left_bytes))
        return rows

    def cancel(self, request: CancelMove) -> bool:
        """Cancels the move of a partition of this process. Returns whether the partition is here."""
        partition = self._partition(request.topic, request.partition)
        if partition is not None:
            self._shard.moves.cancel(partition)
        return partition is not None

    def handlers(self) -> dict[str, Handler]:
        """Returns the handlers of other processes' calls."""

        async def describe(_: None, __: bytes) -> tuple[ProcessDisks, bytes]:
            return await self.describe(), b""

        async def move(request: MoveRequest, _: bytes) -> tuple[list[MoveRow], bytes]:
            return self.move(request), b""

        async def cancel(request: CancelMove, _: bytes) -> tuple[bool, bytes]:
            return self.cancel(request), b""

        return {
            "disks": handler(NoneType, describe),
            "move_partitions": handler(MoveRequest, move),
            "cancel_move": handler(CancelMove, cancel),
        }

    def _partition(self, name: str, number: int) -> Partition | None:
        topic = self._shard.topics.get(name)
        return None if topic is None else topic.partitions.get(number)

    def _describe_disks(self) -> list[DiskRow]:
        rows = []
        for directory in self._shard.directories:
            reason, free_bytes, capacity_bytes = "" if directory.fault is None else directory.fault.detail, None, None
            with suppress(OSError):
                if directory.fault is None:
                    free_bytes = directory.disk.free_bytes(directory.path)
                    capacity_bytes = directory.disk.capacity_bytes(directory.path)
            rows.append(DiskRow(directory.path, reason, free_bytes, capacity_bytes))
        return rows


class NodeDisks:
    """The disks of any node of the cluster, through all processes of that node."""

    def __init__(self, own: OwnDisks, peers: Peers) -> None:
        self._own = own
        self._peers = peers

    def __repr__(self) -> str:
        return f"NodeDisks({self._own})"

    async def describe(self, node_id: int) -> ProcessDisks:
        """Raises Problem invalid_config for a node that is not there, LinkDown for a process that does not answer."""
        own = [self._own.describe()] if self._is_own(node_id) else []
        calls = [_ask(link, "disks", None, ProcessDisks) for link in self._links(node_id)]
        parts: list[ProcessDisks] = await asyncio.gather(*own, *calls)
        replicas = sorted((row for part in parts for row in part.replicas), key=lambda row: (row.topic, row.partition))
        return ProcessDisks(parts[0].disks, replicas, [row for part in parts for row in part.moves])

    async def move(self, node_id: int, moves: list[tuple[str, int, str]], *, is_dry_run: bool) -> list[MoveRow]:
        """Starts all moves or none. Raises UnknownPartition, Problem, EngineError."""
        rows = await self._move(node_id, MoveRequest(moves, is_dry_run=True))
        missing = {move[:2] for move in moves} - {(row.topic, row.partition) for row in rows}
        if missing:
            name, number = min(missing)
            raise UnknownPartition(f"node {node_id} has no replica of partition {number} of topic {name!r}")
        if len(rows) > 1:  # the process of one has checked it: a client of Kafka asks for thousands one by one
            self._check_room(rows, (await self.describe(node_id)).disks)
        return rows if is_dry_run else await self._move(node_id, MoveRequest(moves, is_dry_run=False))

    async def plan(self, node_id: int) -> list[MoveRow]:
        """Returns the moves that make the free bytes of the node's directories more equal."""
        node = await self.describe(node_id)
        moving = {(row.topic, row.partition) for row in node.moves if row.state != MoveState.FAILED.value}
        rooms = {
            row.path: Room(row.free_bytes, row.capacity_bytes)
            for row in node.disks
            if row.free_bytes is not None and row.capacity_bytes is not None and not row.reason
        }
        placed = [
            Placed(row.topic, row.partition, row.directory, row.size_bytes)
            for row in node.replicas
            if (row.topic, row.partition) not in moving
        ]
        gap_bytes_min = min((room.capacity_bytes for room in rooms.values()), default=0) // GAP_SHARE
        return [_row_of(move) for move in plan_moves(rooms, placed, gap_bytes_min)]

    async def cancel(self, node_id: int, topic: str, partition: int) -> None:
        """Cancels a move; the partition stays where it is. Raises UnknownPartition, Problem, EngineError."""
        request = CancelMove(topic, partition)
        calls = [_ask(link, "cancel_move", request, bool) for link in self._links(node_id)]
        is_here = self._is_own(node_id) and self._own.cancel(request)
        if not is_here and not any(await asyncio.gather(*calls)):
            raise UnknownPartition(f"node {node_id} has no replica of partition {partition} of topic {topic!r}")

    async def _move(self, node_id: int, request: MoveRequest) -> list[MoveRow]:
        links = self._links(node_id)
        rows = self._own.move(request) if self._is_own(node_id) else []
        for part in await asyncio.gather(*(_ask(link, "move_partitions", request, list[MoveRow]) for link in links)):
            rows += part
        return rows

    def _check_room(self, rows: Iterable[MoveRow], disks: Iterable[DiskRow]) -> None:
        """Raises StorageFull if the moves together do not fit; each process has checked its own only."""
        for disk in disks:
            size_bytes = sum(row.size_bytes for row in rows if row.target == disk.path != row.source)
            if size_bytes and disk.free_bytes is not None and disk.free_bytes < size_bytes + RESERVE_BYTES:
                text = f"{disk.path} has {disk.free_bytes} bytes free, {size_bytes + RESERVE_BYTES} are needed"
                raise StorageFull(text, hint="move less, or free space there")

    def _is_own(self, node_id: int) -> bool:
        return node_id == self._peers.node_id

    def _links(self, node_id: int) -> list[Link]:
        """Returns the links to the other processes of a node. Raises Problem, LinkDown."""
        links = self._peers.links
        if self._is_own(node_id):
            return links.links(of_this_node=True)
        callers = [caller for other, caller in links.of_other_nodes() if other == node_id]
        if not callers:
            raise Problem("invalid_config", f"node {node_id} is not there", setting="node_id")
        return [caller.link() for caller in callers]


async def _ask(link: Link, call: str, arguments: object, kind: type[T]) -> T:
    """Calls another process. Raises EngineError: its own, or that it does not answer."""
    answer, _ = await link.call(call, arguments, timeout_s=DISKS_S)
    return convert(answer, kind)


def _row_of(move: PlannedMove) -> MoveRow:
    return MoveRow(move.topic, move.partition, move.source, move.target, "planned", move.size_bytes, move.size_bytes)
