"""Filtered batches: the records that pass keep their place, in the compiled codec as in its plain Python twin."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from engine.format.batch import DECODED_BYTES_MAX, Codec, Record, Row, decode, encode, walk
from engine.format.batch_header import has_valid_crc, mark_control, stamp
from engine.format.keyed_batch import KeyEntry, shown, stored_entry
from engine.partition.reader import Chunk
from gateway.filters.filtered_batches import filter_batches
from gateway.filters.record_filter import record_filter
from tests.codecs import plainly
from tests.gateway.json_texts import TEXTS

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([42, 2**70, 1.5, -0.0, 10.0]) | TEXTS
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=6),
    st.builds(
        lambda document, ascii_only: json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"),
        st.recursive(
            SCALARS,
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.sampled_from("ab0"), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        st.booleans(),
    ),
    st.sampled_from([b'{"a":1,"a":2}', b'{"a" :\n1.0}', b'{"\\u0061":1}', b"[1e0, -0]", b'"\\ud800"', b" 1 "]),
)
KEYS = st.none() | st.sampled_from([b"", b"a", b"ab", b"\xff"])
HEADERS = st.lists(st.tuples(st.sampled_from(["h", "H", "é"]), KEYS), max_size=3)
RECORDS = st.lists(st.builds(Row, st.integers(0, 9), KEYS, VALUES, HEADERS), min_size=1, max_size=8)
LITERALS = SCALARS.filter(lambda one: not isinstance(one, str) or one.isprintable()).map(json.dumps)
POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "~0", "~1", ""]), max_size=3)
CONDITIONS = st.one_of(
    st.builds(lambda sign, text: f"key{sign}{text}", st.sampled_from(["=", "^="]), st.sampled_from(["", "a", "ab"])),
    st.builds(lambda name, text: f"header.{name}={text}", st.sampled_from(["h", "é"]), st.sampled_from(["", "a"])),
    st.builds(lambda steps, literal: f"value{''.join('/' + one for one in steps)}={literal}", POINTERS, LITERALS),
    st.builds(lambda steps: f'value{"".join("/" + one for one in steps)}^="a"', POINTERS),
).filter(lambda text: "\\ud" not in text)


def batch_of(rows: list[Row], base_offset: int, codec: Codec = Codec.NONE, entry: KeyEntry | None = None) -> bytearray:
    made = encode(rows, codec, entry=None if entry is None else stored_entry(entry))
    stamp(made, base_offset, 3)
    return made


def fields(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value, list(record.headers)


@given(st.lists(st.tuples(RECORDS, st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP])), min_size=1, max_size=3),
       st.lists(CONDITIONS, min_size=1, max_size=2))  # fmt: skip
@example([([Row(0, None, b'{"a":1.0}', [])], Codec.NONE)], ["value/a=1"])
@example([([Row(0, None, b'{"\\u0061":1}', [])], Codec.NONE)], ["value/a=1"])
def test_what_passes_is_the_records_for_which_all_conditions_hold(batches, conditions):
    data, offset = b"", 7
    for rows, codec in batches:
        data += batch_of(rows, offset, codec)
        offset += len(rows)
    wanted = record_filter(tuple(conditions))
    found = filter_batches(Chunk(data, offset), wanted, DECODED_BYTES_MAX)
    assert found == plainly(filter_batches, Chunk(data, offset), wanted, DECODED_BYTES_MAX)
    assert found.next_offset == offset
    passing = [record for record in decode(data) if wanted.passes(record)]
    assert list(map(fields, decode(found.data))) == list(map(fields, passing))
    assert all(has_valid_crc(found.data, position, header) for position, header in walk(found.data))


def test_a_batch_of_which_all_records_pass_stays_as_it_is():
    data = bytes(batch_of([Row(1, b"a", b"1", [])] * 3, 0, Codec.GZIP))
    assert filter_batches(Chunk(data, 3), record_filter(("key=a",)), DECODED_BYTES_MAX).data is data


def test_control_batches_are_dropped_and_what_cannot_be_decoded_stays():
    control, bad = batch_of([Row(1, b"a", b"1", [])], 0), batch_of([Row(1, b"a", b"1", [])] * 2, 1)
    mark_control(control)
    bad[61] = 127  # the length of the first record
    found = filter_batches(Chunk(bytes(control + bad), 3), record_filter(("key=b",)), DECODED_BYTES_MAX)
    assert found == Chunk(bytes(bad), 3)


def test_an_idempotency_key_is_shown_to_no_reader_of_a_filtered_batch():
    entry = KeyEntry(b"k" * 16, b"r" * 16, 7, 1)
    rows = [Row(1, b"a", b"1", []), Row(1, b"b", b"2", [])]
    chunk = Chunk(bytes(batch_of(rows, 0, entry=entry)), 2)
    for key in "ab":
        found = filter_batches(chunk, record_filter((f"key={key}",)), DECODED_BYTES_MAX)
        [record] = decode(shown(found.data))
        assert (record.key, record.headers) == (key.encode(), [])
        assert b"__penstock" not in shown(found.data)
