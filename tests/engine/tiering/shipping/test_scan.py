"""A segment is scanned before its upload: its metadata is correct, and damaged bytes are not uploaded."""

import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import Corrupt
from engine.format.batch import has_valid_crc, read_header
from engine.format.batch_header import empty_batch
from engine.runtime.disk import RealDisk
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.aux_object import INDEX_INTERVAL_BYTES, AuxObject, SparseIndex, decode_aux, encode_aux
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.shipping import scan as scanning
from engine.tiering.shipping.local_log import SealedSegment
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.scan import Scan, scan_upload
from spark_ingest.source.scan import scan as ingested
from spark_ingest.source.slices import Slice
from tests.engine.tiering.making import batch, offsets_of, segment_bytes, write_segment


def scan(directory: Path, data: bytes, from_offset: int | None = None) -> Scan:
    segment = write_segment(directory, data)
    return scan_upload(
        RealDisk(), Upload(segment, segment.base_offset if from_offset is None else from_offset), with_crc32=True
    )


def test_the_facts_of_a_segment_are_found(tmp_path):
    data = batch(100, 5, epoch=3, timestamp=7000) + batch(105, 2, epoch=3, timestamp=6000) + batch(107, 1, epoch=4)
    found = scan(tmp_path, data)
    assert (found.start, found.crc32) == (0, zlib.crc32(data))
    unasked = scan_upload(RealDisk(), Upload(write_segment(tmp_path, data), 100), with_crc32=False)
    assert (unasked.crc32, unasked.aux) == (None, found.aux)
    aux = found.aux
    assert (aux.base_offset, aux.end_offset, aux.size_bytes, aux.crc32c) == (100, 108, len(data), crc32c(data))
    assert (aux.record_count, aux.batch_count) == (8, 3)
    assert (aux.min_timestamp_ms, aux.max_timestamp_ms) == (1070, 7004)
    assert aux.leader_epochs == ((3, 100), (4, 107))
    assert aux.index == SparseIndex((100,), (0,), (7004,))


def test_a_part_is_described_from_its_batch_on(tmp_path):
    first, rest = batch(10, 5), batch(15, 5, epoch=2) + batch(20, 5, epoch=2)
    for from_offset in (15, 17):
        found = scan(tmp_path, first + rest, from_offset)
        assert (found.start, found.crc32, found.aux.crc32c) == (len(first), zlib.crc32(rest), crc32c(rest))
        assert (found.aux.base_offset, found.aux.size_bytes, found.aux.record_count) == (15, len(rest), 10)
        assert found.aux.leader_epochs == ((2, 15),)
        assert found.aux.index.positions == (0,)


def test_an_empty_batch_of_a_compaction_may_begin_before_the_end_of_the_store(tmp_path):
    """The object and the manifest have no gap and no overlap, and the object is ingested."""
    data = bytes(empty_batch(0, 20, 2, 7000)) + batch(20, 5, epoch=2)
    found = scan(tmp_path, data, 8)
    assert (found.start, found.aux.base_offset, found.aux.end_offset, found.aux.record_count) == (0, 8, 25, 5)
    assert (found.aux.leader_epochs, found.aux.index.offsets) == (((2, 8),), (8,))
    store = MemoryStore()
    store.put("t.log", data)
    scanned = list(ingested(store, [Slice(0, "t.log", len(data), 8, 25, 8, 25)]))
    assert [offset for one in scanned for offset in offsets_of(one)] == [20, 21, 22, 23, 24]


@pytest.mark.parametrize("window", [1, 300, 5_000, 1 << 20])
def test_windows_do_not_change_the_facts(tmp_path, monkeypatch, window):
    data = segment_bytes(0, batches=300, count=7, size=200)
    expected = scan(tmp_path, data)
    monkeypatch.setattr(scanning, "_WINDOW_BYTES", max(window, 61))
    assert scan(tmp_path, data) == expected


