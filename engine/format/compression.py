"""Compresses: response texts, at a level that is fast rather than small, and the records of batches, as Kafka does.

The twin of engine/format/decompression.py; only these two files know cramjam, which releases the interpreter's lock.
The caller decides whether to run this on the loop (a megabyte of JSON takes 3 to 7 ms).
"""

from __future__ import annotations

import gzip
import struct

import cramjam

_LEVEL = 1  # level 2 of gzip takes 1.8 times the time for 8% fewer bytes, higher levels of zstd save nothing
_GZIP_LEVEL, _ZSTD_LEVEL = 6, 3  # of records: what Kafka's producers use by default (KIP-390)
_LZ4_LEVEL = 1  # the fast compressor, which Kafka takes at its default level (Lz4BlockOutputStream)
_XERIAL_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024


def pack(kind: str, text: bytes | bytearray) -> bytes:
    """Compresses the text to one gzip member or one zstd frame."""
    return bytes(
        cramjam.zstd.compress(text, level=_LEVEL) if kind == "zstd" else cramjam.gzip.compress(text, level=_LEVEL)
    )


class Packer:
    """Compresses a text that comes in pieces to one gzip member or one zstd frame.

    It holds up to 0.7 MiB: the window and the tables. Its pieces may come from different threads, one at a time.
    """

    def __init__(self, kind: str) -> None:
        self._compressor = (cramjam.zstd if kind == "zstd" else cramjam.gzip).Compressor(level=_LEVEL)

    def pack(self, text: bytes | bytearray, *, is_last: bool) -> bytes:
        """Returns the bytes that complete a piece: its reader can unpack all of it."""
        self._compressor.compress(text)
        return bytes(self._compressor.finish() if is_last else self._compressor.flush())


def pack_records(kind: str, records: bytes) -> bytes:
    """Compresses records as Kafka's producers do. Raises ValueError for a kind that Kafka does not have."""
    match kind:
        case "gzip":
            return gzip.compress(records, _GZIP_LEVEL, mtime=0)
        case "snappy":
            return _xerial(records)
        case "lz4":  # Kafka reads no linked blocks (KIP-57)
            compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(records)
            return bytes(compressor.finish())
        case "zstd":
            return bytes(cramjam.zstd.compress(records, level=_ZSTD_LEVEL))
    raise ValueError(kind)


def _xerial(records: bytes) -> bytes:
    """Compresses to xerial's frame of snappy blocks, which Kafka's Java consumers read."""
    view, pieces = memoryview(records), [_XERIAL_HEAD]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (struct.pack(">i", len(block)), block)
    return b"".join(pieces)
