"""The directories of topics in a node's other data directories: made before a topic, removed after it.

The first directory alone lists the topics (engine/directory/topics.py). Invariant: nothing that holds a record or a
foreign file is removed from another directory unless the first one records the deletion of the topic.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence

from engine.directory.data_directory import FIRST, DataDirectory
from engine.directory.interrupted_moves import remove_move_directories
from engine.directory.log_directories import LogDirectories
from engine.directory.placement import assign_directories
from engine.directory.safe_delete import (
    RemovalSteps,
    is_empty_partition,
    is_unfinished_creation,
    remove_if_empty,
    remove_partition_dir,
    remove_topic_dir,
    run_all_steps,
    topic_dir_removal,
)
from engine.directory.topics import TopicRecord
from engine.errors import Corrupt
from engine.format import paths
from engine.format.spare_files import write_without_room
from engine.runtime.disk import Disk, FileKind

log = logging.getLogger("penstock.engine")


class PartitionCreationFailed(Exception):
    """Another data directory failed to make partitions; further ones may succeed."""

    def __init__(self, directory: DataDirectory, error: OSError) -> None:
        super().__init__(f"{directory.path}: {error}")
        self.directory = directory
        self.error = error


def place_partitions(
    directories: list[DataDirectory], records: list[TopicRecord], added: Sequence[int]
) -> dict[str, str]:
    """Returns `directory_ids` of new partitions, given the records and the usable directories."""
    counts = {directory.directory_id: 0 for directory in directories}
    for record in records:
        for number in record.local_partitions:
            directory_id = record.directory_ids.get(str(number), FIRST)
            if directory_id in counts:
                counts[directory_id] += 1
    chosen = assign_directories(
        len(added), counts, {directory.directory_id: _free_bytes(directory) for directory in directories}
    )
    return {
        str(number): directory_id for number, directory_id in zip(added, chosen, strict=True) if directory_id != FIRST
    }


def create_partitions(disk: Disk, directories: LogDirectories, record: TopicRecord, added: Sequence[int]) -> None:
    """Makes the new partitions' directories outside the first directory, durably. Raises PartitionCreationFailed."""
    assigned = {number: directory_id for number, directory_id in record.directory_ids.items() if int(number) in added}
    for directory in directories.additional:
        numbers = [number for number, directory_id in assigned.items() if directory_id == directory.directory_id]
        if numbers and directory.fault is None:
            try:
                _create(disk, directory.path, record, numbers)
            except OSError as error:
                raise PartitionCreationFailed(directory, error) from error


def clear_added(disk: Disk, directories: LogDirectories, record: TopicRecord, added: Sequence[int]) -> None:
    """Removes the leftovers of an interrupted growth for these partitions, so that each is found once only.

    Removes nothing that holds a record or a foreign file. Raises OSError.
    """
    for directory in directories.usable:
        for number in added:
            path = f"{paths.topic_dir(directory.path, record.name, record.topic_id)}/{number}"
            if disk.kind(path) is FileKind.DIRECTORY and is_empty_partition(disk, path):
                remove_partition_dir(disk, path)


def remove_partitions(disk: Disk, directories: LogDirectories, record: TopicRecord, numbers: Sequence[int]) -> None:
    """Removes the files of partitions from every directory. Raises OSError."""
    for directory in directories.usable:
        topic_dir = paths.topic_dir(directory.path, record.name, record.topic_id)
        paths_found = [path for number in numbers if disk.kind(path := f"{topic_dir}/{number}") is FileKind.DIRECTORY]
        for path in paths_found:
            log_leftovers(remove_partition_dir(disk, path))
        if paths_found:
            disk.fsync_dir(topic_dir)
    remove_move_directories(disk, directories, record, numbers)


def mark_moved_away(disk: Disk, directories: LogDirectories, record: TopicRecord, numbers: Sequence[int]) -> None:
    """Marks partitions for removal, durably, before `topic.json` stops naming them.

    A restart removes a partition that `topic.json` does not name only with this mark: the file may be outdated.
    """
    for directory in directories.usable:
        for number in numbers:
            path = paths.partition_dir(directory.path, record.name, record.topic_id, number)
            try:
                if disk.kind(path) is FileKind.DIRECTORY:
                    write_without_room(disk, f"{path}/{paths.MOVED_AWAY}", b"")
            except OSError as error:  # its files stay, and the next start logs them
                log.warning(
                    "the mark of a moved partition could not be written",
                    extra={"directory": path, "reason": str(error)},
                )


