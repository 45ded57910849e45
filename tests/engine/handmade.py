"""Batches built byte by byte, with errors that an encoder would not produce. Layout: engine/format/FORMAT.md."""

import gzip
import struct
from collections.abc import Callable, Sequence

import cramjam
import zstandard
from aiokafka import codec as kafka_codec
from crc32c import crc32c

from engine.format.batch import Codec

T0 = 1_700_000_000_000

PACK: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: kafka_codec.snappy_encode,
    Codec.LZ4: lambda data: bytes(cramjam.lz4.compress(data)),
    Codec.ZSTD: zstandard.compress,
}


def varint(number: int) -> bytes:
    """Encode zigzag, then seven bits a byte, lowest first."""
    rest, encoded = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int,
    value: bytes | None = b"1",
    key: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    *,
    time_delta: int = 0,
    length_lie: int = 0,
    header_count: int | None = None,
) -> bytes:
    body = b"\0" + varint(time_delta) + varint(delta) + sized(key) + sized(value)
    body += varint(len(headers) if header_count is None else header_count)
    body += b"".join(sized(name) + sized(content) for name, content in headers)
    return varint(len(body) + length_lie) + body


def batch(
    records: bytes,
    count: int,
    codec: Codec = Codec.NONE,
    *,
    pack: Callable[[bytes], bytes] | None = None,
    max_timestamp: int = T0,
    attributes: int = 0,
) -> bytes:
    """Return a batch with a correct header and checksum around arbitrary records."""
    packed = (pack or PACK[codec])(records)
    covered = struct.pack(">hiqqqhii", codec | attributes, count - 1, T0, max_timestamp, -1, -1, -1, count) + packed
    return struct.pack(">qiibI", 0, 9 + len(covered), 0, 2, crc32c(covered)) + covered
