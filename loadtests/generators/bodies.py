"""Request bodies: the same values as JSON, NDJSON, a stored batch, or single values.

aiokafka's record builder makes the stored batches, as another client would: the bench does not import the engine.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

RECORD_BYTES = 100
JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
BATCH_TYPE = "application/vnd.penstock.recordbatch"
RAW_TYPE = "application/octet-stream"

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_MAGIC = 2
_ALPHABET = string.ascii_letters + string.digits


class Body(NamedTuple):
    """A request body with its media type and record count."""

    media_type: str
    data: bytes
    records: int


def json_values(count: int, size_bytes: int = RECORD_BYTES) -> list[bytes]:
    """Returns JSON objects of exactly `size_bytes`, half of it random: neither constant nor incompressible."""
    source = random.Random(count)
    values = []
    for number in range(count):
        start = b'{"n":%d,"pad":"' % number
        room = size_bytes - len(start) - len(b'"}')
        assert room >= 0, "the size leaves no room for the number"
        noise = "".join(source.choices(_ALPHABET, k=room - room // 2)).encode()
        values.append(start + noise + b"x" * (room // 2) + b'"}')
    return values


def raw_body(value: bytes) -> Body:
    return Body(RAW_TYPE, value, 1)


def json_body(values: Sequence[bytes]) -> Body:
    records = b",".join(b'{"value":%b}' % value for value in values)
    return Body(JSON_TYPE, b'{"records":[%b]}' % records, len(values))


def ndjson_body(values: Sequence[bytes]) -> Body:
    return Body(NDJSON_TYPE, b"\n".join(values) + b"\n", len(values))


def batch_body(values: Sequence[bytes], timestamp_ms: int, codec: str = "none") -> Body:
    size = sum(map(len, values)) + 64 * len(values) + 1024  # the builder rejects records beyond it
    builder = DefaultRecordBatchBuilder(_MAGIC, CODECS[codec], 0, -1, -1, -1, size)
    for delta, value in enumerate(values):
        assert builder.append(delta, timestamp_ms, None, value, []) is not None, "the batch is full"
    return Body(BATCH_TYPE, bytes(builder.build()), len(values))