def test_the_index_leads_to_batches(tmp_path):
    data = segment_bytes(50, batches=2_000, count=2, size=60)
    index = scan(tmp_path, data).aux.index
    assert len(index.positions) == pytest.approx(len(data) / INDEX_INTERVAL_BYTES, abs=2)
    for offset, position in zip(index.offsets, index.positions, strict=True):
        assert read_header(data, position).base_offset == offset
    assert index.position_at_or_before(50) == index.position_at_or_before(0) == 0
    assert index.position_at_or_before(index.offsets[3] - 1) == index.positions[2]
    assert index.position_at_or_before(index.offsets[3]) == index.positions[3]
    latest = index.max_timestamps_ms[2]
    assert index.position_to_search_time_from(latest) == index.positions[2]
    assert index.position_to_search_time_from(latest + 1) == index.positions[3]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_bit_is_noticed(tmp_path_factory, data):
    good = segment_bytes(7, batches=3)
    spoiled = bytearray(good)
    spoiled[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "spoiled.log"
    path.write_bytes(spoiled)
    segment = SealedSegment(7, 16, str(path), len(good))
    with suppress(Corrupt):
        found = scan_upload(RealDisk(), Upload(segment, 7), with_crc32=True)
        # No checksum covers the leader epoch; the manifest rejects one that decreases.
        assert found.aux.leader_epochs != ((1, 7),)
        assert all(has_valid_crc(spoiled, at, read_header(spoiled, at)) for at in found.aux.index.positions)


@pytest.mark.parametrize("size_change", [-1, -30, 20])
def test_a_file_of_another_size_is_corrupt(tmp_path, size_change):
    data = segment_bytes(0)
    segment = write_segment(tmp_path, data)
    Path(segment.path).write_bytes((data + bytes(100))[: len(data) + size_change])
    known = SealedSegment(segment.base_offset, segment.end_offset, segment.path, len(data) + max(size_change, 0))
    with pytest.raises(Corrupt):
        scan_upload(RealDisk(), Upload(known, 0), with_crc32=True)


def test_a_segment_that_ends_elsewhere_than_the_log_says_is_corrupt(tmp_path):
    segment = write_segment(tmp_path, segment_bytes(0))
    for end_offset in (segment.end_offset + 1, segment.end_offset - 1):
        with pytest.raises(Corrupt, match="the log says"):
            scan_upload(
                RealDisk(), Upload(SealedSegment(0, end_offset, segment.path, segment.size_bytes), 0), with_crc32=True
            )


def test_a_gap_between_batches_is_corrupt(tmp_path):
    with pytest.raises(Corrupt, match=r"spans 4..7, 3 was expected"):
        scan(tmp_path, batch(0, 3) + batch(4, 3))


def aux_objects() -> st.SearchStrategy[AuxObject]:
    number = st.integers(0, 2**53)
    steps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(-1, 2**50)), max_size=5)

    def build(base: int, size: int, epochs: list[tuple[int, int]], rest: list[tuple[int, int, int]]) -> AuxObject:
        offsets, positions, times = [base], [0], [0]
        for offset, position, time in rest:
            offsets.append(offsets[-1] + offset)
            positions.append(positions[-1] + position)
            times.append(time)
        index = SparseIndex(tuple(offsets), tuple(positions), tuple(times))
        return AuxObject(base, base + 9, size, 5, 9, 1, -1, 2, tuple(epochs), index)

    return st.builds(build, number, number, st.lists(st.tuples(number, number), max_size=3), steps)


@given(aux_objects())
def test_an_aux_object_is_given_back_by_its_json(aux):
    assert decode_aux(encode_aux(aux), "key") == aux


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"offsets":[100', b'"offsets":[101'),
        (b'"positions":[0', b'"positions":[1'),
        (b'"positions":[0', b'"positions":[0,0'),
        (b'"index":{', b'"index":[],"x":{'),
        (b'"crc32c":', b'"crc":'),
        (b"[[3,100]]", b"[[3]]"),
        (b'{"format"', b'"format"'),
    ],
)
def test_a_damaged_aux_object_is_corrupt(tmp_path, old, new):
    data = encode_aux(scan(tmp_path, batch(100, 3, epoch=3)).aux)
    assert old in data
    with pytest.raises(Corrupt, match="the-key"):
        decode_aux(data.replace(old, new), "the-key")


def test_an_aux_object_of_the_future_is_refused(tmp_path):
    data = encode_aux(scan(tmp_path, batch(100, 3)).aux)
    with pytest.raises(UnsupportedFormat):
        decode_aux(data.replace(b'"format":1', b'"format":2'), "key")
