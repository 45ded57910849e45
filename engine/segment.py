"""One file of a partition's log, with its indexes: what is known of it, not how it is written.

The last segment of a log is active and grows; all others are sealed and never change again.
Invariant: `size_bytes` and `next_offset` count only whole batches that a finished write has put into the page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine import paths
from engine.batch import HEADER_BYTES, MAGIC, Header, read_header
from engine.damage import Damage
from engine.disk import Disk, read_file, write_fully
from engine.errors import Corrupt
from engine.index import SegmentIndex, load_index

READ_AHEAD_BYTES = 16 * 1024  # small batches are walked many with one read, of large ones little is read in vain


class Segment:
    """A run of batches from `base_offset` to before `next_offset`.

    The file handle is opened at first need. A deleted segment's handle closes when its last reader is done, so that a
    read in another thread never meets a closed or reused handle.
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
        self._index: SegmentIndex | None = SegmentIndex(base_offset) if size_bytes == 0 else None
        self._handle: int | None = None
        self._replaced: list[int] = []  # handles of files that are at the path no more, still being read
        self._readers = 0
        self._is_deleted = False

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.next_offset}, {self.size_bytes} bytes)"

    @property
    def path(self) -> str:
        return self.file(paths.LOG)

    def file(self, suffix: str) -> str:
        return f"{self.directory}/{paths.segment_file(self.base_offset, suffix)}"

    @property
    def handle(self) -> int:
        if self._handle is None:
            self._handle = self.disk.open(self.path)
        return self._handle

    def opened_for_append(self, handle: int) -> None:
        """The writer has opened or created the file; the handle serves reads as well."""
        assert self._handle is None
        self._handle = handle

    @property
    def index(self) -> SegmentIndex:
        if self._index is None:
            self._index = load_segment_index(self)
        return self._index

    @property
    def is_loaded(self) -> bool:
        """Whether `index` is at hand. Loading it reads two files: 3 ms for 64 MiB of large batches."""
        return self._index is not None

    def set_index(self, index: SegmentIndex) -> None:
        self._index = index

    @property
    def max_timestamp(self) -> int:
        return self.index.max_timestamp

    def first_timestamp(self) -> int | None:
        """The time of the first batch; None while the segment is empty."""
        if self.size_bytes < HEADER_BYTES:
            return None
        return read_header(self.disk.pread(self.handle, HEADER_BYTES, 0)).base_timestamp

    def appended(self, headers: Sequence[Header], now_ms: int) -> None:
        """Batches have been written at the end, one after the other."""
        self.last_append_ms = now_ms
        assert headers[0].base_offset == self.next_offset
        self.size_bytes = self.index.add_all(headers, self.size_bytes)
        self.next_offset = headers[-1].next_offset

    def begin_read(self) -> Callable[[], None]:
        """Hold the handle open; call what is returned when the read is done."""
        self._readers += 1
        _ = self.handle
        return self._end_read

    def _end_read(self) -> None:
        self._readers -= 1
        self._close_if_idle()

    def replaced(self, size_bytes: int) -> None:
        """A good file stands at the path now: forget what was known of the one before."""
        if self._handle is not None:
            self._replaced.append(self._handle)
        self._handle, self._index = None, None
        self.size_bytes, self.damage = size_bytes, ()
        self._close_if_idle()

    def shortened(self, handle: int, next_offset: int, size_bytes: int, index: SegmentIndex) -> None:
        """The file has been cut, and this handle appends to it from now on."""
        if self._handle is not None:
            self._replaced.append(self._handle)
        self._handle, self._index = handle, index
        self.next_offset, self.size_bytes, self.damage = next_offset, size_bytes, ()
        self._close_if_idle()

    def deleted(self) -> None:
        """The file is gone from its directory: close it as soon as nobody reads."""
        self._is_deleted = True
        self._close_if_idle()

    def close(self) -> None:
        if self._handle is not None:
            self.disk.close(self._handle)
            self._handle = None

    def _close_if_idle(self) -> None:
        if self._readers == 0:
            while self._replaced:
                self.disk.close(self._replaced.pop())
            if self._is_deleted:
                self.close()


