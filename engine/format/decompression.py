"""Decompresses within a bound: gzip, snappy, lz4, zstd, as Kafka's producers and HTTP clients use them.

Besides engine/format/compression.py the only file that knows cramjam. It decompresses into memory of a fixed size, so
that a bomb (28 kB that decode to 944 MB) stops at the bound and not after it, and releases the interpreter lock.

The work is bounded by the bytes read and written. zstd, lz4 and snappy read frames and blocks without content at the
speed of ordinary text (measured: at most 13 ms a megabyte). gzip does not: cramjam's inflate takes 2.3 s for a megabyte
of empty blocks, zlib 0.1 s, and each member costs 3 us. So gzip uses zlib, the number of members is bounded, and input
that yields almost no text is rejected.
Truncated input is an error, never a shorter text (except for snappy, whose frame has no count of blocks). Several gzip
members, zstd frames or lz4 frames one after the other are one text.

The caller chooses the bound, and whether to run this on the loop.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable

import cramjam

Buffer = bytes | bytearray | memoryview

# enough for most batches; a larger text is decompressed again, which wastes at most this much
FIRST_ROOM_BYTES = 256 * 1024
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16  # the magic, a version and the oldest version that can read it
_XERIAL_BLOCKS_MAX = 65_536  # a block holds 32 KiB in every implementation; empty blocks only cost time
_BLOCK_LENGTH = struct.Struct(">i")
_GZIP = 16 + zlib.MAX_WBITS
_GZIP_MEMBERS_MAX = 10_000  # 30 ms of work; log files compressed piece by piece have hundreds
_GZIP_SLICE_BYTES = 64 * 1024
_GZIP_INPUT_PER_BYTE_MAX = 16  # a flush after every single byte takes 7; empty blocks never end


class DoesNotFit(Exception):
    """The text is longer than the bound."""


class Broken(Exception):
    """The bytes are not of the declared format, or are truncated."""


def unpack(kind: str, packed: Buffer, bytes_max: int, head: Buffer = b"") -> memoryview:
    """Returns the head, followed by the decompressed bytes, at most `bytes_max`. Raises DoesNotFit, Broken."""
    if bytes_max <= FIRST_ROOM_BYTES:
        return _unpack_into(bytearray(len(head) + bytes_max), kind, packed, bytes_max, head)
    try:
        return unpack(kind, packed, FIRST_ROOM_BYTES, head)
    except DoesNotFit:  # memory that is zeroed only where it is touched
        return _unpack_into(mmap.mmap(-1, len(head) + bytes_max), kind, packed, bytes_max, head)


def _unpack_into(memory: bytearray | mmap.mmap, kind: str, packed: Buffer, bytes_max: int, head: Buffer) -> memoryview:
    whole = memoryview(memory)
    begin = len(head)
    whole[:begin] = head
    try:
        length = _INTO[kind](packed, whole[begin : begin + bytes_max])
    except zlib.error as error:
        raise Broken(f"not {kind}, or damaged: {error}") from None
    except cramjam.DecompressionError as error:
        if "failed to write whole buffer" in str(error):  # Rust's message for a full buffer
            raise DoesNotFit(f"more than {bytes_max} bytes") from None
        raise Broken(f"not {kind}, or damaged: {error}") from None
    return whole[: begin + length]


def _gzip_into(packed: Buffer, room: memoryview) -> int:
    """Decompresses consecutive members. Raises DoesNotFit, Broken, zlib.error."""
    view, position, length = memoryview(packed), 0, 0
    for _ in range(_GZIP_MEMBERS_MAX):
        member, begin, before = zlib.decompressobj(_GZIP), position, length
        while not member.eof:
            piece = view[position : position + _GZIP_SLICE_BYTES]
            if not piece:
                raise Broken("a gzip member is cut off")
            position += len(piece)
            text = member.decompress(piece, len(room) - length + 1)
            end = length + len(text)
            if end > len(room):
                raise DoesNotFit(f"more than {len(room)} bytes")
            room[length:end] = text
            length = end
            if position - begin > _GZIP_SLICE_BYTES + _GZIP_INPUT_PER_BYTE_MAX * (length - before):
                raise Broken(f"{position - begin} bytes of a gzip member hold {length - before} bytes of text")
        position -= len(member.unused_data)
        if position == len(view):
            return length
    raise Broken(f"more than {_GZIP_MEMBERS_MAX} gzip members")


def _snappy_into(packed: Buffer, room: memoryview) -> int:
    """Decompresses one block, or xerial's frame of blocks, which Kafka's Java producers write."""
    view = memoryview(packed)
    if bytes(view[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block_into(view, room)
    position, length, blocks = _XERIAL_HEADER_BYTES, 0, 0
    while position < len(view):
        begin = position + _BLOCK_LENGTH.size
        if begin > len(view):
            raise Broken("a snappy block is cut off")
        position = begin + _BLOCK_LENGTH.unpack_from(view, position)[0]
        blocks += 1
        if not begin < position <= len(view) or blocks > _XERIAL_BLOCKS_MAX:
            raise Broken("the lengths of snappy's blocks do not match the data")
        length += _snappy_block_into(view[begin:position], room[length:])
    return length


def _snappy_block_into(block: memoryview, room: memoryview) -> int:
    """A block begins with its length; a wrong length is detected."""
    if cramjam.snappy.decompress_raw_len(block) > len(room):
        raise DoesNotFit(f"more than {len(room)} bytes")
    return int(cramjam.snappy.decompress_raw_into(block, room))


_INTO: dict[str, Callable[[Buffer, memoryview], int]] = {
    "gzip": _gzip_into,
    "snappy": _snappy_into,
    "lz4": cramjam.lz4.decompress_into,
    "zstd": cramjam.zstd.decompress_into,
}
