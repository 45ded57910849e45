"""The newest batches of the logs that this process leads, in memory: followers get them without a read of the file.

A follower in sync wants what was just written. A cache refers to the buffers of that write, so that nothing is copied.
It is never evidence: what it does not have is read from the file. It does not know who may see a batch: the caller
names the limit. A log clears its cache when its end is cut off or its files change (Log.forget_recent); a cache ends
with the leadership (replication/replica/replica_host.py).
Invariants: the entries of a cache are contiguous, each has whole batches of one segment, and their bytes are those of
the file; all caches of a process together take at most `bytes_max`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.format.batch_header import Buffer, Header, begins_batch

PART_BYTES_MIN = 4096  # of an entry, but for the last of a write: as far apart as the entries of an index
ENTRY_BYTES = 400  # what an entry takes besides its batches


class CachedBatches(NamedTuple):
    """Whole batches of one segment, in pieces. `next_offset` follows the last record."""

    pieces: list[Buffer]
    size_bytes: int
    next_offset: int


class _Entry(NamedTuple):
    pieces: list[Buffer]
    size_bytes: int
    next_offset: int
    is_segment_start: bool


class BatchCaches:
    """The caches of one process, and their common bound. The log that was written longest ago gives way first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_age: OrderedDict[BatchCache, None] = OrderedDict()  # those with entries
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"BatchCaches({self.size_bytes} of {self._bytes_max} bytes, {len(self._by_age)} logs)"

    def new(self) -> BatchCache:
        return BatchCache(self)

    def count(self, cache: BatchCache, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._by_age[cache] = None
        self._by_age.move_to_end(cache)
        while self.size_bytes > self._bytes_max:
            next(iter(self._by_age)).drop_oldest()

    def shrunk(self, cache: BatchCache, size_bytes: int) -> None:
        self.size_bytes -= size_bytes
        if not len(cache):
            del self._by_age[cache]


class BatchCache:
    """The newest batches of one log."""

    __slots__ = ("_begin", "_caches", "_end", "_entries")

    def __init__(self, caches: BatchCaches) -> None:
        self._caches = caches
        self._entries: dict[int, _Entry] = {}  # by the offset of the first record
        self._begin = self._end = 0

    def __repr__(self) -> str:
        return f"BatchCache({self._begin} to {self._end}, {len(self._entries)} entries)"

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, headers: Sequence[Header], buffers: Sequence[Buffer], *, is_segment_start: bool) -> None:
        """Takes the buffers of a write at the end of the log, which stay as they are."""
        begin = headers[0].base_offset
        if begin != self._end:
            self.clear()
            self._begin = begin
        added_bytes = 0
        for pieces, size_bytes, next_offset in _parts(headers, buffers):
            self._entries[begin] = _Entry(pieces, size_bytes, next_offset, is_segment_start)
            begin, is_segment_start = next_offset, False
            added_bytes += size_bytes + ENTRY_BYTES
        self._end = begin
        self._caches.count(self, added_bytes)

    def read(self, offset: int, max_bytes: int, limit: int) -> CachedBatches | None:
        """Returns batches from this offset on, up to `max_bytes`, at least those of one entry. None if it has none.

        All their records are below `limit`.
        """
        entries: list[_Entry] = []
        size_bytes, end = 0, offset
        while (entry := self._entries.get(end)) is not None and entry.next_offset <= limit:
            size_bytes += entry.size_bytes
            if entries and (entry.is_segment_start or size_bytes > max_bytes):
                size_bytes -= entry.size_bytes
                break
            if not begins_batch(entry.pieces[0], 0, end):  # its owner has appended the buffer once more
                self.clear()
                return None
            entries.append(entry)
            end = entry.next_offset
        return (
            CachedBatches([piece for entry in entries for piece in entry.pieces], size_bytes, end) if entries else None
        )

    def drop_below(self, offset: int) -> None:
        """Drops what every follower in sync has."""
        while (entry := self._entries.get(self._begin)) is not None and entry.next_offset <= offset:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        entry = self._entries.pop(self._begin)
        self._begin = entry.next_offset
        self._caches.shrunk(self, entry.size_bytes + ENTRY_BYTES)

    def clear(self) -> None:
        while self._entries:
            self.drop_oldest()


def _parts(headers: Sequence[Header], buffers: Sequence[Buffer]) -> Iterator[tuple[list[Buffer], int, int]]:
    """Yields the batches of a write with their size and the offset that follows: large ones alone, small ones joined.

    A batch has one buffer or several of its own, unless all batches are one buffer.
    """
    if len(buffers) == 1 or len(headers) == 1:
        yield list(buffers), sum(map(len, buffers)), headers[-1].next_offset
        return
    rest = iter(buffers)
    pieces: list[Buffer] = []
    batches = size_bytes = 0
    for number, header in enumerate(headers, 1):
        missing = header.size_bytes
        batches, size_bytes = batches + 1, size_bytes + missing
        while missing > 0:
            piece = next(rest)
            pieces.append(piece)
            missing -= len(piece)
        assert missing == 0, "a buffer has the end of one batch and the beginning of another"
        if size_bytes >= PART_BYTES_MIN or number == len(headers):
            yield pieces if batches == 1 else [b"".join(pieces)], size_bytes, header.next_offset
            pieces, batches, size_bytes = [], 0, 0
