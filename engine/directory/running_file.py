"""The file `running` of a data directory: exists from before the first write until after the last fsync of a clean
stop.

States the boot of the machine in which the node was started, and whether a power loss before it has been recovered
from.
engine/directory/data_directory.py draws the conclusions. Layout: engine/format/FORMAT.md.
"""

from __future__ import annotations

import os

import orjson

from engine.errors import NO_SPACE
from engine.format import paths
from engine.format.spare_files import write_without_room
from engine.runtime.disk import Disk, read_file, write_fully


def write_running(disk: Disk, path: str, boot_id: str, *, is_recovered: bool) -> None:
    """Writes `running` durably. Raises OSError.

    On a full disk without spare files an existing file is overwritten in place, which needs no room. An interruption
    leaves an unreadable file, which counts as a power loss: more is scanned, nothing is lost.
    """
    file, data = os.path.join(path, paths.RUNNING), orjson.dumps({"boot_id": boot_id, "recovered": is_recovered})
    if read_file(disk, file) == data:
        return
    try:
        write_without_room(disk, file, data)
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
    """True if the node started in this boot and has recovered from any power loss before; None without a file."""
    data = read_file(disk, os.path.join(path, paths.RUNNING))
    if data is None:
        return None
    try:
        running = orjson.loads(data)
        return running["boot_id"] == boot_id and running.get("recovered", True) is True
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return False
