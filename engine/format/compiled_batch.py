"""Makes batches of what the compiled codec (penstock_codec) has found in a body, as engine/format/batch.py makes them.

A table of spans or rows is the codec's own, and fits only the body in which it was found.
"""

from __future__ import annotations

import penstock_codec
from engine.errors import BatchTooLarge
from engine.format.batch_header import HEADER_BYTES, Buffer, Codec, mark_compressed, set_crc
from engine.format.compression import pack_records

StoredHeader = tuple[str, bytes | None]


def encode_spans(
    body: Buffer,
    spans: bytes,
    timestamp: int,
    key: bytes | None = None,
    entry: StoredHeader | None = None,
) -> bytearray:
    """Encode one batch of the values at spans of a body, all with one timestamp and key; `finished` completes it.

    With an `entry` it is a keyed batch, whose first record carries that header.
    """
    assert penstock_codec.native is not None
    return penstock_codec.native.encode_values(body, spans, timestamp, key, entry and _stored_bytes(entry))


def encode_objects(
    body: Buffer,
    rows: bytes,
    timestamp: int,
    key: bytes | None = None,
    entry: StoredHeader | None = None,
    *,
    are_lines: bool,
) -> tuple[bytearray, int]:
    """Encode one batch of record objects of a body; `finished` completes it. `key`: of records that have none.

    Also return the size of the largest record: key, value and headers.
    """
    assert penstock_codec.native is not None
    return penstock_codec.native.encode_objects(body, rows, are_lines, timestamp, key, entry and _stored_bytes(entry))


def finished(batch: bytearray, codec: Codec, decoded_bytes_max: int) -> bytearray:
    """Return a batch of the compiled codec, compressed and with its checksum. Raises BatchTooLarge."""
    if codec != Codec.NONE:
        check_decoded_bytes(len(batch) - HEADER_BYTES, decoded_bytes_max)
        batch[HEADER_BYTES:] = pack_records(codec.name.lower(), bytes(memoryview(batch)[HEADER_BYTES:]))
        mark_compressed(batch, codec)
    set_crc(batch)
    return batch


def check_decoded_bytes(size_bytes: int, decoded_bytes_max: int) -> None:
    """Compress nothing that a reader's bound would reject. Raises BatchTooLarge."""
    if size_bytes > decoded_bytes_max:
        text = f"a batch would have {size_bytes} bytes before compression, the topic allows {decoded_bytes_max}"
        raise BatchTooLarge(text, limit=decoded_bytes_max)


def spanned(body: Buffer, spans: bytes) -> list[bytes | None]:
    """Return the values at spans of a body. Spans are pairs of begin and length; a negative length means null."""
    pairs = memoryview(spans).cast("i").tolist()
    view = memoryview(body)
    return [
        None if length < 0 else bytes(view[begin : begin + length])
        for begin, length in zip(pairs[::2], pairs[1::2], strict=True)
    ]


def _stored_bytes(header: StoredHeader) -> bytes:
    """Encodes a header of ours, whose name and value are short: a length below 64 is a varint of one byte."""
    name, value = header
    assert value is not None
    assert max(len(name), len(value)) < 64
    return bytes([2 * len(name)]) + name.encode() + bytes([2 * len(value)]) + value
