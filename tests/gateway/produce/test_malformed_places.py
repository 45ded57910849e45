"""Malformed JSON in any form of a body is refused with line, column and record, whichever codec has read it."""

import pytest

import penstock_codec
from gateway.http.problems import Problem
from gateway.produce.cloud_events import decode_event, decode_event_batch
from gateway.produce.json_records import decode_envelope, decode_record_lines, decode_topic_envelope
from gateway.produce.ndjson_values import decode_keyed_values, decode_values
from tests.cells import each_cell

# The decoder, the body around a value, and how many records and which column come before the value.
FORMS = {
    "envelope": (decode_envelope, b'{"records":[{"value":{"a":[1]}},\n{"value":%b}]}', 1, 10),
    "topics": (decode_topic_envelope, b'{"records":[{"topic":"t","value":"}"},\n {"topic":"t","value":%b}]}', 1, 23),
    "values": (decode_values, b"1\n%b\n", 1, 1),
    "keyed values": (lambda body: decode_keyed_values(body, ["k"]), b'{"k":1}\n{"k":%b}\n', 1, 6),
    "records": (decode_record_lines, b'{"value":1}\n  {"value":%b}\n', 1, 12),
    "event": (decode_event, b'{"id":"1",\n"x":%b}', None, 5),
    "events": (decode_event_batch, b'[{"id":"[{"},\n{"id":%b}]', 1, 7),
}
# A value, how far within it the fault is, and a part of the message.
FAULTS = {
    "NaN": (b"NaN", 0, "NaN is not a value of JSON"),
    "Infinity": (b'["NaN",-1,-Infinity]', 10, "-Infinity is not a value of JSON"),
    "half a pair": (b'"\\ud83d"', 1, "half of a surrogate pair"),
    "its other half": (b'["\\\\ud83d\\ud83d\\ude00",\n"\\ude00"]'.replace(b"\n", b""), 24, "half of a surrogate pair"),
    "a comma": (b'{"a":1,}', 7, ""),
    "a control character": (b'"\xc3\xa9\x01"', 3, "control character"),
}


@pytest.fixture(params=["compiled", "plain"])
def codec(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(penstock_codec, "native", None)
    elif penstock_codec.native is None:
        pytest.skip("the codec is not compiled")


@each_cell("form", FORMS)
@each_cell("fault", FAULTS)
def test_a_fault_has_its_line_column_and_record(codec, form, fault):
    """Before the fix NaN and half an emoji among 2,000 records had no position."""
    (decode, around, record, column), (value, within, text) = FORMS[form], FAULTS[fault]
    with pytest.raises(Problem) as refused:
        decode(around % value)
    found = refused.value
    assert found.code in ("malformed_json", "malformed_ndjson")
    assert text in found.detail
    expected = {"line": 2, "column": column + within} | ({} if record is None else {"record": record})
    assert {name: found.members.get(name) for name in expected} == expected


@each_cell("form", FORMS)
def test_a_byte_order_mark_is_named(codec, form):
    decode, around, *_ = FORMS[form]
    with pytest.raises(Problem, match="byte order mark") as refused:
        decode(b"\xef\xbb\xbf" + around % b'"k"')
    assert (refused.value.members["line"], refused.value.members["column"]) == (1, 1)


@each_cell("form", FORMS)
def test_a_body_that_is_cut_off_says_so(codec, form):
    decode, around, *_ = FORMS[form]
    with pytest.raises(Problem, match="ends too early"):
        decode((around % b'"k"')[: (around % b'"k"').rindex(b'k"') + 1])


def test_lines_of_json_that_are_sent_as_one_value_get_the_right_type():
    for body in (b'{"a":1}\n{"a":2}\n', b"1\n2", b'{"records":[]}\n{"records":[]}'):
        with pytest.raises(Problem, match="send them as application/x-ndjson") as refused:
            decode_envelope(body)
        assert refused.value.code == "unsupported_media_type"
    with pytest.raises(Problem) as refused:
        decode_envelope(b'{\n"a": 1\n}')
    assert refused.value.code == "unknown_field"
