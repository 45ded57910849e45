"""The file `running` of a data directory: there from before the first write until after the last fsync of a clean stop.

Says in which boot of the machine the node was started, and whether a power loss before that has been recovered from.
What follows from it is engine/directory/data_directory.py's to say. Layout: engine/format/FORMAT.md.
"""

from __future__ import annotations

import os

import orjson

from engine.errors import NO_SPACE
from engine.format import paths
from engine.runtime.disk import Disk, read_file, write_atomically, write_fully


def write_running(disk: Disk, path: str, boot_id: str, *, is_recovered: bool) -> None:
    """Make `running` say so, durably. Raises OSError.

    On a full disk a file that is there is overwritten where it is, which needs no room. Cut short, that leaves a file
    that cannot be read, which counts as a power loss: more is scanned, nothing is lost.
    """
    file, data = os.path.join(path, paths.RUNNING), orjson.dumps({"boot_id": boot_id, "recovered": is_recovered})
    if read_file(disk, file) == data:
        return
    try:
        write_atomically(disk, file, data)
    except OSError as error:
        if error.errno not in NO_SPACE or disk.stat(file) is None:
            raise
        handle = disk.open(file, writable=True)
        try:
            write_fully(disk, handle, data, 0)
            disk.truncate(handle, len(data))
            disk.fdatasync(handle)
        finally:
            disk.close(handle)


def is_same_boot(disk: Disk, path: str, boot_id: str) -> bool | None:
    """Whether the node was started in this boot of the machine and has recovered from any before; None: no file."""
    data = read_file(disk, os.path.join(path, paths.RUNNING))
    if data is None:
        return None
    try:
        running = orjson.loads(data)
        return running["boot_id"] == boot_id and running.get("recovered", True) is True
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return False