def remove_moved_away(disk: Disk, directories: LogDirectories, record: TopicRecord) -> None:
    """Finishes interrupted removals of moved partitions. Partitions without the mark stay. Raises OSError."""
    unlisted = find_unmarked(disk, directories, record)
    for path in unlisted.values():
        words = {"directory": path, "hint": f"restore the newest {paths.TOPIC_FILE}, or move the directory elsewhere"}
        log.error(f"a partition has records and {paths.TOPIC_FILE} does not name it: its files stay", extra=words)
    beside = misplaced_partitions(disk, directories, record)
    remove_partitions(disk, directories, record, [number for number in beside if number not in unlisted])
    for path in _partition_dirs(disk, directories, record, record.local_partitions):
        if disk.kind(f"{path}/{paths.MOVED_AWAY}") is FileKind.FILE:  # the move was not recorded: it continues later
            disk.unlink(f"{path}/{paths.MOVED_AWAY}")
            disk.fsync_dir(path)


def find_unmarked(disk: Disk, directories: LogDirectories, record: TopicRecord) -> dict[int, str]:
    """Returns the directories, by partition, that have records, and neither the record's name nor the mark of a move.

    The record is outdated then. Raises OSError.
    """
    beside = misplaced_partitions(disk, directories, record)
    return {
        int(os.path.basename(path)): path
        for path in _partition_dirs(disk, directories, record, beside)
        if _has_records(disk, path) and disk.kind(f"{path}/{paths.MOVED_AWAY}") is not FileKind.FILE
    }


def _partition_dirs(
    disk: Disk, directories: LogDirectories, record: TopicRecord, numbers: Collection[int]
) -> list[str]:
    selected = (
        paths.partition_dir(directory.path, record.name, record.topic_id, number)
        for directory in directories.usable
        for number in numbers
    )
    return [path for path in selected if disk.kind(path) is FileKind.DIRECTORY]


def misplaced_partitions(disk: Disk, directories: LogDirectories, record: TopicRecord) -> list[int]:
    """Returns the partitions that have a directory here and are elsewhere by their topic's record."""
    misplaced: set[int] = set()
    for directory in directories.usable:
        names = disk.listdir(paths.topic_dir(directory.path, record.name, record.topic_id))
        misplaced.update(int(name) for name in names if paths.is_partition_number(name))
    return sorted(misplaced - set(record.local_partitions))


def check_all_known(disk: Disk, directories: LogDirectories, record: TopicRecord) -> None:
    """Raises Corrupt if a partition that `topic.json` does not know has records: the file is from before a growth of
    the topic. An interrupted growth leaves directories without records.
    """
    try:
        path = _unknown_records(disk, directories, record)
    except OSError as error:  # of a failing disk: opening its partitions reports it
        log.warning(
            "a directory could not be searched for partitions", extra={"topic": record.name, "reason": str(error)}
        )
        return
    if path is not None:
        file = f"{paths.topic_dir(directories.first.path, record.name, record.topic_id)}/{paths.TOPIC_FILE}"
        text = f"{file} has {record.partitions} partitions, and {path} has records: the file is outdated"
        raise Corrupt(text, hint="restore the newest one; to discard the records, move the directory elsewhere")


def _unknown_records(disk: Disk, directories: LogDirectories, record: TopicRecord) -> str | None:
    for number in misplaced_partitions(disk, directories, record):
        for directory in directories.usable:
            path = paths.partition_dir(directory.path, record.name, record.topic_id, number)
            if disk.kind(path) is FileKind.DIRECTORY and _has_records(disk, path):
                return path
    return None


def _has_records(disk: Disk, directory: str) -> bool:
    logs = [name for name in disk.listdir(directory) if paths.base_offset_of(name) is not None]
    statuses = (disk.stat(f"{directory}/{name}") for name in logs)
    return any(stat is not None and stat.size_bytes for stat in statuses)


def remove_topic(disk: Disk, directories: LogDirectories, name: str, topic_id: str) -> bool:
    """Removes a deleted topic from the other directories as `additional_removal` does, in one call."""
    return run_all_steps(additional_removal(disk, directories, name, topic_id))


