"""Stored records as JSON: for any stored bytes the answer is one valid document with all of them."""

import base64
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.format import batch
from engine.format.batch import Row
from gateway.fetch.record_json import Undecodable, bare_value, encode_lines, encode_list, records_out
from gateway.fetch.rendering import encode_document
from gateway.produce.json_records import decode_record_lines
from tests.gateway.json_texts import TEXTS, json_texts
from tests.gateway.produce.test_json_records import rows_of

FORMS = [None, "json", "text", "base64"]
MEDIA_TYPES = ["application/json", "text/plain; charset=utf-8", "image/png", "application/geo+json", "", "é", "text/"]
HOSTILE = [
    b'1},{"offset":5',
    b"1}]}",
    b'"',
    b"\\",
    b"1\n2",
    b"1\r2",
    b'{"a":\r\n1}',
    b" 1",
    b"1 ",
    b"1,1",
    b"",
    b"nul",
    b"null",
    b"\xff",
    b'"\xff"',
    b'"\\ud800"',
    b'"\\u2028"',
    "\u2028".encode(),
    b"1e999",
    b"[" * 5000,
    b"[" * 5000 + b"]" * 5000,
    b"\x00",
    b"\xef\xbb\xbf{}",
]
BYTES = st.sampled_from(HOSTILE) | st.binary(max_size=20) | json_texts().map(str.encode)
STORED = st.lists(
    st.tuples(
        st.none() | BYTES,
        st.none() | BYTES,
        st.lists(
            st.tuples(
                st.just("content-type") | TEXTS,
                st.none() | st.binary(max_size=8) | st.sampled_from(MEDIA_TYPES).map(str.encode),
            ),
            max_size=3,
        ),
    ),
    min_size=1,
    max_size=5,
)


def stored_records(rows):
    """Return the records as the codec returns them after they were stored."""
    return batch.decode(
        batch.encode([Row(1000 + n, key, value, list(headers)) for n, (key, value, headers) in enumerate(rows)])
    )


def strictly_parsed(text):
    """Parse with a parser that accepts only JSON of RFC 8259."""

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text.decode(), parse_constant=refuse)


def bytes_shown(out, stored):
    """Return the value's bytes, from the form in which it is shown."""
    if "value_base64" in out:
        return base64.b64decode(out["value_base64"])
    if stored is None:
        assert out["value"] is None
        return None
    return stored if _is_shown_as_json(out["value"], stored) else out["value"].encode()


def _is_shown_as_json(shown, stored):
    try:
        return json.loads(stored) == shown
    except (ValueError, RecursionError):
        return False


@given(STORED, st.sampled_from(FORMS))
@example([(None, value, []) for value in HOSTILE], None)
@example([(None, value, []) for value in HOSTILE], "json")
@example([(value, value, [("content-type", b"application/json")]) for value in HOSTILE], None)
def test_every_form_is_one_valid_document_with_all_bytes_in_it(rows, form):
    outs = records_out(stored_records(rows), form)
    document = strictly_parsed(encode_document({"topic": "t"}, encode_list(outs)))
    lines = [strictly_parsed(line) for line in encode_lines(outs).split(b"\n")[:-1]]
    assert document == {"topic": "t", "records": lines}
    assert len(lines) == len(rows)
    for n, ((key, value, _), out) in enumerate(zip(rows, lines, strict=True)):
        assert (out["offset"], out["timestamp"]) == (n, 1000 + n)
        assert bytes_shown(out, value) == value
        shown_key = base64.b64decode(out["key_base64"]) if "key_base64" in out else out["key"]
        assert shown_key in (key, None if key is None else key.decode("utf-8", "replace"))


@given(STORED, st.sampled_from(FORMS))
@example([(None, value, []) for value in HOSTILE], None)
def test_bare_values_are_one_valid_line_each(rows, form):
    for out in records_out(stored_records(rows), form):
        line = bare_value(out)
        assert b"\n" not in line
        assert b"\r" not in line
        strictly_parsed(line)


@given(STORED)
def test_lines_in_base64_can_be_produced_again_and_are_the_same_records(rows):
    """Headers of one name keep their order; JSON objects have no order between names."""
    lines = encode_lines(records_out(stored_records(rows), "base64"))
    again = rows_of(decode_record_lines(lines))
    for (key, value, headers), row in zip(rows, again, strict=True):
        assert (row.key, row.value) == (key, value)
        assert sorted(row.headers, key=lambda pair: pair[0]) == sorted(headers, key=lambda pair: pair[0])


@given(st.lists(json_texts(), min_size=1, max_size=5))
def test_json_values_are_given_as_they_are_stored_but_for_line_ends(texts):
    outs = records_out(stored_records([(None, text.encode(), []) for text in texts]), None)
    assert [bare_value(out) for out in outs] == [text.replace("\n", " ").replace("\r", " ").encode() for text in texts]


@pytest.mark.parametrize(
    ("media_type", "value", "shown"),
    [
        (b"application/json", b'{"a": 1}', {"value": {"a": 1}}),
        (b"application/vnd.x+json; v=2", b"[1]", {"value": [1]}),
        (b"APPLICATION/JSON", b"1", {"value": 1}),
        (b"text/csv", b"1,2", {"value": "1,2"}),
        (b"text/plain", b"1", {"value": "1"}),
        (b"application/x-www-form-urlencoded", b"a=1", {"value": "a=1"}),
        (b"image/png", b"1", {"value_base64": "MQ=="}),
        (b"", b"1", {"value": 1}),
        (None, b"1", {"value": 1}),
        (b"application/json", b"{", {"value_base64": "ew=="}),
        (b"text/plain", b"\xff", {"value_base64": "/w=="}),
        (b"image/png", None, {"value": None}),
    ],
)
def test_a_value_is_shown_as_its_media_type_says(media_type, value, shown):
    (out,) = records_out(stored_records([(None, value, [("Content-Type", media_type)])]), None)
    assert shown.items() <= json.loads(encode_document({"topic": "t"}, encode_list([out])))["records"][0].items()


def test_what_cannot_be_decoded_is_an_entry_with_its_bounds():
    hole = Undecodable(5, 9)
    assert json.loads(encode_lines([hole])) == {"offset": 5, "last_offset": 9, "error": "undecodable"}
    assert json.loads(bare_value(hole))["error"] == "undecodable"
