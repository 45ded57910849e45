"""The record batch module: our bytes are Kafka's bytes, and an inconsistent or broken batch is rejected."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from engine.errors import BatchTooLarge, CorruptBatch, InvalidBatch
from engine.format import batch
from engine.format.batch import Codec, Row

GOLDEN = bytes.fromhex(
    "000000000000002a 00000045 00000007 02 bc161909 0000 00000001 00000000000003e8 00000000000003"
    "ed ffffffffffffffff ffff ffffffff 00000002 18000000026b027602026802780c000a02010100"
)

names = st.text(max_size=20)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=30)), max_size=3)
rows = st.lists(
    st.builds(
        Row,
        timestamp=st.integers(0, 2**45),
        key=st.none() | st.binary(max_size=50),
        value=st.none() | st.binary(max_size=200),
        headers=headers,
    ),
    min_size=1,
    max_size=20,
)


def as_rows(records: list[batch.Record]) -> list[Row]:
    return [Row(r.timestamp, r.key, r.value, list(r.headers)) for r in records]


@given(rows, st.sampled_from(Codec), st.integers(0, 2**40))
def test_what_is_encoded_is_decoded_with_offsets_in_order(rows, codec, base_offset):
    data = batch.encode(rows, codec)
    batch.stamp(data, base_offset, leader_epoch=3)
    records = batch.decode(data)
    assert as_rows(records) == rows
    assert [r.offset for r in records] == list(range(base_offset, base_offset + len(rows)))


@given(rows, st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_kafka_pythons_own_parser_reads_our_batches(rows, codec):
    data = batch.encode(rows, codec)
    batch.stamp(data, 1000, leader_epoch=1)
    parsed = KafkaPythonRecords(bytes(data)).next_batch()
    assert parsed.validate_crc()
    theirs = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in parsed]
    assert theirs == [(1000 + i, *row) for i, row in enumerate(rows)]


@given(rows)
def test_stamping_leaves_the_checksum_right(rows):
    data = batch.encode(rows)
    batch.stamp(data, 2**40, leader_epoch=2**20)
    header = batch.read_header(data)
    assert (header.base_offset, header.leader_epoch) == (2**40, 2**20)
    assert header.size_bytes == len(data)
    assert batch.has_valid_crc(data, 0, header)


@given(rows)
def test_what_a_client_made_is_stamped_in_a_head_of_its_own_and_is_not_touched(rows):
    ours = batch.encode(rows)
    theirs = bytes(ours)
    stamped: list[batch.Buffer] = []
    pieces: list[batch.Buffer] = []
    header = batch.stamped(ours, 7, 3, stamped)
    assert stamped[0] is ours
    assert header == batch.read_header(ours)
    assert (header.base_offset, header.leader_epoch) == (7, 3)
    assert batch.stamped(theirs, 7, 3, pieces) == header
    assert b"".join(pieces) == ours != theirs


def test_append_time_becomes_the_time_of_every_record():
    data = batch.encode([Row(1, None, b"a", []), Row(2, None, b"b", [])])
    batch.stamp_append_time(data, 99)
    assert batch.has_valid_crc(data, 0, batch.read_header(data))
    assert [r.timestamp for r in batch.decode(data)] == [99, 99]


def test_walk_stops_before_a_batch_that_is_cut_off():
    one = bytes(batch.encode_values([b"1"], 5))
    found = [position for position, _ in batch.walk(one + one + one[:-1])]
    assert found == [0, len(one)]


def test_walk_refuses_bytes_that_are_no_header():
    with pytest.raises(InvalidBatch):
        list(batch.walk(bytes(100)))


def changed(data: bytes, position: int, fmt: str, value: int) -> bytes:
    copy = bytearray(data)
    struct.pack_into(fmt, copy, position, value)
    return bytes(copy)


GOOD = bytes(batch.encode_values([b"1", b"2"], 5))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", InvalidBatch),
        (GOOD[:60], InvalidBatch),
        (GOOD[:-1], InvalidBatch),
        (GOOD + GOOD, InvalidBatch),
        (changed(GOOD, 16, ">b", 1), InvalidBatch),
        (changed(GOOD, 57, ">i", 3), InvalidBatch),
        (changed(GOOD, 57, ">i", 0), InvalidBatch),
        (changed(GOOD, 21, ">h", 0b10000), InvalidBatch),
        (changed(GOOD, 21, ">h", 0b100000), InvalidBatch),
        (changed(GOOD, 21, ">h", 5), InvalidBatch),
        (changed(GOOD, 43, ">q", -2), InvalidBatch),
        (changed(GOOD, len(GOOD) - 1, ">b", 1), CorruptBatch),
        (GOOD * 1000, BatchTooLarge),
    ],
)
def test_a_lying_batch_is_refused(body, error):
    with pytest.raises(error):
        batch.check_client_batch(body, batch_bytes_max=10_000)


def test_undecodable_records_are_one_definite_error():
    broken = changed(GOOD, 21, ">h", int(Codec.ZSTD))
    with pytest.raises(InvalidBatch):
        batch.decode_one(broken)


def test_golden_bytes():
    """If this fails the codec's output changed: files, replicas and objects written before may read differently."""
    data = batch.encode([Row(1_000, b"k", b"v", [("h", b"x")]), Row(1_005, None, None, [])])
    batch.stamp(data, 42, leader_epoch=7)
    assert data.hex() == GOLDEN.hex()


def test_a_batch_of_few_records_and_very_many_offsets_takes_no_memory_for_them():
    """Kafka's compaction leaves such batches, and a client's header may claim two billion offsets."""
    data = batch.encode([Row(5, None, b"v", [])])
    struct.pack_into(">i", data, 23, 3_000_000)
    batch.set_crc(data)
    tracemalloc.start()
    try:
        (record,) = batch.decode_one(bytes(data))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert record.offset == 0
    assert peak_bytes < 1_000_000
