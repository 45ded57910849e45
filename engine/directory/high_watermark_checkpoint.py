"""The file `high-watermarks` of a data directory: the last known high watermark of each partition of a cluster.

A hint: an opening replica begins with it, limited by its log, so that records shown before a restart are shown after
it. Without it a replica begins at its log_start and learns the high watermark from the leader, or as leader. Written
with the recovery points. A standalone node has none. Fsynced where a position goes back, so that a power loss never
makes it greater than it was: a follower keeps every record below its high watermark (replication/cores/follower.py).
Layout: engine/format/FORMAT.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.runtime.disk import Disk, read_file, write_atomically, write_fully

_HEADER = "penstock high-watermarks 1"


def load_high_watermarks(disk: Disk, data_dir: str) -> dict[str, int]:
    """Returns the high watermarks by `<topic id>/<partition>`, of all processes of the last run."""
    hints = _read(disk, os.path.join(data_dir, paths.HIGH_WATERMARKS))
    for name in _part_files(disk, data_dir):
        hints |= _read(disk, os.path.join(data_dir, name))
    return hints


def merge_high_watermarks(disk: Disk, data_dir: str) -> None:
    """Merges the files of several processes into one: partitions may belong to other processes now."""
    parts = _part_files(disk, data_dir)
    if parts:
        save_high_watermarks(disk, data_dir, None, load_high_watermarks(disk, data_dir), is_durable=True)
        for name in parts:
            disk.unlink(os.path.join(data_dir, name))


def save_high_watermarks(
    disk: Disk, data_dir: str, part: int | None, hints: Mapping[str, int], *, is_durable: bool = False
) -> None:
    """Replaces the file of a whole directory, or of one process's part of it. Raises OSError."""
    text = rows_as_text(_HEADER, [f"{name} {position}" for name, position in sorted(hints.items())])
    target = os.path.join(data_dir, paths.high_watermarks_file(part))
    if is_durable:
        write_atomically(disk, target, text)
        return
    handle = disk.open(target + ".tmp", create=True, writable=True)
    try:
        disk.truncate(handle, 0)
        write_fully(disk, handle, text, 0)
    finally:
        disk.close(handle)
    disk.rename(target + ".tmp", target)


def _read(disk: Disk, file: str) -> dict[str, int]:
    try:
        return {name: int(position) for name, position in read_rows(_HEADER, read_file(disk, file)) or ()}
    except ValueError:
        return {}


def _part_files(disk: Disk, data_dir: str) -> list[str]:
    return [name for name in disk.listdir(data_dir) if paths.is_part_of_high_watermarks(name)]
