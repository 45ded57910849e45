"""Ends the moves of partitions between data directories that a stop has interrupted, before any log is opened.

engine/shard/partition_copy.py has the order of a move. Cases, in the order of the decision:
- (1) a `.moved` and a `.future` directory with the same id: the move was decided, and the copy gets its name;
- (2) a `.future` directory, and the partition under its name: the move was not decided, and the copy goes;
- (3) a `.moved` directory, and the partition under its name: the move was done, and the old directory goes;
- (4) no directory has the partition under its name: one that has is offline, or an operator has to decide. All stays.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from typing import NamedTuple

from engine.directory.log_directories import LogDirectories
from engine.directory.safe_delete import remove_partition_dir
from engine.directory.topics import TopicRecord
from engine.format import paths
from engine.runtime.disk import Disk, FileKind

log = logging.getLogger("penstock.engine")


class _Leftover(NamedTuple):
    topic_dir: str
    name: str
    move: paths.MoveDirectory

    @property
    def path(self) -> str:
        return f"{self.topic_dir}/{self.name}"

    @property
    def target(self) -> str:
        return f"{self.topic_dir}/{self.move.partition}"


def end_interrupted_moves(
    disk: Disk, directories: LogDirectories, record: TopicRecord, is_closed: Callable[[int], bool] = lambda _: True
) -> None:
    """Ends the moves of a topic's partitions by the cases above. Raises OSError.

    Only of partitions that no process has open, by `is_closed`: a move may be in progress otherwise.
    """
    leftovers = _move_directories(disk, directories, record, is_closed)
    decided = {one.move[:2] for one in leftovers if one.move.suffix == paths.MOVED}
    for one in leftovers:
        if one.move.suffix == paths.FUTURE and one.move[:2] in decided and disk.kind(one.target) is None:
            disk.rename(one.path, one.target)
            disk.fsync_dir(one.topic_dir)
            log.info("an interrupted move of a partition was completed", extra={"directory": one.target})
    for one in _move_directories(disk, directories, record, is_closed):
        if _is_present(disk, directories, record, one.move.partition):
            left = remove_partition_dir(disk, one.path)
            disk.fsync_dir(one.topic_dir)
            if left:
                words = {"first": left[0], "files": len(left), "hint": "penstock did not create them; move them away"}
                log.warning("unknown files were not removed", extra=words)
        else:
            words = {"directory": one.path, "hint": "mount all data directories and restart"}
            log.error("a partition's move was interrupted, and its replica is not there: its files stay", extra=words)


def remove_move_directories(
    disk: Disk, directories: LogDirectories, record: TopicRecord, numbers: Collection[int]
) -> None:
    """Removes the leftovers of moves of partitions that leave this node. Raises OSError."""
    for one in _move_directories(disk, directories, record, lambda number: number in numbers):
        remove_partition_dir(disk, one.path)
        disk.fsync_dir(one.topic_dir)


def _move_directories(
    disk: Disk, directories: LogDirectories, record: TopicRecord, is_meant: Callable[[int], bool]
) -> list[_Leftover]:
    """Returns the directories of moves of some of a topic's partitions. Raises OSError."""
    leftovers = []
    for directory in directories.usable:
        topic_dir = paths.topic_dir(directory.path, record.name, record.topic_id)
        for name in disk.listdir(topic_dir):
            move = paths.move_directory_of(name)
            if (
                move is not None
                and is_meant(move.partition)
                and disk.kind(os.path.join(topic_dir, name)) is FileKind.DIRECTORY
            ):
                leftovers.append(_Leftover(topic_dir, name, move))
    return leftovers


def _is_present(disk: Disk, directories: LogDirectories, record: TopicRecord, number: int) -> bool:
    return any(
        disk.kind(paths.partition_dir(directory.path, record.name, record.topic_id, number)) is FileKind.DIRECTORY
        for directory in directories.usable
    )
