"""Keyed batches: the entry is stored with the records, read back, and never shown."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.format import batch
from engine.format.batch import Codec, Row
from engine.format.keyed_batch import (
    KeyEntry,
    RequestEntry,
    SequenceEntry,
    has_keyed,
    read_entries,
    shown,
    stored_entry,
    stored_rows,
)
from tests.engine.format.first_entry import read_entry

ENTRY = KeyEntry(b"k" * 16, b"r" * 16, 10_000, 2**47)
CODECS = st.sampled_from(list(Codec))
some_bytes = st.one_of(st.none(), st.binary(max_size=200))
rows_of_batch = st.lists(
    st.builds(
        Row,
        timestamp=st.integers(0, 2**40),
        key=some_bytes,
        value=some_bytes,
        headers=st.lists(st.tuples(st.text("abä", max_size=5), some_bytes), max_size=70),
    ),
    min_size=1,
    max_size=5,
)


def batch_of(rows: list[Row], codec: Codec, entry: KeyEntry | None = ENTRY, base_offset: int = 0) -> bytearray:
    data = batch.encode(rows, codec, entry=None if entry is None else stored_entry(entry))
    batch.stamp(data, base_offset, 3)
    return data


def contents(run: bytes) -> list[object]:
    """Return everything but the bytes: gzip writes the time of day into them, and unused times may be left out."""
    found: list[object] = []
    for position, header in batch.walk(run):
        assert batch.has_valid_crc(run, position, header)
        found.append(header._replace(crc=0, batch_length=0, base_timestamp=0))
        records = batch.decode_one(run[position : position + header.size_bytes])
        found.append([(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records])
    return found


@given(rows=rows_of_batch, codec=CODECS)
def test_an_entry_is_read_back_and_records_are_decoded_without_it(rows, codec):
    data = batch_of(rows, codec)
    header = batch.read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-2, -1, -1)
    assert read_entry(data) == ENTRY
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in batch.decode_one(data)] == [tuple(r) for r in rows]


@given(before=rows_of_batch, rows=rows_of_batch, codec=CODECS, has_append_time=st.booleans())
@example(before=[], rows=[Row(5, None, b"v" * 62, [])], codec=Codec.NONE, has_append_time=False)
@example(before=[], rows=[Row(5, None, b"v" * 8130, [])], codec=Codec.NONE, has_append_time=True)
def test_stored_batches_are_shown_as_if_they_had_never_had_a_key(before, rows, codec, has_append_time):
    plain = batch_of(before, codec, None) if before else bytearray()
    keyed, bare = batch_of(rows, codec, base_offset=7), batch_of(rows, codec, None, base_offset=7)
    if has_append_time:
        batch.stamp_append_time(keyed, 2**41)
        batch.stamp_append_time(bare, 2**41)
    run = bytes(plain + keyed + plain)
    assert has_keyed(run)
    if codec is Codec.NONE:
        assert shown(run) == plain + bare + plain
    assert contents(shown(run)) == contents(plain + bare + plain)


entries = st.one_of(
    st.builds(KeyEntry, st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16),
              st.integers(1, 10_000), st.integers(0, 2**47)),
    st.builds(SequenceEntry, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1),
              st.integers(0, 2**63 - 1)),
)  # fmt: skip


@st.composite
def shared_batches(draw: st.DrawFn) -> tuple[list[Row], list[RequestEntry]]:
    """Return the rows of one to four requests; at least one has an entry."""
    rows, found = list[Row](), list[RequestEntry]()
    for number in range(draw(st.integers(1, 4))):
        of_request = draw(rows_of_batch)
        if number == 0 or draw(st.booleans()):
            found.append(RequestEntry(draw(entries), len(rows), len(of_request)))
        rows += of_request
    return rows, found


@given(shared=shared_batches(), before=rows_of_batch, codec=CODECS)
def test_a_batch_of_several_requests_has_the_entry_of_each_and_is_shown_without(shared, before, codec):
    rows, found = shared
    data = batch.encode(rows, codec, entry=stored_rows(found), sequenced=(-1, -1, len(found)))
    header = batch.read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-2, -1, len(found))
    assert read_entries(data) == found
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in batch.decode_one(data)] == [tuple(r) for r in rows]
    plain = batch.encode(before, codec)
    assert has_keyed(bytes(plain + data))
    assert contents(shown(bytes(plain + data))) == contents(bytes(plain + batch.encode(rows, codec)))
    if codec is Codec.NONE:
        assert shown(bytes(data)) == batch.encode(rows)


@given(shared=shared_batches(), claimed=st.integers(0, 2**31 - 1))
def test_rows_that_are_not_those_of_the_header_recognise_nothing_and_are_shown_as_they_are(shared, claimed):
    rows, found = shared
    data = batch.encode(rows, entry=stored_rows(found), sequenced=(-1, -1, len(found)))
    if claimed != len(found):
        batch.stamp_sequence(data, -2, -1, claimed)
        assert read_entries(data) == []
        assert shown(data) == data
    beyond = [found[0]._replace(record_count=len(rows) + 1 - found[0].first)]
    assert read_entries(batch.encode(rows, entry=stored_rows(beyond), sequenced=(-1, -1, 1))) == []


@pytest.mark.parametrize("value_bytes", [10, 400, 3000], ids=["small", "medium", "large"])
@pytest.mark.parametrize("byte", [b"a", b"\xfe"], ids=["text", "binary"])
def test_a_keyed_batch_is_found_among_many_others_and_nothing_where_there_is_none(value_bytes, byte):
    plain = batch_of([Row(5, None, byte * value_bytes, [])], Codec.NONE, None) * 200
    keyed = batch_of([Row(5, None, b"v", [])], Codec.NONE)
    assert not has_keyed(plain)
    for run in (plain + keyed, keyed + plain, plain + keyed + plain):
        assert has_keyed(run)
    assert not has_keyed(b"")


def test_a_value_that_holds_the_pattern_harms_nothing():
    plain = batch_of([Row(5, None, struct.pack(">q", -2), [])], Codec.NONE, None) * 200
    assert has_keyed(plain)  # without effect
    assert shown(plain) is plain


def test_a_damaged_keyed_batch_keeps_its_wrong_checksum():
    keyed = batch_of([Row(5, None, b"value", [])], Codec.NONE)
    keyed[70] ^= 1
    assert shown(keyed) is keyed


@pytest.mark.parametrize("rows", [[Row(5, None, b"v", [])], [Row(5, None, b"v", [("h", b"x" * 40)])]])
def test_a_batch_that_only_says_it_is_keyed_recognises_nothing_and_is_shown_as_it_is(rows):
    liar = batch_of(rows, Codec.NONE, None)
    struct.pack_into(">q", liar, 43, -2)
    batch.set_crc(liar)
    assert read_entry(liar) is None
    assert shown(liar) == liar


@given(garbage=st.binary(max_size=120), codec=CODECS)
def test_no_bytes_behind_a_header_make_reading_an_entry_fail(garbage, codec):
    liar = batch_of([Row(5, None, b"v", [])], codec)[: batch.HEADER_BYTES] + garbage
    struct.pack_into(">i", liar, 8, len(liar) - batch.PREFIX_BYTES)
    batch.set_crc(liar)
    assert read_entry(liar) in (None, ENTRY)
    assert len(shown(liar)) > 0
