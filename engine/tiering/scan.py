"""Reads a sealed segment through before it leaves: every batch is checked, and the facts of the object are found.

Not a decoder: headers and checksums only. Bytes that fail here are never shipped, since the store may soon be the only
place that has them. Blocking; bounded memory, whatever the size of the segment.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from crc32c import crc32c

from engine.batch import HEADER_BYTES, Header, has_valid_crc, read_header, walk
from engine.disk import Disk
from engine.errors import Corrupt, InvalidBatch
from engine.tiering.aux_object import INDEX_INTERVAL_BYTES, AuxObject, SparseIndex
from engine.tiering.plan import Upload

_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Scan:
    """What is to be shipped of a segment file: `aux.size_bytes` bytes from byte `start` on.

    `crc32` is the IEEE one of the same bytes, which stores know.
    """

    start: int
    crc32: int
    aux: AuxObject


def scan_upload(disk: Disk, upload: Upload) -> Scan:
    """Check the whole segment, and describe the part from the batch that holds `upload.from_offset` on.

    Raises Corrupt where the file is not what the log says it is, OSError when it cannot be read.
    """
    segment = upload.segment
    scanner = _Scanner(upload)
    handle = disk.open(segment.path)
    try:
        position = 0
        while position < segment.size_bytes:
            position += scanner.take(_window(disk, handle, position, segment.size_bytes, segment.path), position)
    finally:
        disk.close(handle)
    return scanner.finish()


@dataclass(slots=True)
class _Scanner:
    upload: Upload
    next_offset: int = -1
    start: int | None = None
    base_offset: int = -1
    crc32: int = 0
    crc32c: int = 0
    record_count: int = 0
    batch_count: int = 0
    min_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    block_times: list[int] = field(default_factory=list)

    def take(self, window: bytes, file_position: int) -> int:
        """Go through the whole batches of a window; returns their bytes."""
        taken = 0
        shipped_from: int | None = None
        try:
            for at, header in walk(window):
                self._check(window, at, header)
                taken = at + header.size_bytes
                if header.next_offset > self.upload.from_offset:
                    shipped_from = at if shipped_from is None else shipped_from
                    self._note(header, file_position + at)
        except InvalidBatch as error:
            raise self._corrupt(f"after offset {self.next_offset}: {error.detail}") from error
        if not taken:
            raise self._corrupt(f"the batch at byte {file_position} is cut off")
        if shipped_from is not None:
            shipped = memoryview(window)[shipped_from:taken]
            self.crc32 = zlib.crc32(shipped, self.crc32)
            self.crc32c = crc32c(shipped, self.crc32c)
        return taken

    def finish(self) -> Scan:
        segment = self.upload.segment
        if self.next_offset != segment.end_offset or self.start is None:
            raise self._corrupt(f"it ends at offset {self.next_offset}, the log says {segment.end_offset}")
        aux = AuxObject(
            base_offset=self.base_offset,
            end_offset=self.next_offset,
            size_bytes=segment.size_bytes - self.start,
            crc32c=self.crc32c,
            record_count=self.record_count,
            batch_count=self.batch_count,
            min_timestamp_ms=self.min_timestamp_ms,
            max_timestamp_ms=self.max_timestamp_ms,
            leader_epochs=tuple(self.leader_epochs),
            index=SparseIndex(tuple(self.offsets), tuple(self.positions), tuple(self.block_times)),
        )
        return Scan(self.start, self.crc32, aux)

    def _check(self, window: bytes, at: int, header: Header) -> None:
        expected = self.upload.segment.base_offset if self.next_offset < 0 else self.next_offset
        if header.base_offset != expected or header.next_offset <= header.base_offset:
            raise self._corrupt(f"a batch spans {header.base_offset}..{header.next_offset}, {expected} was expected")
        if not has_valid_crc(window, at, header):
            raise self._corrupt(f"the batch at offset {header.base_offset} fails its checksum")
        self.next_offset = header.next_offset

    def _note(self, header: Header, file_position: int) -> None:
        # The base is the first record's time, but a batch stamped with the broker's time may have it above the maximum.
        earliest = min(header.base_timestamp, header.max_timestamp)
        if self.start is None:
            self.start, self.base_offset = file_position, header.base_offset
            self.min_timestamp_ms, self.max_timestamp_ms = earliest, header.max_timestamp
        position = file_position - self.start
        self.min_timestamp_ms = min(self.min_timestamp_ms, earliest)
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp)
        self.record_count += header.record_count
        self.batch_count += 1
        if not self.leader_epochs or header.leader_epoch != self.leader_epochs[-1][0]:
            self.leader_epochs.append((header.leader_epoch, header.base_offset))
        if not self.positions or position - self.positions[-1] >= INDEX_INTERVAL_BYTES:
            self.offsets.append(header.base_offset)
            self.positions.append(position)
            self.block_times.append(header.max_timestamp)
        else:
            self.block_times[-1] = max(self.block_times[-1], header.max_timestamp)

    def _corrupt(self, what: str) -> Corrupt:
        return Corrupt(f"segment {self.upload.segment.path}: {what}", hint="restore it from a replica")


def _window(disk: Disk, handle: int, position: int, size_bytes: int, path: str) -> bytes:
    """Bytes that begin with a batch and hold all of it."""
    window = disk.pread(handle, min(_WINDOW_BYTES, size_bytes - position), position)
    if len(window) < HEADER_BYTES:
        raise Corrupt(f"segment {path}: {len(window)} bytes at byte {position} are no batch")
    batch_bytes = read_header(window).size_bytes
    if batch_bytes > _WINDOW_BYTES and batch_bytes <= size_bytes - position:
        window = disk.pread(handle, batch_bytes, position)
    return window
