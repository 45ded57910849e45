"""One file of a partition's log, with its indexes: its known state, not its writing.

The last segment of a log is active and grows; all others are sealed and never change again.
Invariant: `size_bytes` and `next_offset` count only whole batches that a finished write has put into the page cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from engine.errors import Corrupt
from engine.format import paths
from engine.format.batch import HEADER_BYTES, MAGIC, Buffer, Header, read_header
from engine.format.checksum import Checksum, load_checksum
from engine.format.index import SegmentIndex, load_index
from engine.log.damaged_ranges import Damage
from engine.runtime.disk import Disk, WouldBlock, read_derived, replace_file

MOVE_S = 10.0  # a reader waits while a segment changes its directory, which takes two syncs
READ_AHEAD_BYTES = 16 * 1024  # one read covers many small batches; of large ones it wastes little

_LOCK = threading.Lock()  # of all segments: held for a few assignments, never for a call of the disk


class Segment:
    """A run of batches from `base_offset` to before `next_offset`.

    Any thread but the event loop's opens the handle, at first need. The handle of a deleted, replaced or sealed segment
    closes when its last reader is done, so that a read in another thread never meets a closed handle.
    """

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size_bytes: int = 0, next_offset: int = 0
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.next_offset = max(next_offset, base_offset)
        self.size_bytes = size_bytes
        self.created_ms: int | None = None
        self.last_append_ms = 0
        self.damage: tuple[Damage, ...] = ()  # known to be bad, never served
        # None until `index` loads it, which reads two files: 3 ms for 64 MiB of large batches
        self.loaded_index: SegmentIndex | None = SegmentIndex(base_offset) if size_bytes == 0 else None
        self._handle: int | None = None
        self._replaced: list[int] = []  # handles that no new reader gets, still being read
        self._readers = 0
        self._is_deleted = False
        self.is_made = True  # False: the first append makes the file
        self.is_being_replaced = False  # another file may have its name: what is found there is not this segment
        self.changes = 0  # of written bytes: truncations, damage and repairs; a copy made before one is not this file's
        self.moved: threading.Event | None = None  # set when the file has its new directory

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.next_offset}, {self.size_bytes} bytes)"

    @property
    def path(self) -> str:
        return self.file(paths.LOG)

    def file(self, suffix: str) -> str:
        return f"{self.directory}/{paths.segment_file(self.base_offset, suffix)}"

    @property
    def handle(self) -> int:
        """Opens the file if it is closed: not for the event loop, unless the segment is active."""
        if (handle := self._handle) is not None:
            return handle
        is_made = self.is_made
        try:
            handle = self.disk.open(self.path) if is_made else self.disk.open(self.path, create=True, writable=True)
        except FileNotFoundError:
            if not is_made or self.moved is None or not self.moved.wait(MOVE_S):
                raise
            handle = self.disk.open(self.path)
        surplus: int | None = handle
        with _LOCK:
            self.is_made = True
            if self._handle is None:
                self._handle, surplus = handle, None
            handle = self._handle
        if surplus is not None:  # another thread was faster
            self.disk.close(surplus)
        return handle

    @property
    def is_open(self) -> bool:
        """True if a call needs to open no file."""
        return self._handle is not None and self.disk.is_open(self._handle)

    def pread(self, length: int, position: int) -> bytes:
        return self.disk.pread(self.handle, length, position)

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray:
        """Reads only from memory. Raises WouldBlock, also if the file or its index is not open yet."""
        if self._handle is None or self.loaded_index is None:
            raise WouldBlock
        return self.disk.pread_nowait(self._handle, length, position)

    def make_at_append(self) -> None:
        """Makes the file of an empty log at the first append: many partitions of a large topic never get one."""
        self.is_made = False

    def use_append_handle(self, handle: int) -> None:
        """Sets the handle that the writer has opened or created; reads use it too."""
        assert self._handle is None
        self._handle = handle

    @property
    def index(self) -> SegmentIndex:
        if self.loaded_index is None:
            self.loaded_index = load_segment_index(self)
        return self.loaded_index

    def set_index(self, index: SegmentIndex) -> None:
        self.loaded_index = index

    @property
    def written_checksum(self) -> Checksum | None:
        """The checksum of the whole file as this process wrote it; None if it did not write all."""
        crc = None if self.loaded_index is None else self.loaded_index.checksums.file_checksum(self.size_bytes)
        return None if crc is None else Checksum(self.size_bytes, crc)

    @property
    def max_timestamp(self) -> int:
        return self.index.max_timestamp

    def bytes_below(self, offset: int) -> int:
        """Estimates the bytes below an offset; all records count as equally large while no index is loaded."""
        if self.loaded_index is not None:
            return self.loaded_index.position_at_or_before(offset)
        return self.size_bytes * (offset - self.base_offset) // (self.next_offset - self.base_offset)

    def first_timestamp(self) -> int | None:
        """Returns the time of the first batch, in ms; None while the segment is empty."""
        if self.size_bytes < HEADER_BYTES:
            return None
        return read_header(self.pread(HEADER_BYTES, 0)).base_timestamp

    def add_batches(self, headers: Sequence[Header], buffers: Sequence[Buffer], now_ms: int) -> None:
        """Adds contiguous batches written at the end; `buffers` hold their bytes."""
        self.last_append_ms = now_ms
        assert headers[0].base_offset == self.next_offset
        self.size_bytes = self.index.add_written(headers, buffers, self.size_bytes)
        self.next_offset = headers[-1].next_offset

    def set_being_replaced(self, *, is_being_replaced: bool) -> None:
        self.is_being_replaced = is_being_replaced

    def begin_read(self) -> Callable[[], None]:
        """Keeps the handle open, if there is one, until the caller calls the returned function. Opens nothing.

        Any thread may call both.
        """
        with _LOCK:
            self._readers += 1
        return self._end_read

    def _end_read(self) -> None:
        with _LOCK:
            self._readers -= 1
        self._close_if_idle()

    def mark_replaced(self, size_bytes: int) -> None:
        """Forgets the state of the earlier file after a good copy has replaced it."""
        self.changes += 1
        self._retire_handle()
        self.loaded_index = None
        self.size_bytes, self.damage = size_bytes, ()
        self._close_if_idle()

    def mark_damaged(self, damages: tuple[Damage, ...], size_bytes: int) -> None:
        """Sets the damaged records, which are not served, and the file's size; batches may have moved in it."""
        self.changes += 1
        self._retire_handle()
        self.loaded_index = None
        self.size_bytes, self.damage = size_bytes, damages
        self._close_if_idle()

    def mark_lost(self) -> None:
        """Marks the file as missing or empty: no record of it can be read, through any handle."""
        damage = self.damage
        self.mark_replaced(0)
        self.damage, self.loaded_index = damage, SegmentIndex(self.base_offset)
        self.loaded_index.is_partial = True

    def shorten(self, handle: int, next_offset: int, size_bytes: int, index: SegmentIndex) -> None:
        """Sets the new end after a truncation; this handle appends from now on."""
        self.changes += 1
        self._retire_handle()
        self._handle, self.loaded_index = handle, index
        self.next_offset, self.size_bytes = next_offset, size_bytes
        self.damage = tuple(damage for damage in self.damage if damage.start_offset < next_offset)
        self._close_if_idle()

    def move_to(self, directory: str, handle: int | None) -> None:
        """Sets the directory that has the file now, and the handle that appends to it; None for a sealed segment."""
        self._retire_handle()
        self.directory, self._handle, self.is_being_replaced = directory, handle, False
        self._close_if_idle()

    def seal(self) -> None:
        """Ends writing: all bytes are durable. Reads open the file again if they need it."""
        self._retire_handle()
        self._close_if_idle()

    def mark_deleted(self) -> None:
        """Closes the file, removed from its directory, once the last reader is done."""
        self._is_deleted = True
        self._close_if_idle()

    def close(self) -> None:
        if self._handle is not None:
            self.disk.close(self._handle)
            self._handle = None

    def _retire_handle(self) -> None:
        with _LOCK:
            self._replaced += [] if self._handle is None else [self._handle]
            self._handle = None

    def _close_if_idle(self) -> None:
        with _LOCK:
            if self._readers:
                return
            idle, self._replaced = self._replaced, []
            if self._is_deleted and self._handle is not None:
                idle.append(self._handle)
                self._handle = None
        for handle in idle:
            self.disk.close(handle)


