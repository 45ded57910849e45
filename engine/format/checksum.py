"""The checksum file of a sealed segment: the CRC-32C of the whole `.log` file, which shows whether it changed.

Covers what no batch's own CRC does: base offsets, leader epochs, and the completeness of the file. Derived from the
file at sealing; an active segment has none. A checksum in doubt is rebuilt, but only over batches with valid CRCs
(engine/cleaning/segment_check.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.runtime.disk import Disk, read_file, write_fully

PIECE_BYTES = 128 * 1024  # larger pieces give no speed and cost page faults
_HEADER = "penstock segment-checksum 1"

Pace = Callable[[int], None]


def at_once(size_bytes: int) -> None:
    """Waits for nothing: the pace of a caller that need not spare the disk."""


class Checksum(NamedTuple):
    """The checksum of a whole segment file, with its size in bytes."""

    size_bytes: int
    crc32c: int


def checksum_of(disk: Disk, path: str, pace: Pace = at_once) -> Checksum:
    """Reads a file completely. Blocks; calls `pace` with the bytes of each piece; it may sleep. Raises OSError."""
    handle = disk.open(path)
    try:
        position = seen = 0
        while piece := disk.pread(handle, PIECE_BYTES, position):
            seen = crc32c(piece, seen)
            position += len(piece)
            pace(len(piece))
        return Checksum(position, seen)
    finally:
        disk.close(handle)


def save_checksum(disk: Disk, log_path: str, checksum: Checksum) -> None:
    """Writes the checksum file, durable before its rename. Does not sync the directory: a missing file is rebuilt."""
    target = paths.beside_log(log_path, paths.CHECKSUM)
    handle = disk.open(target + ".tmp", create=True, writable=True)
    try:
        disk.truncate(handle, 0)
        write_fully(disk, handle, encode_checksum(checksum), 0)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    disk.rename(target + ".tmp", target)


def load_checksum(disk: Disk, log_path: str) -> Checksum | None:
    """Returns the stored checksum; None without one, or if it is in doubt."""
    return decode_checksum(read_file(disk, paths.beside_log(log_path, paths.CHECKSUM)))


def encode_checksum(checksum: Checksum) -> bytes:
    return rows_as_text(_HEADER, [f"{checksum.size_bytes} {checksum.crc32c:08x}"])


def decode_checksum(data: bytes | None) -> Checksum | None:
    rows = read_rows(_HEADER, data)
    try:
        [[size_bytes, seen]] = rows or []
        return Checksum(int(size_bytes), int(seen, 16))
    except ValueError:
        return None
