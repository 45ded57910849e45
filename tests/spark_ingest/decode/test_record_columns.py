"""The columns of a block are the same with the compiled codec and without it, for any stored batches and slices."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format.batch import Codec, encode, stamp
from engine.tiering.store.store import ObjectStore
from spark_ingest.decode.record_columns import RecordColumns, columns_of
from spark_ingest.source.scan import ScannedBatch, scan
from spark_ingest.source.slices import Slice
from tests.codecs import needs_compiled, plain_codec
from tests.gateway.fetch.test_record_json import STORED

pytestmark = needs_compiled


class Segment:
    """A store with one object."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def get(self, key: str, start: int, end: int) -> bytes:
        return self.data[start:end]


def segment_of(stored: Sequence[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]]) -> Segment:
    pieces, offset = [], 0
    for number, rows in enumerate(stored):
        fields = [(1000 + n, key, value, list(headers)) for n, (key, value, headers) in enumerate(rows)]
        batch = encode(fields, list(Codec)[number % len(Codec)])
        stamp(batch, offset, 0)
        pieces.append(bytes(batch))
        offset += len(rows)
    return Segment(b"".join(pieces))


def scanned(store: ObjectStore, slices: Sequence[Slice]) -> list[ScannedBatch]:
    return [one for one in scan(store, slices) if one.record_count]


@given(st.lists(STORED, min_size=1, max_size=6), st.data())
def test_both_codecs_make_the_same_columns(
    stored: list[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]], data: st.DataObject
) -> None:
    segment = segment_of(stored)
    count = sum(map(len, stored))
    cut = data.draw(st.integers(1, count))
    end = data.draw(st.integers(cut, count))
    ranges = [(0, cut), (cut, end)] if cut < end else [(0, cut)]
    slices = [Slice(0, "key", len(segment.data), 0, count, *one) for one in ranges]
    compiled = scanned(segment, slices)  # type: ignore[arg-type]
    with plain_codec():
        plain = scanned(segment, slices)  # type: ignore[arg-type]
        expected = columns_of(plain)
    found = columns_of(compiled)
    for name, left, right in zip(RecordColumns._fields, found, expected, strict=True):
        assert left.type == right.type, name
        assert left.to_pylist() == right.to_pylist(), name
        left.validate(full=True)
    assert [one.record_count for one in compiled] == [one.record_count for one in plain]
    assert [one.decoded_bytes for one in compiled] == [one.decoded_bytes for one in plain]
    assert len(found) == end
    table = pa.Table.from_arrays(list(found), names=list(RecordColumns._fields))
    assert table.take([0]).num_rows == 1


def test_usual_batches_are_never_decoded_to_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a batch was decoded to records")

    segment = segment_of([[(b"k", b"1", [("a", b"b")])] * 50] * 5)
    monkeypatch.setattr("spark_ingest.source.scan.decode_one", refused)
    found = columns_of(scanned(segment, [Slice(0, "key", len(segment.data), 0, 250, 7, 240)]))  # type: ignore[arg-type]
    assert found.offsets.to_pylist() == list(range(7, 240))