def save_index(disk: Disk, segment: Segment) -> None:
    """Write both index files of a segment that will not grow any more, or not before a restart.

    Durable before the rename, so that a crash cannot leave zeros that look like entries.
    """
    index = segment.index
    for suffix, data in (
        (paths.OFFSET_INDEX, index.offset_index_bytes(segment.size_bytes)),
        (paths.TIME_INDEX, index.time_index_bytes(segment.size_bytes)),
    ):
        target = segment.file(suffix)
        handle = disk.open(target + ".tmp", create=True, writable=True)
        try:
            disk.truncate(handle, 0)
            write_fully(disk, handle, data, 0)
            disk.fdatasync(handle)
        finally:
            disk.close(handle)
        disk.rename(target + ".tmp", target)


def load_segment_index(segment: Segment) -> SegmentIndex:
    """The saved indexes, or, where they are absent or doubtful, new ones from the batch headers.

    Raises Corrupt when the segment does not end where the next one begins: a hole, which must not be read across. Of a
    segment with known damage only what lies before it is walked, since reads go round it.
    """
    offsets = read_file(segment.disk, segment.file(paths.OFFSET_INDEX))
    times = read_file(segment.disk, segment.file(paths.TIME_INDEX))
    index = None
    if offsets is not None and times is not None:
        index = load_index(segment.base_offset, offsets, times, segment.size_bytes)
    if index is None:
        index = index_from_headers(segment)
    if segment.damage:
        return index
    end = segment.base_offset
    for _, header in headers_after_index(segment, index):
        end = header.next_offset
    if segment.next_offset not in (segment.base_offset, end):  # the former as long as nobody knows its end
        raise Corrupt(f"{segment.path} ends at offset {end}, the next segment begins at {segment.next_offset}")
    return index


def index_from_headers(segment: Segment) -> SegmentIndex:
    """Walk the headers of a whole segment. Raises Corrupt where they do not join."""
    index = SegmentIndex(segment.base_offset)
    end = segment.damage[0].start_position if segment.damage else segment.size_bytes
    for position, header in headers(segment, 0, segment.base_offset):
        if position >= end:
            break
        index.add(header, position)
    return index


def headers_after_index(segment: Segment, index: SegmentIndex) -> Iterator[tuple[int, Header]]:
    """The batches from the last one in the index on, to learn where a segment ends."""
    position = index.boundary_at_or_before(segment.size_bytes)
    return headers(segment, position, index.offset_at(position) if index.positions else segment.base_offset)


def headers(segment: Segment, position: int, expected_offset: int) -> Iterator[tuple[int, Header]]:
    """Every batch's position and header, from a batch start to the end of the file. Raises Corrupt where none is."""
    window, window_at = b"", 0
    while position < segment.size_bytes:
        if position + HEADER_BYTES > window_at + len(window):
            window, window_at = segment.disk.pread(segment.handle, READ_AHEAD_BYTES, position), position
        if len(window) - (position - window_at) < HEADER_BYTES:
            raise Corrupt(f"{segment.path}: no whole batch header at byte {position}")
        header = read_header(window, position - window_at)
        if not can_follow(header, expected_offset, segment.size_bytes - position):
            raise Corrupt(f"{segment.path}: no batch of offset {expected_offset} at byte {position}")
        yield position, header
        position += header.size_bytes
        expected_offset = header.next_offset


def can_follow(header: Header, expected_offset: int, bytes_left: int) -> bool:
    """Whether this is the header of the batch that must come next. False for zeros and for bytes of an earlier life."""
    return (
        header.magic == MAGIC
        and header.base_offset == expected_offset
        and header.last_offset_delta >= 0
        and HEADER_BYTES <= header.size_bytes <= bytes_left
    )
