"""Segment files of a node, read by third-party code: the parsers of kafka-python and aiokafka.

Neither uses engine/format/batch.py, and kafka-python's is pure Python that shares nothing with the codec used there.
"""

from __future__ import annotations

import aiohttp
import orjson
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.codec import has_lz4, has_snappy
from kafka.record import MemoryRecords as KafkaPythonRecords

from tests.e2e.load import create
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e

T0 = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARSERS = {"kafka-python": KafkaPythonRecords, "aiokafka": AiokafkaRecords}
NEEDS = {"snappy": has_snappy, "lz4": has_lz4}  # kafka-python needs optional libraries for these


def expected_records():
    """Return what `produce` sends: offset, time, key, value, headers."""
    yield 0, T0, b"k", b'{"a":1}', [("h", b"x"), ("h", b"\xff"), ("none", None)]
    yield 1, T0 + 5, None, None, []
    yield 2, T0 + 2, b"\xff\x00", b"\x00" * 3000, []
    for n in range(100):
        yield 3 + n, None, None, b"[%d]" % n, []
    yield 103, None, b"raw", "naïve".encode(), [("content-type", b"text/plain; charset=utf-8")]


async def produce(session, path):
    headers = {"h": ["x", {"base64": "/w=="}], "none": None}
    records = [
        {"key": "k", "value": {"a": 1}, "headers": headers, "timestamp": T0},
        {"value": None, "timestamp": T0 + 5},
        {"key_base64": "/wA=", "value_base64": "AAAA" * 1000, "timestamp": T0 + 2},
    ]
    lines = b"".join(b"[%d]\n" % n for n in range(100))
    for body in (
        {"data": orjson.dumps({"records": records}), "headers": {"Content-Type": "application/json"}},
        {"data": lines, "headers": {"Content-Type": "application/x-ndjson"}},
        {"data": "naïve".encode(), "headers": {"Content-Type": "text/plain; charset=utf-8", "Penstock-Key": "raw"}},
    ):
        async with session.post(path, **body) as response:
            assert response.status == 200, await response.text()


def parsed(records_of, data):
    """Return every record of a segment file, batch by batch; the parser validates the checksums."""
    records = records_of(data)
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, [tuple(pair) for pair in r.headers]) for r in batch]
    return found


@pytest.mark.parametrize("parser", PARSERS)
async def test_segment_files_are_read_by_other_peoples_parsers(tmp_path, parser):
    with running_process(tmp_path) as node:
        async with aiohttp.ClientSession() as session:
            for codec in CODECS:
                await create(node.url, codec, 1, compression=codec)
                await produce(session, f"{node.url}/v1/topics/{codec}/records")
        assert node.stop() == 0
    read = []
    for codec in CODECS:
        if parser == "kafka-python" and not NEEDS.get(codec, lambda: True)():
            continue
        (segment,) = (tmp_path / "data" / "topics" / codec).rglob("*.log")
        for found, expected in zip(parsed(PARSERS[parser], segment.read_bytes()), expected_records(), strict=True):
            assert found[0] == expected[0]
            assert expected[1] in (None, found[1])
            assert found[2:] == expected[2:]
        read.append(codec)
    assert set(read) >= {"none", "gzip", "zstd"}
