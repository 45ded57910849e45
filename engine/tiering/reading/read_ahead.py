"""Decides which blocks of an object to fetch before they are requested. Pure.

A reader that goes from one block to the next gets 1 block ahead, then 2, 4 and 8. A single read gets none, unless it
begins with the object: a reader that comes from the object before goes on. Several readers of one object have a state
each, known by the block that it has read last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

BLOCKS_MAX = 8  # 8 MiB: 80 ms of a store's answers at 100 MB/s
_READERS_MAX = 256


class _Reader(NamedTuple):
    window: int  # blocks to be ahead
    ahead: int  # the first block that was not requested for this reader


class ReadAhead:
    """The readers of a process. Not safe for threads."""

    def __init__(self) -> None:
        self._readers: OrderedDict[tuple[str, int], _Reader] = OrderedDict()  # by object and last block

    def advance(self, key: str, first: int, last: int, blocks: int, *, is_start: bool) -> range:
        """Note a read of the blocks `first` to `last` of an object of `blocks`; return those to fetch now.

        `is_start`: the read begins with the object.
        """
        reader = self._readers.pop((key, first), None)
        has_moved = reader is None or last > first
        if reader is None:
            reader = self._readers.pop((key, first - 1), None)
        if reader is None:
            reader = _Reader(0, last + 1)
            has_moved = is_start
        blocks_ahead = range(0)
        if has_moved and reader.ahead - (last + 1) <= reader.window // 2:
            window = min(2 * reader.window or 1, BLOCKS_MAX)
            blocks_ahead = range(max(reader.ahead, last + 1), min(last + 1 + window, blocks))
            reader = _Reader(window, max(reader.ahead, blocks_ahead.stop))
        self._readers[key, last] = reader
        if len(self._readers) > _READERS_MAX:
            self._readers.popitem(last=False)
        return blocks_ahead
