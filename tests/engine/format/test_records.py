"""The records of a batch: both codecs write and read what aiokafka does, and agree on damaged bytes."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import InvalidBatch
from engine.format.batch import HEADER_BYTES, KEYED_PRODUCER, NOT_SEQUENCED, BatchRows, Buffer, Record, read_header
from engine.format.records import encode_all, read_records, read_varint, varint
from tests.codecs import each_codec, plainly  # noqa: F401
from tests.engine.handmade import batch, record

pytestmark = pytest.mark.usefixtures("each_codec")

CONTENT = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8192])
HEADERS = st.lists(st.tuples(st.text(max_size=9), CONTENT), max_size=3)
ROWS = st.lists(st.tuples(st.integers(0, 2**45), CONTENT, CONTENT, HEADERS), min_size=1, max_size=5)
SEQUENCES = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))
I64 = st.integers(-(2**63), 2**63 - 1)


def written_by_aiokafka(
    rows: list[Any], entry: tuple[str, bytes | None] | None, sequenced: tuple[int, int, int]
) -> Any:
    producer_id, epoch, sequence = sequenced
    producer_id = producer_id if entry is None else KEYED_PRODUCER
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, epoch, sequence, 1 << 30)
    for delta, (timestamp, key, value, headers) in enumerate(rows):
        builder.append(delta, timestamp, key, value, [*headers, entry] if entry and not delta else headers)
    return builder.build()


def read(data: Buffer) -> list[Record]:
    return list(read_records(data, read_header(data)))


def outcome(data: Buffer) -> list[Record] | None:
    """Return the records; None if they are malformed."""
    try:
        return read(data)
    except InvalidBatch:
        return None


@given(ROWS, st.none() | st.just(("__penstock-idempotency", b"e" * 40)), SEQUENCES | st.just(NOT_SEQUENCED))
def test_a_batch_has_the_bytes_that_aiokafka_writes(rows, entry, sequenced):
    batches: list[BatchRows] = [(rows, entry, sequenced)]
    assert encode_all(batches) == [written_by_aiokafka(rows, entry, sequenced)]


@given(ROWS)
def test_the_records_are_those_that_aiokafka_reads(rows):
    data = written_by_aiokafka(rows, None, NOT_SEQUENCED)
    theirs = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in DefaultRecordBatch(bytes(data))]
    assert read(data) == theirs == [(offset, *row) for offset, row in enumerate(rows)]


def test_a_batch_of_more_records_than_a_call_takes_is_read_whole():
    [data] = encode_all([([(5, None, b"%d" % number, []) for number in range(10_000)], None, NOT_SEQUENCED)])
    assert [(r.offset, r.value) for r in read(data)] == [(number, b"%d" % number) for number in range(10_000)]


@given(ROWS, st.data())
def test_both_codecs_read_the_same_of_damaged_bytes(rows, data):
    damaged = bytearray(encode_all([(rows, None, NOT_SEQUENCED)])[0])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(HEADER_BYTES, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(HEADER_BYTES, len(damaged)))])
    for one in (bytes(damaged), cut):
        assert outcome(one) == plainly(outcome, one)


def test_any_attributes_and_any_negative_length_are_read_as_kafka_reads_them():
    attributes = bytearray(record(0))
    attributes[1] = 0xFF
    assert read(batch(bytes(attributes), 1))[0].value == b"1"
    null = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-7) + varint(0)
    assert read(batch(varint(len(null)) + null, 1))[0].value is None


@given(I64)
@example(2**63 - 1)
@example(-(2**63))
def test_a_varint_is_read_as_it_was_written(number):
    encoded = varint(number)
    assert len(encoded) <= 10
    assert read_varint(b"x" + encoded + b"y", 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\0"])
def test_a_varint_that_is_cut_off_or_too_long_is_refused(encoded):
    with pytest.raises(IndexError):
        read_varint(encoded, 0)
