"""Spare files of a data directory: with no free byte, a small file that frees space or keeps a log usable is written
into one of them.

`<data>/spare/` holds a few files of zeros. Their blocks and inodes are allocated, so overwriting one, cutting it short
and renaming it over an existing file needs no room on a file system that writes in place (ext4, XFS, tmpfs). Records
never use them: a shard refuses appends while its spare files are incomplete and there is no room to make them again.
Invariants:
- a spare file gets its final name only once its bytes are durable, so a crash leaves the old or the new file whole;
- it is claimed by a rename: two threads or processes never write the same one.
A claimed file that a crash has left is removed by the next start. Derived: without the directory everything works but
writes on a full disk.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from engine.errors import NO_SPACE
from engine.format import paths
from engine.runtime.disk import Disk, FileKind, write_atomically, write_fully

SMALL_BYTES = 16 * 1024  # a topic's metadata, a fence, epochs, a snapshot of few producers
LARGE_BYTES_MIN = 64 * 1024  # recovery points of about a thousand partitions
SMALL, LARGE = 6, 2  # retention of several partitions may begin before the first one has freed its segment
_PARENTS_MAX = 6  # a partition's file is four directories below the data directory


def write_without_room(disk: Disk, path: str, data: bytes) -> None:
    """Replaces a small file as `write_atomically` does; with no free byte, by a spare file. Raises OSError."""
    try:
        write_atomically(disk, path, data)
    except OSError as error:
        if error.errno not in NO_SPACE or not _write_into_spare(disk, path, data):
            raise


def fill_spares(disk: Disk, data_dir: str, part: int | None = None) -> bool:
    """Makes the missing spare files. Returns False if there is no room for them. Raises other OSErrors.

    `part`: of the process, as several share a directory. Not fsynced: a file in the page cache has its room.
    """
    directory = os.path.join(data_dir, paths.SPARE)
    try:
        if disk.kind(directory) is not FileKind.DIRECTORY:
            disk.mkdir(directory)
        return all(_fill(disk, directory, n, size, part) for n, size in enumerate(_sizes(disk, data_dir)))
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return False


def remove_claimed(disk: Disk, data_dir: str) -> None:
    """Removes what an interrupted run has left, at a start: files that were claimed or not whole. Raises OSError."""
    directory = os.path.join(data_dir, paths.SPARE)
    for name in disk.listdir(directory):
        path = os.path.join(directory, name)
        if paths.is_unfinished_spare(name) and disk.kind(path) is FileKind.FILE:
            disk.unlink(path)


def claim_spare(disk: Disk, path: str, size_bytes: int) -> str | None:
    """Takes the smallest spare file that has room for these bytes, for a file of the same data directory.

    Returns its path, which is the caller's now; None without one. Raises OSError.
    """
    directory = _spare_directory(disk, path)
    if directory is None:
        return None
    names = filter(paths.is_spare, disk.listdir(directory))
    having = ((stat.size_bytes, name) for name in names if (stat := disk.stat(f"{directory}/{name}")) is not None)
    for size, name in sorted(having):
        if size >= size_bytes:
            claimed = f"{directory}/{name}.{os.getpid()}-{threading.get_ident()}{paths.TEMPORARY}"
            with suppress(FileNotFoundError):  # another one was quicker
                disk.rename(f"{directory}/{name}", claimed)
                return claimed
    return None


def overwrite_spare(disk: Disk, claimed: str, data: bytes, *, keeps_room: bool) -> int:
    """Writes these bytes durably into a claimed file, in place of its zeros or before them. Returns its handle.

    Raises OSError: the file is removed, and its room serves the next one.
    """
    handle = disk.open(claimed, writable=True)
    try:
        write_fully(disk, handle, data, 0)
        if not keeps_room:
            disk.truncate(handle, len(data))
        disk.fdatasync(handle)
    except OSError:
        disk.close(handle)
        with suppress(OSError):
            disk.unlink(claimed)
        raise
    return handle


def _write_into_spare(disk: Disk, path: str, data: bytes) -> bool:
    with suppress(OSError):
        disk.unlink(path + paths.TEMPORARY)
    claimed = claim_spare(disk, path, len(data))
    if claimed is None:
        return False
    try:
        disk.close(overwrite_spare(disk, claimed, data, keeps_room=False))
    except OSError as error:
        if error.errno not in NO_SPACE:  # a file system that copies on write may need room for an overwrite
            raise
        return False
    disk.rename(claimed, path)
    disk.fsync_dir(os.path.dirname(path))
    return True


def _spare_directory(disk: Disk, path: str) -> str | None:
    """Returns the spare directory of the data directory that holds a file: it has the file `meta`."""
    for _ in range(_PARENTS_MAX):
        path = os.path.dirname(path)
        if disk.kind(f"{path}/{paths.META}") is FileKind.FILE:
            return f"{path}/{paths.SPARE}"
    return None


def _sizes(disk: Disk, data_dir: str) -> list[int]:
    """Returns the sizes of all spare files: a large one holds twice what the checkpoints of the directory take."""
    stats = [disk.stat(os.path.join(data_dir, name)) for name in disk.listdir(data_dir) if paths.is_checkpoint(name)]
    large = LARGE_BYTES_MIN
    while large < 2 * sum(stat.size_bytes for stat in stats if stat is not None):
        large *= 2
    return [SMALL_BYTES] * SMALL + [large] * LARGE


def _fill(disk: Disk, directory: str, number: int, size_bytes: int, part: int | None) -> bool:
    path = f"{directory}/{number}"
    stat = disk.stat(path)
    if stat is not None and stat.size_bytes >= size_bytes:
        return True
    new = f"{path}.new-{part or 0}{paths.TEMPORARY}"
    try:
        handle = disk.open(new, create=True, writable=True)
        try:
            write_fully(disk, handle, bytes(size_bytes), 0)
        finally:
            disk.close(handle)
    except OSError as error:
        with suppress(OSError):
            disk.unlink(new)
        if error.errno not in NO_SPACE:
            raise
        return False
    disk.rename(new, path)
    return True