def save_index(disk: Disk, segment: Segment) -> None:
    """Writes both index files of a segment that will not grow any more, or not before a restart.

    Durable before the rename, so that a crash cannot leave zeros that look like entries.
    """
    index = segment.index
    for suffix, data in (
        (paths.OFFSET_INDEX, index.offset_index_bytes(segment.size_bytes)),
        (paths.TIME_INDEX, index.time_index_bytes(segment.size_bytes)),
    ):
        replace_file(disk, segment.file(suffix), data)


def load_segment_index(segment: Segment) -> SegmentIndex:
    """Returns the saved indexes, or new ones from the batch headers if the saved are absent or in doubt.

    Raises Corrupt if the segment does not end where the next one begins: reads must not cross a hole. Skips the check
    of the end for a segment with known damage: reads skip the damage.
    """
    index = saved_index(segment.disk, segment.path, segment.base_offset, segment.size_bytes)
    if index is None or (segment.damage and not _holds(index, segment)):
        index = index_from_headers(segment)
    if segment.damage:
        return index
    end = segment.base_offset
    for _, header in headers_after_index(segment, index):
        end = header.next_offset
    if segment.next_offset not in (segment.base_offset, end):  # equals the base offset while its end is unknown
        raise Corrupt(f"{segment.path} ends at offset {end}, the next segment begins at {segment.next_offset}")
    return index


