"""Control batches: encoded, read by another implementation too, and never returned to consumers."""

from functools import partial

import pytest
from kafka.record.memory_records import MemoryRecords

from engine.errors import InvalidBatch
from engine.format import batch
from engine.format.batch_header import has_no_records
from engine.format.control_batch import encode_fence, read_control, read_fence
from engine.runtime.disk import RealDisk
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.scan import scan_upload
from gateway.fetch.record_json import Bounds, decode_stored, records_out
from tests.engine.tiering.making import write_segment

TIME_MS = 1_700_000_000_000


def data_batch(base_offset: int, count: int = 2) -> bytes:
    made = batch.encode([batch.Row(TIME_MS, None, b"%d" % (base_offset + n), []) for n in range(count)])
    batch.stamp(made, base_offset, 0)
    return bytes(made)


def fence(base_offset: int, token: str = "t") -> bytes:
    made = encode_fence(token, TIME_MS)
    batch.stamp(made, base_offset, 0)
    return bytes(made)


MIXED = fence(0) + data_batch(1) + fence(3) + fence(4, "") + data_batch(5, 1) + fence(6)  # ends at 7


@pytest.mark.parametrize("token", ["", "a", "~" * 255])
def test_what_a_fence_says_is_read_back(token):
    made = encode_fence(token, TIME_MS)
    header = batch.read_header(made)
    assert header.is_control
    assert batch.has_valid_crc(made, 0, header)
    assert read_fence(made) == token


def test_kafkas_parser_takes_it_for_a_control_batch():
    found = MemoryRecords(fence(5, "writer-1")).next_batch()
    assert found.is_control_batch
    assert (found.base_offset, found.validate_crc()) == (5, True)


@pytest.mark.parametrize("key", [None, b"", bytes(2), bytes([0, 1, 3, 232]), bytes([0, 0, 3, 232, 0])])
def test_an_invalid_control_record_is_reported(key):
    made = batch.encode([(TIME_MS, key, b"", [])])
    batch.mark_control(made)
    with pytest.raises(InvalidBatch):
        read_control(made)


def test_a_client_cannot_send_one():
    with pytest.raises(InvalidBatch, match="control"):
        batch.check_client_batch(encode_fence("t", TIME_MS), batch_bytes_max=1 << 20)


def test_decoding_gives_the_records_between_them():
    assert [record.offset for record in batch.decode(MIXED)] == [1, 2, 5]
    assert batch.decode_one(fence(9)) == []


@pytest.mark.parametrize(
    ("offset", "max_records", "offsets", "next_offset"),
    [
        (0, None, [1, 2, 5], 7),
        (2, None, [2, 5], 7),
        (3, None, [5], 7),
        (0, 1, [1], 2),
        (0, 3, [1, 2, 5], 6),
        (6, 9, [], 7),
    ],
)
def test_fetches_pass_them_and_the_next_offset_is_behind(offset, max_records, offsets, next_offset):
    data = b"".join(
        MIXED[position : position + header.size_bytes]
        for position, header in batch.walk(MIXED)
        if header.next_offset > offset
    )
    found = decode_stored(data, offset, 7, Bounds(max_records, 1 << 20, 1 << 20), partial(records_out, form="json"))
    assert [out.offset for out in found.outs] == offsets
    assert found.next_offset == next_offset


def test_a_run_of_control_batches_alone_has_nothing_to_show():
    assert has_no_records(fence(3) + fence(4))
    assert not has_no_records(fence(3) + data_batch(4))
    assert not has_no_records(data_batch(3) + fence(5))


def test_the_store_counts_records_and_keeps_the_bytes(tmp_path):
    segment = write_segment(tmp_path, MIXED)
    aux = scan_upload(RealDisk(), Upload(segment, 0), with_crc32=False).aux
    assert (aux.record_count, aux.batch_count, aux.end_offset) == (3, 6, 7)
