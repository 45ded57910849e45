"""Batches to JSON and NDJSON by the compiled codec: byte for byte what its twin makes, of any stored batches."""

from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch import Codec, stamp, stamp_append_time
from engine.format.batch_header import empty_batch, with_records
from engine.format.keyed_batch import KeyEntry, stored_entry
from engine.format.record_spans import record_spans
from gateway.fetch import record_json
from gateway.fetch.record_json import Bounds, Style, decode_stored, end_of, records_out, render_plainly
from gateway.fetch.rendering import line_ends, render_stored
from tests.codecs import needs_compiled
from tests.gateway.fetch.test_record_json import FORMS, HOSTILE, STORED

pytestmark = needs_compiled

WIDE = Bounds(None, 1 << 20, 1 << 30)
ENTRY = stored_entry(KeyEntry(b"k" * 16, b"r" * 16, 7, 1_700_000_000_000))
STYLES = st.sampled_from(Style)


def outcome(render: Any, *arguments: Any) -> Any:
    try:
        return render(*arguments)
    except InvalidBatch as error:
        return error.detail


def batch_of(rows: Any, offset: int, codec: Codec = Codec.NONE, *, is_keyed: bool = False) -> bytearray:
    fields = [(1000 + n, key, value, list(headers)) for n, (key, value, headers) in enumerate(rows)]
    batch = record_batch.encode(fields, codec, entry=ENTRY if is_keyed else None)
    stamp(batch, offset, 3)
    return batch


def compacted(batch: bytearray, removed: set[int]) -> bytearray:
    """Return a batch without some of its records."""
    header, plain = record_batch.read_header(batch), record_batch.unpacked(batch)
    spans = list(record_spans(plain, header.record_count))
    kept = [bytes(plain[one.begin : one.end]) for number, one in enumerate(spans) if number not in removed]
    return with_records(batch, b"".join(kept), Codec.NONE, len(kept), header.producer_id)


@st.composite
def runs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Return a run of batches from offset 7 on, and its end."""
    pieces, offset = [], 7
    for rows in draw(st.lists(STORED, min_size=1, max_size=4)):
        codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.LZ4]))
        batch = batch_of(rows, offset, codec, is_keyed=draw(st.booleans()))
        if draw(st.booleans()):
            stamp_append_time(batch, 2_000)
        if draw(st.booleans()):
            batch = compacted(batch, draw(st.sets(st.integers(0, len(rows)))))
        pieces.append(bytes(batch))
        offset += len(rows)
    return b"".join(pieces), offset


@given(runs(), st.sampled_from(FORMS), STYLES, st.integers(0, 20), st.none() | st.integers(1, 9), st.integers(0, 400))
def test_a_run_is_rendered_as_by_the_twin(run, form, style, offset, max_records, bytes_max):
    data, end = run
    for bounds in (WIDE, Bounds(max_records, 1 << 20, 1 << 30), Bounds(max_records, 200, bytes_max)):
        compiled = render_stored(data, offset, end, bounds, form, style)
        assert compiled == render_plainly(data, offset, end, bounds, form, style)
        if style is Style.LINES and not compiled.has_gap:
            outs, _, _ = decode_stored(data, offset, end, bounds, partial(records_out, form=form))
            assert line_ends(compiled) == [end_of(out) for out in outs]


@given(runs(), st.sampled_from(FORMS), STYLES, st.data())
def test_a_damaged_run_is_rendered_as_by_the_twin(run, form, style, data):
    """The bytes of a client's batch have a true checksum and may be anything, since `verify=header` trusts them."""
    stored, end = bytearray(run[0]), run[1]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, len(stored) - 1))
        stored[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del stored[data.draw(st.integers(61, len(stored))) :]
    compiled = outcome(render_stored, bytes(stored), 0, end, WIDE, form, style)
    assert compiled == outcome(render_plainly, bytes(stored), 0, end, WIDE, form, style)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("style", Style)
def test_hostile_values_are_rendered_as_by_the_twin(form, style):
    rows = [(value, value, [("h", value)]) for value in HOSTILE] + [(None, None, [("h", None)])]
    data = bytes(batch_of(rows, 0))
    assert render_stored(data, 0, len(rows), WIDE, form, style) == render_plainly(data, 0, len(rows), WIDE, form, style)


def test_most_batches_need_no_object_for_a_record(monkeypatch):
    rows = [(b"k", b'{"a":1}', [("content-type", b"application/json"), ("x", "é".encode())])] * 100
    data = b"".join(bytes(batch_of(rows, 100 * n, codec)) for n, codec in enumerate(Codec))
    data += bytes(compacted(batch_of(rows, 500, Codec.NONE), {0, 7, 99})) + bytes(empty_batch(600, 1000, 3, 1))
    expected = render_plainly(data, 0, 1000, WIDE, None, Style.LINES)

    def refused(*_: object) -> None:
        raise AssertionError("a batch was decoded in Python")

    monkeypatch.setattr(record_json, "records_out", refused)
    monkeypatch.setattr(record_batch, "decode_sized", refused)
    assert render_stored(data, 0, 1000, WIDE, None, Style.LINES) == expected
    assert expected.record_count == 597


@given(st.text(max_size=20), st.binary(max_size=20))
@example("".join(map(chr, range(0x100))), bytes(range(256)))
@example("\ud7ff\ue000\U0010ffff\u2028\x7f", b"\xf4\x8f\xbf\xbf")
def test_texts_and_bytes_are_written_as_msgspec_writes_them(text, other):
    kept = text.encode("utf-8", "replace")
    for value in (kept, other):
        data = bytes(batch_of([(value, value, [("h", value)])], 0))
        assert render_stored(data, 0, 1, WIDE, "text", Style.LINES) == render_plainly(
            data, 0, 1, WIDE, "text", Style.LINES
        )


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**61))
@example(0, 0)
@example(9, 10)
@example(99, 100)
@example(-(2**63), 999)
@example(2**63 - 1, 10**18)
def test_numbers_are_written_in_decimal(timestamp, offset):
    batch = record_batch.encode([(timestamp, None, b"1", [])])
    stamp(batch, offset, 0)
    line = b'{"offset":%d,"timestamp":%d,"key":null,"value":1,"headers":{}}\n' % (offset, timestamp)
    assert render_stored(bytes(batch), 0, offset + 1, WIDE, None, Style.LINES).text == line