def _holds(index: SegmentIndex, segment: Segment) -> bool:
    """True if the batches of a damaged file are where its index has them: bytes may have been taken out.

    An entry of a damaged batch must not point outside of the damage, unless it points behind the file.
    """
    for position in index.positions:
        offset = index.offset_at(position)
        damage = next(
            (
                damaged_range
                for damaged_range in segment.damage
                if damaged_range.start_offset <= offset < damaged_range.end_offset
            ),
            None,
        )
        if damage is not None:
            is_inside = damage.start_position <= position < damage.end_position
            if not is_inside and not (damage.end_position <= position and damage.end_offset == segment.next_offset):
                return False
            continue
        data = segment.pread(HEADER_BYTES, position)
        if len(data) < HEADER_BYTES or not can_follow(read_header(data), offset, segment.size_bytes - position):
            return False
    return True


def saved_index(disk: Disk, log_path: str, base_offset: int, size_bytes: int) -> SegmentIndex | None:
    """Returns the saved indexes of a segment file; None if they are absent or in doubt.

    They are valid for the file's size at sealing. A checksum file has that size, and takes precedence: the file may
    have been cut off since.
    """
    offsets = read_derived(disk, paths.beside_log(log_path, paths.OFFSET_INDEX))
    times = read_derived(disk, paths.beside_log(log_path, paths.TIME_INDEX))
    if offsets is None or times is None:
        return None
    index = load_index(base_offset, offsets, times, size_bytes)
    if index is None and (sealed := load_checksum(disk, log_path)) is not None and sealed.size_bytes != size_bytes:
        index = load_index(base_offset, offsets, times, sealed.size_bytes)
    return index


def index_from_headers(segment: Segment) -> SegmentIndex:
    """Walks the headers of a whole segment, around known damage. Raises Corrupt where they do not join.

    Damaged records count as no later than the batch behind them: a search for an earlier time must begin before them.
    """
    index, end = SegmentIndex(segment.base_offset), 0
    index.is_partial = bool(segment.damage)
    for position, header in valid_headers(segment):
        if position != end:
            index.max_timestamp = max(index.max_timestamp, header.max_timestamp)
        index.add(header, position)
        end = position + header.size_bytes
    return index


def valid_headers(segment: Segment) -> Iterator[tuple[int, Header]]:
    """Yields every batch's position and header except known damage. Raises Corrupt where they do not join."""
    position, offset = 0, segment.base_offset
    for damage in segment.damage:
        yield from headers(segment, position, offset, damage.start_position)
        position, offset = damage.end_position, damage.end_offset
    if not segment.damage or offset < segment.next_offset:  # else the file may be shorter than its size was
        yield from headers(segment, position, offset)


def headers_after_index(segment: Segment, index: SegmentIndex) -> Iterator[tuple[int, Header]]:
    """Yields the batches from the last one in the index on, to learn where a segment ends."""
    position = index.boundary_at_or_before(segment.size_bytes)
    return headers(segment, position, index.offset_at(position) if index.positions else segment.base_offset)


def headers(
    segment: Segment, position: int, expected_offset: int, end: int | None = None
) -> Iterator[tuple[int, Header]]:
    """Yields every batch's position and header, from a batch start to `end`, or else to the end of the file.

    Raises Corrupt for bytes that are not a header.
    """
    end = segment.size_bytes if end is None else end
    window, window_at = b"", 0
    while position < end:
        if position + HEADER_BYTES > window_at + len(window):
            window, window_at = segment.pread(READ_AHEAD_BYTES, position), position
        if len(window) - (position - window_at) < HEADER_BYTES:
            raise Corrupt(f"{segment.path}: no whole batch header at byte {position}")
        header = read_header(window, position - window_at)
        if not can_follow(header, expected_offset, end - position):
            raise Corrupt(f"{segment.path}: no batch of offset {expected_offset} at byte {position}")
        yield position, header
        position += header.size_bytes
        expected_offset = header.next_offset


def can_follow(header: Header, expected_offset: int, bytes_left: int) -> bool:
    """True if this can be the header of the next batch. False for zeros and for bytes of an earlier file."""
    return (
        header.magic == MAGIC
        and header.base_offset == expected_offset
        and header.last_offset_delta >= 0
        and HEADER_BYTES <= header.size_bytes <= bytes_left
    )
