"""Moves partitions of a shard between the data directories of the node while they are read and written (KIP-113).

One partition at a time, in the order of the requests. engine/shard/partition_copy.py copies the files. Rounds copy what
was written during the round before, until little is left. Then (1) the partition is paused: no append, no roll and no
change of its segments; (2) the copy is completed; (3) the recovery points of the target get the partition's; (4) the
old directory gives up its name, which decides the move; (5) the copy takes the name; (6) the open log uses the new
files; (7) the pause ends, and the old directory is removed.
Invariants: a failure before (4) leaves the partition where it is, and one after (4) that cannot be taken back takes it
offline until the restart, which finds one replica (engine/directory/interrupted_moves.py). A move stops before it
takes the last RESERVE_BYTES of the target, which appends there need.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from threading import Event
from typing import ParamSpec, TypeVar

from engine.cleaning.sealing import Sealer
from engine.directory.data_directory import DataDirectory
from engine.directory.log_directories import LogDirectories
from engine.directory.log_directory_manager import LogDirectoryManager
from engine.errors import EngineError, Invalid, StorageFailed, StorageFull, storage_error
from engine.format import paths
from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.partition.writer import PartitionWork
from engine.runtime.disk import Disk
from engine.runtime.tasks import BackgroundTasks
from engine.runtime.throttled_thread import Stopped, ThrottledThread
from engine.shard.partition_copy import PartitionCopy, SourceUnreadable, segment_states

P = ParamSpec("P")
T = TypeVar("T")

RESERVE_BYTES = 8 * 1024 * 1024  # twice what a data directory needs for appends to be accepted
PAUSED_BYTES_MAX = 1024 * 1024  # copied while appends wait: some milliseconds
BYTES_PER_SECOND = 50 * 1024 * 1024

log = logging.getLogger("penstock.engine")


class MoveState(Enum):
    """WAITING: for earlier moves. FAILED: the partition is where it was; `MoveStatus.error` says why."""

    WAITING = "waiting"
    COPYING = "copying"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """A move that waits, runs or has failed; `source` and `target` are paths of data directories."""

    topic: str
    partition: int
    source: str
    target: str
    state: MoveState
    size_bytes: int
    left_bytes: int
    error: str


@dataclass(slots=True, eq=False)
class _Move:
    partition: Partition
    topic_id: str
    target: DataDirectory
    state: MoveState = MoveState.WAITING
    left_bytes: int = 0
    error: str = ""
    is_cancelled: bool = False
    task: asyncio.Task[None] | None = None


class _Cancelled(Exception):
    """The move was cancelled, or its partition closed."""


class DirectoryMoves:
    """The moves of a shard. `on_moved` is called, and awaited, with each partition that has another directory."""

    def __init__(
        self,
        disk: Disk,
        directories: LogDirectories,
        committer: Committer,
        sealer: Sealer,
        log_manager: LogDirectoryManager,
        new_id: Callable[[], str],
        thread: ThrottledThread,
        on_moved: Callable[[str, Partition, DataDirectory], Awaitable[None]],
        forget: Callable[[Partition], None],
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._committer = committer
        self._sealer = sealer
        self._log_manager = log_manager
        self._new_id = new_id
        self._thread = thread
        self._on_moved = on_moved
        self._forget = forget
        self._moves: dict[Partition, _Move] = {}  # waiting, copying and failed ones, in the order of the requests
        self._turn = asyncio.Lock()
        self._background = BackgroundTasks()
        self._is_stopped = False
        self.moved = self.moved_bytes = self.failed = 0

    def __repr__(self) -> str:
        return f"DirectoryMoves({len(self._moves)} moves, {self.moved} done)"

    def statuses(self) -> list[MoveStatus]:
        """Returns the moves that wait, run or have failed."""
        return [
            MoveStatus(
                partition.topic,
                partition.number,
                self._log_manager.directory_of(partition).path,
                move.target.path,
                move.state,
                partition.log.size_bytes,
                partition.log.size_bytes if move.state is MoveState.WAITING else move.left_bytes,
                move.error,
            )
            for partition, move in self._moves.items()
        ]

    def check(self, partition: Partition, path: str) -> DataDirectory | None:
        """Returns the directory at `path` if the partition can move there; None if it is there.

        Raises Invalid, StorageFull, and the error of an offline partition or directory.
        """
        target = next((directory for directory in self._directories if directory.path == path), None)
        if target is None:
            having = ", ".join(directory.path for directory in self._directories)
            raise Invalid(f"{path} is not a data directory of this node", hint=f"its data directories are {having}")
        if partition.offline is not None:
            raise partition.offline
        if target.fault is not None:
            raise target.fault
        if target is self._log_manager.directory_of(partition):
            return None
        self._check_room(target, partition.log.size_bytes + self._promised_bytes(target), partition.name)
        return target

    def start(self, partition: Partition, topic_id: str, path: str) -> None:
        """Moves a partition to the directory at `path`, after those before it. Raises Invalid, as `check` does.

        Naming the present directory cancels the partition's move.
        """
        move = self._moves.get(partition)
        is_moving = move is not None and move.state is not MoveState.FAILED
        if is_moving and move is not None and move.target.path == path and not move.is_cancelled:
            return
        target = self.check(partition, path)
        if target is None:
            self.cancel(partition)
            return
        if is_moving:
            raise Invalid(f"{partition.name} is being moved to another directory", hint="cancel that move first")
        move = self._moves[partition] = _Move(partition, topic_id, target)
        move.task = self._background.start(self._run(move), "moving a partition", of=partition.name)

    def cancel(self, partition: Partition) -> bool:
        """Cancels the move of a partition, or forgets its failed one. Returns whether there was any."""
        move = self._moves.get(partition)
        if move is None:
            return False
        move.is_cancelled = True
        if move.state is not MoveState.COPYING:
            del self._moves[partition]
        return True

    async def wait_ended(self, partition: Partition) -> None:
        """Cancels the move of a partition, which is closed, and waits until it touches no file any more.

        A move that waits has touched none, and its task ends after the moves before it: hours later.
        """
        move = self._moves.get(partition)
        if move is not None and self.cancel(partition) and move.task is not None and move.state is MoveState.COPYING:
            await asyncio.wait([move.task])

    async def stop(self) -> None:
        """Cancels all moves; the partitions stay where they are."""
        self._is_stopped = True
        self._thread.end_pauses()
        for partition in list(self._moves):
            self.cancel(partition)
        await self._background.wait_ended()
        await self._thread.stop(None)

    def _promised_bytes(self, target: DataDirectory) -> int:
        """Returns the bytes that earlier moves will take of a directory."""
        return sum(
            partition.log.size_bytes if move.state is MoveState.WAITING else move.left_bytes
            for partition, move in self._moves.items()
            if move.target is target and move.state is not MoveState.FAILED
        )

    def _check_room(self, target: DataDirectory, size_bytes: int, name: str) -> None:
        """Raises StorageFull, StorageFailed."""
        try:
            free_bytes = self._disk.free_bytes(target.path)
        except OSError as error:
            raise storage_error(f"{name}: asking {target.path} for its free bytes", error) from error
        if free_bytes < size_bytes + RESERVE_BYTES:
            text = f"{name}: {target.path} has {free_bytes} bytes free, {size_bytes + RESERVE_BYTES} are needed"
            raise StorageFull(text, hint="free space there, or choose another directory")

    async def _run(self, move: _Move) -> None:
        async with self._turn:
            if move.is_cancelled or self._is_stopped:
                return
            partition, move.state = move.partition, MoveState.COPYING
            move.left_bytes = size_bytes = partition.log.size_bytes
            try:
                await self._move(move)
            except (_Cancelled, Stopped):
                self._moves.pop(partition, None)
            except EngineError as error:
                self._fail(move, error)
            except OSError as error:
                self._directories.record_failure(move.target, error, f"moving {partition.name}")
                self._fail(move, storage_error(f"moving {partition.name} to {move.target.path}", error))
            except Exception as error:  # a bug: without this its move would be shown as copying
                self._fail(move, StorageFailed(f"moving {partition.name} to {move.target.path}: {error!r}"))
                raise
            else:
                self._moves.pop(partition, None)
                self.moved, self.moved_bytes = self.moved + 1, self.moved_bytes + size_bytes

    def _fail(self, move: _Move, error: EngineError) -> None:
        if move.is_cancelled:
            self._moves.pop(move.partition, None)
            return
        self.failed += 1
        move.state, move.error = MoveState.FAILED, str(error)
        words = {"partition": move.partition.name, "to": move.target.path, "reason": move.error}
        log.error("a partition could not be moved to another data directory", extra=words)

    async def _move(self, move: _Move) -> None:
        partition, target = move.partition, move.target
        source = partition.log.directory
        path = paths.partition_dir(target.path, partition.topic, move.topic_id, partition.number)
        copy = PartitionCopy(self._disk, source, path, self._new_id())
        try:
            await self._thread.run(copy.prepare)
            while True:
                states = segment_states(partition.log.segments)
                move.left_bytes = copy.left_bytes(states)
                self._check_continues(move)
                await self._thread.run(copy.copy, states, partial(self._pace, move))
                move.left_bytes = copy.left_bytes(segment_states(partition.log.segments))
                if move.left_bytes <= PAUSED_BYTES_MAX:
                    break
            await self._switch(move, copy)
        except BaseException:
            await self._remove(copy, target)
            raise
        await self._end(move, copy)

    def _check_continues(self, move: _Move) -> None:
        """Raises _Cancelled, and the error of a directory or partition that is offline."""
        if move.is_cancelled or self._is_stopped:
            raise _Cancelled
        if move.partition.offline is not None:
            raise move.partition.offline
        if move.target.fault is not None:
            raise move.target.fault

    def _pace(self, move: _Move, size_bytes: int) -> None:
        """Called in the thread before each piece."""
        self._check_continues(move)
        self._check_room(move.target, size_bytes, move.partition.name)
        self._thread.pace(size_bytes)
        move.left_bytes = max(0, move.left_bytes - size_bytes)

    async def _switch(self, move: _Move, copy: PartitionCopy) -> None:
        """Steps (1) to (6)."""
        partition, target = move.partition, move.target
        path = paths.partition_dir(target.path, partition.topic, move.topic_id, partition.number)
        async with self._committer.pause(partition):
            await self._sealer.wait_saved(partition)
            async with partition.segments_lock:
                self._check_continues(move)
                handle = await self._thread.run(copy.finish, segment_states(partition.log.segments))
                try:
                    async with self._log_manager.moving(partition, target):
                        moved = Event()
                        for segment in partition.log.segments:
                            segment.moved, segment.is_being_replaced = moved, True
                        try:
                            await self._commit(partition, copy)
                            self._forget(partition)
                            partition.move_to(path, handle)
                        except BaseException:
                            for segment in partition.log.segments:
                                segment.is_being_replaced = False
                            raise
                        finally:
                            moved.set()
                except BaseException:  # also if the positions could not be saved in the target
                    if handle is not None and partition.log.directory != path:
                        self._disk.close(handle)
                    raise
                synced = PartitionWork(partition.name, path, [], sync=[partition.log.active])
                partition.apply_syncs(synced)  # `finish` has synced every byte

    async def _commit(self, partition: Partition, copy: PartitionCopy) -> None:
        """Steps (4) and (5). A failure that leaves both directories possible takes the partition offline."""
        try:
            await self._thread.run(copy.begin_commit)
            await self._thread.run(copy.commit)
        except (OSError, SourceUnreadable) as error:
            if not await self._revert(copy):
                text = f"{partition.name}: its move to another data directory was interrupted: {error}"
                partition.go_offline(StorageFailed(text, hint="restart the node, which completes the move"))
            raise

    async def _revert(self, copy: PartitionCopy) -> bool:
        try:
            return await self._thread.run(copy.revert)
        except OSError:
            return False

    async def _end(self, move: _Move, copy: PartitionCopy) -> None:
        """Step (7). The next start repeats it after a failure."""
        partition, words = move.partition, {"partition": move.partition.name, "to": move.target.path}
        log.info("a partition was moved to another data directory", extra=words)
        # apart: a deletion of the topic, which waits for this task, may be the change that the record waits for
        self._background.start(self._record(move), "recording a moved partition", of=partition.name)
        try:
            left = await self._thread.run(copy.remove_moved)
        except OSError as error:
            log.warning("the end of a move is left to the next start", extra={**words, "reason": str(error)})
        else:
            if left:
                log.warning("files of others stay behind a moved partition", extra={**words, "first": left[0]})

    async def _record(self, move: _Move) -> None:
        try:
            await self._on_moved(move.topic_id, move.partition, move.target)
        except EngineError as error:  # the next start finds the partition without it
            words = {"partition": move.partition.name, "reason": str(error)}
            log.warning("the record of a moved partition failed", extra=words)

    async def _remove(self, copy: PartitionCopy, target: DataDirectory) -> None:
        if target.fault is not None:
            return
        try:
            await self._thread.run(copy.remove)
        except OSError as error:
            log.warning("a copy was not removed", extra={"directory": target.path, "reason": str(error)})