def additional_removal(disk: Disk, directories: LogDirectories, name: str, topic_id: str) -> RemovalSteps[bool]:
    """Removes the files of a deleted topic from the other directories. Returns whether none of its files remain."""
    is_gone = True
    for directory in directories.additional:
        if directory.fault is not None:
            is_gone = False
            continue
        try:
            yield from _removal(disk, directory.path, name, topic_id)
        except OSError as error:
            is_gone = False
            log.warning("removal failed", extra={"directory": directory.path, "reason": str(error)})
    return is_gone


def topic_removal(
    disk: Disk, directories: LogDirectories, name: str, topic_id: str, directory: str
) -> RemovalSteps[None]:
    """Removes the rest of a deleted topic: in the other directories, then in the first, which records the deletion."""
    try:
        is_gone = yield from additional_removal(disk, directories, name, topic_id)
        log_leftovers((yield from topic_dir_removal(disk, directory, keep_name=not is_gone)))
    except OSError as error:  # the topic is deleted nevertheless; the next start removes the remaining files
        log.warning("removal failed", extra={"directory": directory, "reason": str(error)})


def log_leftovers(left: Sequence[str]) -> None:
    """Log files that a removal has left in place."""
    if left:
        words = {"first": left[0], "files": len(left), "hint": "penstock did not create them; move them elsewhere"}
        log.warning("unknown files were not removed", extra=words)


def remove_leftovers(disk: Disk, directories: LogDirectories, known_topics: Collection[tuple[str, str]]) -> None:
    """Removes the leftovers of interrupted creations from the other directories. Anything else stays, and is logged.

    `known_topics` are the topics in the first directory, by name and id.
    """
    for directory in directories.additional:
        if directory.fault is not None:
            continue
        try:
            _sweep(disk, directory.path, known_topics)
        except OSError as error:
            if not directories.record_failure(directory, error, "looking for topics"):
                log.warning("removal failed", extra={"directory": directory.path, "reason": str(error)})


def moved(directories: LogDirectories, record: TopicRecord) -> dict[str, str]:
    """Returns `directory_ids` as the partitions are found; some may have been moved while the node was down."""
    directory_ids = dict(record.directory_ids)
    for number in map(str, record.local_partitions):
        located = directories.locate(record, int(number))
        directory_id = located.directory.directory_id
        if located.error is not None or directory_id == directory_ids.get(number, FIRST):
            continue
        directories.require_recovery(located.directory)
        if directory_id == FIRST:
            del directory_ids[number]
        else:
            directory_ids[number] = directory_id
    return directory_ids


def _create(disk: Disk, data_dir: str, record: TopicRecord, numbers: list[str]) -> None:
    directory = paths.topic_dir(data_dir, record.name, record.topic_id)
    for number in numbers:
        disk.mkdir(f"{directory}/{number}")
    for parent in (directory, os.path.dirname(directory), paths.topics_dir(data_dir), data_dir):
        disk.fsync_dir(parent)


def _removal(disk: Disk, data_dir: str, name: str, topic_id: str) -> RemovalSteps[None]:
    """Keeps the directory of the topic name until the next start: a topic of that name may be created meanwhile."""
    directory = paths.topic_dir(data_dir, name, topic_id)
    if disk.kind(directory) is FileKind.DIRECTORY:
        log_leftovers((yield from topic_dir_removal(disk, directory)))
        disk.fsync_dir(os.path.dirname(directory))


def _sweep(disk: Disk, data_dir: str, known_topics: Collection[tuple[str, str]]) -> None:
    for name in disk.listdir(paths.topics_dir(data_dir)):
        parent = f"{paths.topics_dir(data_dir)}/{name}"
        if disk.kind(parent) is not FileKind.DIRECTORY:
            log.warning("not the directory of a topic: ignored", extra={"path": parent})
            continue
        for topic_id in disk.listdir(parent):
            directory = f"{parent}/{topic_id}"
            if (name, topic_id) in known_topics:
                continue
            if disk.kind(directory) is FileKind.DIRECTORY and is_unfinished_creation(disk, directory):
                remove_topic_dir(disk, directory)
            else:
                log.warning("a topic that is missing in the first data directory", extra={"directory": directory})
        remove_if_empty(disk, parent)


def _free_bytes(directory: DataDirectory) -> int:
    """A disk without an answer is the last choice; making the partition shows whether it works."""
    try:
        return directory.disk.free_bytes(directory.path)
    except OSError:
        return 0
