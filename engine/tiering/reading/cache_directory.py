"""The directory of the cache of tiered segments: the space that its file takes, and what earlier versions left in it.

Versions before the file of blocks kept copies of whole segments, in a directory for each shard.
"""

from __future__ import annotations

import os
from contextlib import suppress

import aiofiles.os

from engine.format import paths


def allocated_bytes(path: str) -> int:
    """Returns the bytes that a file takes on the disk: less than its size where blocks were never written."""
    with suppress(OSError):
        return os.stat(path).st_blocks * 512
    return 0


async def remove_copies(directory: str) -> None:
    """Removes copies of whole segments, and the directories of shards. Foreign files and links stay."""
    try:
        names = await aiofiles.os.listdir(directory)
    except OSError:  # absent, or the disk fails, which the cache reports
        return
    for name in names:
        path = os.path.join(directory, name)
        with suppress(OSError):
            if await aiofiles.os.path.islink(path):
                continue
            if paths.is_store_segment(name.removesuffix(".part")):
                await aiofiles.os.remove(path)
            elif name.isdecimal():
                await remove_copies(path)
                await aiofiles.os.rmdir(path)
