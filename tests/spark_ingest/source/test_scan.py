"""Reading records from segment objects: exactly the wanted ones, never damaged ones."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import Corrupt
from engine.format.batch import Codec, encode, walk
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.aux_object import AuxObject, SparseIndex, encode_aux
from engine.tiering.manifest.keys import aux_key_of
from spark_ingest.source.scan import scan
from spark_ingest.source.slices import Slice
from tests.spark_ingest.tiered import TieredLog, json_rows


def log_of(records: int, batch_records: int, codec: Codec = Codec.NONE, segments: int = 1) -> TieredLog:
    log = TieredLog(MemoryStore(), batch_records=batch_records, codec=codec)
    for at in range(segments):
        log.add(0, json_rows(records, first=at * records))
    return log


def values(log: TieredLog, wanted: list[Slice], piece_bytes: int = 1 << 20) -> list[bytes | None]:
    return [value for scanned in scan(log.store, wanted, piece_bytes) for value in scanned.values()]


@given(st.integers(0, 89), st.integers(1, 90), st.integers(1, 400), st.integers(1, 40), st.sampled_from(Codec))
@settings(max_examples=60, deadline=None)
def test_a_range_is_read_whatever_the_pieces(
    start: int, length: int, piece_bytes: int, batch_records: int, codec: Codec
) -> None:
    log = log_of(30, batch_records, codec, segments=3)
    end = min(90, start + length)
    assert values(log, log.slices(start, end), piece_bytes) == [one.value for one in json_rows(90)[start:end]]


def test_nothing_behind_the_wanted_range_is_fetched() -> None:
    log = log_of(100, batch_records=1)
    [one] = log.slices(0, 100)
    fetched = []
    get = log.store.get
    log.store.get = lambda key, *bounds: fetched.append(bounds) or get(key, *bounds)  # type: ignore[method-assign]
    assert len(values(log, [Slice(0, one.key, one.size_bytes, 0, 100, 0, 5)], piece_bytes=1000)) == 5
    assert fetched == [(0, 1000)]


@pytest.mark.parametrize("change", ["sound", "gone", "broken", "of another object", "of other bytes"])
def test_a_slice_far_behind_the_start_begins_where_the_index_says_if_a_batch_is_there(change: str) -> None:
    """An index that is gone or wrong costs a walk from the first byte, and nothing else."""
    log = log_of(3000, batch_records=10)
    [one] = log.slices(2900, 2950)
    found = [(header.base_offset, at) for at, header in walk(log.store.get(one.key))][::20]
    offsets, positions = (tuple(column) for column in zip(*found, strict=True))
    end = one.end_offset
    if change == "of another object":
        end += 1
    elif change == "of other bytes":
        positions = (0, *(at + 1 for at in positions[1:]))
    index = SparseIndex(offsets, positions, (0,) * len(offsets))
    aux = AuxObject(one.base_offset, end, one.size_bytes, 0, 3000, 300, 0, 0, (), index)
    data = b"{" if change == "broken" else encode_aux(aux)
    if change != "gone":
        log.store.put(aux_key_of(one.key), data)
    fetched = []
    get = log.store.get
    log.store.get = lambda key, *bounds: fetched.append((key, *bounds)) or get(key, *bounds)  # type: ignore[method-assign]
    assert values(log, [one], piece_bytes=5000) == [row.value for row in json_rows(3000)[2900:2950]]
    in_log = [bounds for key, *bounds in fetched if key == one.key]
    assert (len(in_log) < 20) == (change == "sound"), len(in_log)
    assert min(start for start, _ in in_log) == (index.position_at_or_before(2900) if change == "sound" else 0)


def damaged(log: TieredLog, change: bytes, at: int) -> TieredLog:
    [key] = [key for key in log.store.objects if key.endswith(".log")]  # type: ignore[attr-defined]
    data = bytearray(log.store.get(key))
    data[at : at + len(change)] = change
    log.store.put(key, bytes(data))
    return log


@pytest.mark.parametrize("at", [17, 30, 70], ids=["checksum", "header", "records"])
def test_a_batch_that_fails_its_checksum_is_never_handed_out(at: int) -> None:
    log = damaged(log_of(10, batch_records=10), b"\xff\x00\xff", at)
    with pytest.raises(Corrupt, match="offset 0 fails its checksum"):
        values(log, log.slices(0, 10))


def test_bytes_that_are_no_batch_are_corrupt() -> None:
    log = damaged(log_of(10, batch_records=10), b"\x09", 16)
    with pytest.raises(Corrupt, match="no batch header"):
        values(log, log.slices(0, 10))


@pytest.mark.parametrize("kept", [0.4, 0.5, 0.99], ids=["within", "between", "end"])
def test_an_object_that_is_too_short_is_corrupt(kept: float) -> None:
    log = log_of(20, batch_records=10)
    [one] = log.slices(0, 20)
    log.store.put(one.key, log.store.get(one.key)[: int(one.size_bytes * kept)])
    with pytest.raises(Corrupt):
        values(log, [one])


def test_an_object_that_ends_before_its_manifest_says_is_corrupt() -> None:
    log = log_of(20, batch_records=10)
    [one] = log.slices(0, 20)
    with pytest.raises(Corrupt, match="ends after offset 19, the manifest says 29"):
        values(log, [Slice(0, one.key, one.size_bytes, 0, 30, 0, 30)])


def test_a_batch_that_lies_about_its_records_is_reported_and_not_decoded() -> None:
    batch = encode(json_rows(5))
    struct.pack_into(">i", batch, 23, 6)  # last offset delta: the header says seven records, the batch has five
    struct.pack_into(">i", batch, 57, 7)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    log = TieredLog(MemoryStore())
    log.add_batches(0, [encode(json_rows(2)), batch, encode(json_rows(1))], [0], 10)
    found = list(scan(log.store, log.slices(0, 10)))
    assert [(one.header.base_offset, one.record_count, one.undecodable is None) for one in found] == [
        (0, 2, True),
        (2, 0, False),
        (9, 1, True),
    ]
