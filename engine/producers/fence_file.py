"""The file `fenced` beside a log: records that it has had a fencing token, and the one whose batch was deleted.

Layout: engine/format/FORMAT.md; reasons and times of its writes: engine/partition/fence_checkpoint.py.
"""

from __future__ import annotations

import os

from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import write_without_room
from engine.producers.fencing import NO_FENCE, Fence
from engine.runtime.disk import Disk, read_file

_HEADER = "penstock fenced 1"


def save_fence(disk: Disk, directory: str, fence: Fence = NO_FENCE) -> None:
    """Replaces the file durably; without a fence it states only that the log may have one. Raises OSError."""
    rows = [] if fence == NO_FENCE else [f"{fence.offset} {fence.token}"]
    write_without_room(disk, _file(directory), rows_as_text(_HEADER, rows))


def load_fence(disk: Disk, directory: str) -> Fence | None:
    """Returns the fence whose batch was deleted; NO_FENCE without one. None: the log has never had a token.

    A file in doubt proves only that there was one.
    """
    data = read_file(disk, _file(directory))
    if data is None:
        return None
    rows = read_rows(_HEADER, data)
    return Fence(rows[0][1], int(rows[0][0])) if rows else NO_FENCE


def _file(directory: str) -> str:
    return os.path.join(directory, paths.FENCED)
