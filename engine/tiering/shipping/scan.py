"""Reads a sealed segment completely before its upload: checks every batch, and collects the facts of the object.

Not a decoder: headers and checksums only. Bytes that fail here are never shipped, since the store may soon have their
only copy. Blocking; bounded memory for a segment of any size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from crc32c import crc32c

from engine.errors import Corrupt, InvalidBatch
from engine.format.batch import HEADER_BYTES, Header, has_valid_crc, read_header, walk
from engine.runtime.disk import Disk
from engine.tiering.manifest.aux_object import INDEX_INTERVAL_BYTES, AuxObject, SparseIndex
from engine.tiering.shipping.plan import Upload

_WINDOW_BYTES = 1 << 20  # of four times as much, the kernel clears new memory for each read, at a third of its CPU

Pread = Callable[[int, int], bytes]  # length, position -> bytes, fewer only at the end


@dataclass(frozen=True, slots=True)
class Scan:
    """The part of a segment file to ship: `aux.size_bytes` bytes from byte `start` on.

    `crc32` is the IEEE one of the same bytes, which stores check; None unless requested.
    """

    start: int
    crc32: int | None
    aux: AuxObject


def scan_upload(disk: Disk, upload: Upload, *, with_crc32: bool) -> Scan:
    """Check the whole segment, and describe the part from the batch that holds `upload.from_offset` on.

    Raises Corrupt if the file does not match the log, OSError if it cannot be read.
    """
    handle = disk.open(upload.segment.path)
    try:
        return scan_bytes(partial(disk.pread, handle), upload, with_crc32=with_crc32)
    finally:
        disk.close(handle)


def scan_bytes(pread: Pread, upload: Upload, *, with_crc32: bool) -> Scan:
    """Scan the bytes of a segment wherever they are. Raises Corrupt, and the errors of `pread`."""
    segment = upload.segment
    scanner = _Scanner(upload, segment.base_offset, crc32=0 if with_crc32 else None)
    position = 0
    while position < segment.size_bytes:
        position += scanner.take(_window(pread, position, segment.size_bytes, segment.path), position)
    return scanner.finish()


@dataclass(slots=True)
class _Scanner:
    upload: Upload
    next_offset: int
    start: int = 0
    base_offset: int = -1
    crc32: int | None = None
    crc32c: int = 0
    record_count: int = 0
    batch_count: int = 0
    min_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    leader_epoch: int | None = None
    next_block_at: int = 0
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    block_times: list[int] = field(default_factory=list)

    def take(self, window: bytes, file_position: int) -> int:
        """Walks the whole batches of a window; returns their bytes.

        One loop over local variables: a segment of single records has half a million batches.
        """
        view, taken = memoryview(window), 0
        shipped_from: int | None = None
        expected, from_offset = self.next_offset, self.upload.from_offset
        try:
            for at, header in walk(view):
                base_offset, next_offset = header.base_offset, header.next_offset
                if base_offset != expected or next_offset <= base_offset:
                    raise self._corrupt(f"a batch spans {base_offset}..{next_offset}, {expected} was expected")
                if not has_valid_crc(view, at, header):
                    raise self._corrupt(f"the batch at offset {base_offset} fails its checksum")
                expected = next_offset
                taken = at + header.size_bytes
                if next_offset > from_offset:
                    if shipped_from is None:
                        shipped_from = at
                    self._note(header, file_position + at)
        except InvalidBatch as error:
            raise self._corrupt(f"after offset {expected}: {error.detail}") from error
        if not taken:
            raise self._corrupt(f"the batch at byte {file_position} is cut off")
        if shipped_from is not None:
            if self.crc32 is not None:
                self.crc32 = zlib.crc32(view[shipped_from:taken], self.crc32)
            self.crc32c = crc32c(view[shipped_from:taken], self.crc32c)
        self.next_offset = expected
        return taken

    def finish(self) -> Scan:
        segment = self.upload.segment
        if self.next_offset != segment.end_offset or self.batch_count == 0:
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

    def _note(self, header: Header, file_position: int) -> None:
        base_offset, latest = header.base_offset, header.max_timestamp
        # The base is the first record's time, but a batch stamped with the broker's time may have it above the maximum.
        earliest = min(latest, header.base_timestamp)
        if self.batch_count == 0:
            if not header.record_count:  # of a compaction: it may begin before the end of the store
                base_offset = max(base_offset, self.upload.from_offset)
            self.start, self.base_offset = file_position, base_offset
            self.min_timestamp_ms, self.max_timestamp_ms = earliest, latest
        if earliest < self.min_timestamp_ms:
            self.min_timestamp_ms = earliest
        if latest > self.max_timestamp_ms:
            self.max_timestamp_ms = latest
        self.record_count += 0 if header.is_control else header.record_count
        self.batch_count += 1
        if header.leader_epoch != self.leader_epoch:
            self.leader_epoch = header.leader_epoch
            self.leader_epochs.append((header.leader_epoch, base_offset))
        if file_position >= self.next_block_at:
            self.next_block_at = file_position + INDEX_INTERVAL_BYTES
            self.offsets.append(base_offset)
            self.positions.append(file_position - self.start)
            self.block_times.append(latest)
        elif latest > self.block_times[-1]:
            self.block_times[-1] = latest

    def _corrupt(self, what: str) -> Corrupt:
        return Corrupt(f"segment {self.upload.segment.path}: {what}", hint="restore it from a replica")


def _window(pread: Pread, position: int, size_bytes: int, path: str) -> bytes:
    """Returns bytes that begin with a batch and hold all of it."""
    head = pread(HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        raise Corrupt(f"segment {path}: {len(head)} bytes at byte {position} are not a batch")
    return pread(min(max(read_header(head).size_bytes, _WINDOW_BYTES), size_bytes - position), position)
