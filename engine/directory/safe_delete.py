"""Removes the directories of topics and partitions, and only files that the engine itself made.

Does not decide when: engine/directory/topics.py, engine/directory/topic_directories.py and engine/directory/catalog.py
do. engine/format/FORMAT.md lists what a start may remove.
Invariants: a file is removed only if its name is one that the engine gives; a symbolic link is neither removed nor
followed; a directory is removed only when it is empty. Everything else stays and is returned, to be logged.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import TypeVar, cast

from engine.format import paths
from engine.runtime.disk import Disk, FileKind

T = TypeVar("T")
RemovalSteps = Generator[None, None, T]  # a removal in steps, which can stop after each

STEPS_AT_ONCE = 64  # files and partitions: some milliseconds of one of the threads for the disk, which reads need too
_END = object()
_TOPIC_FILES = (paths.TOPIC_FILE, paths.TOPIC_FILE + paths.TEMPORARY)


def remove_topic_dir(disk: Disk, directory: str, *, keep_name: bool = False) -> list[str]:
    """Removes a deleted topic's directory as `topic_dir_removal` does, in one call."""
    return run_all_steps(topic_dir_removal(disk, directory, keep_name=keep_name))


def topic_dir_removal(disk: Disk, directory: str, *, keep_name: bool = False) -> RemovalSteps[list[str]]:
    """Remove a deleted topic's directory, a file or a partition a step. Returns the paths that the engine did not make.

    Foreign paths stay. `topic.json` is removed last, durably: it names the owner of the remaining files. With
    `keep_name` the empty directory stays.
    """
    left: list[str] = []
    is_changed = False
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        if name in _TOPIC_FILES and disk.kind(path) is FileKind.FILE:
            continue
        left += (yield from _partition_dir_removal(disk, path)) if _is_partition(disk, directory, name) else [path]
        is_changed = True
        yield
    if is_changed:
        disk.fsync_dir(directory)
    if left:
        return left
    for name in disk.listdir(directory):
        disk.unlink(f"{directory}/{name}")
    if not keep_name:
        disk.rmdir(directory)
    return []


def run_all_steps(removal: RemovalSteps[T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(removal)
        except StopIteration as end:
            return cast(T, end.value)


def run_some_steps(removal: RemovalSteps[T], steps: int) -> bool:
    """Runs up to `steps` steps. Returns whether the removal is finished."""
    return next(islice(removal, steps - 1, None), _END) is _END


def remove_partition_dir(disk: Disk, directory: str) -> list[str]:
    """Removes a partition's files, then its directory. Returns the paths of files that the engine did not make."""
    return run_all_steps(_partition_dir_removal(disk, directory))


def _partition_dir_removal(disk: Disk, directory: str) -> RemovalSteps[list[str]]:
    left = []
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        if paths.is_partition_file(name) and disk.kind(path) is FileKind.FILE:
            disk.unlink(path)
            yield
        else:
            left.append(path)
    if not left:
        disk.rmdir(directory)
    return left


def remove_if_empty(disk: Disk, directory: str) -> None:
    """Removes the directory of a topic's name if it holds no topic any more."""
    if disk.kind(directory) is FileKind.DIRECTORY and not disk.listdir(directory):
        disk.rmdir(directory)


def is_unfinished_creation(disk: Disk, directory: str) -> bool:
    """True if a topic's directory holds nothing but the leftovers of an interrupted creation.

    These are a temporary `topic.json`, and partition directories without a byte in them.
    """
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        if name == paths.TOPIC_FILE + paths.TEMPORARY and disk.kind(path) is FileKind.FILE:
            continue
        if not (_is_partition(disk, directory, name) and is_empty_partition(disk, path)):
            return False
    return True


def is_empty_partition(disk: Disk, directory: str) -> bool:
    """True if a partition's directory holds nothing but empty segments."""
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        stat = disk.stat(path) if paths.base_offset_of(name) is not None else None
        if stat is None or stat.size_bytes or disk.kind(path) is not FileKind.FILE:
            return False
    return True


def _is_partition(disk: Disk, directory: str, name: str) -> bool:
    has_name = paths.is_partition_number(name) or paths.move_directory_of(name) is not None
    return has_name and disk.kind(f"{directory}/{name}") is FileKind.DIRECTORY
