"""Round trips of CloudEvents: an event that is produced in any mode is returned as the same event in every mode."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from engine.format import batch as record_batch
from engine.format.batch import Record, Row
from gateway.fetch.cloud_events import BINARY, events_out, render_events
from gateway.produce.batching import Headers, IncomingRow
from gateway.produce.cloud_events import CONTENT_TYPE, EVENT, EVENT_BATCH, binary_attributes, binary_event, decode_event

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="\ufffe\uffff"),
    min_size=1,
    max_size=40,
)
NAMES = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: name not in ("data", "datacontenttype", "specversion", "id", "source", "type", "time")
)
ATTRIBUTES = st.builds(
    lambda required, more: {**more, **required, "specversion": "1.0"},
    st.fixed_dictionaries({"id": TEXTS, "source": TEXTS, "type": TEXTS}),
    st.dictionaries(NAMES, TEXTS, max_size=5),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


# Records that a Kafka producer may have stored, including nearly valid events.
HEADER_NAMES = st.text(max_size=12) | st.sampled_from(
    [
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_time",
        "ce_X",
        "ce_",
        "ce_data",
        "content-type",
        "Content-Type",
    ]
)
HEADER_VALUES = (
    st.sampled_from(
        [b"1.0", b"1", b"", b"a/b", b"text/plain", b"application/json", EVENT.encode(), b"x/y; charset=latin-1"]
    )
    | st.binary(max_size=12)
    | st.none()
)


def stored(row: IncomingRow) -> Record:
    return record_of(row.key, row.value, row.headers)


def record_of(key: bytes | None, value: bytes | None, headers: Headers) -> Record:
    (record,) = record_batch.decode(bytes(record_batch.encode([Row(1_700_000_000_000, key, value, headers)])))
    return record


def shown(record: Record, form: str) -> tuple[dict[str, str], bytes]:
    return render_events(events_out([record], "/here"), form, "/here")


@given(ATTRIBUTES, st.one_of(st.none(), JSON_VALUES.map(lambda value: (value,))), st.booleans())
def test_a_structured_event_with_json_comes_back(attributes, data, is_spaced):
    document = attributes if data is None else {**attributes, "data": data[0]}
    separators = (", ", " : ") if is_spaced else (",", ":")
    (row,) = decode_event(json.dumps(document, ensure_ascii=is_spaced, separators=separators).encode())
    record = stored(row)
    assert record.key == (attributes["partitionkey"].encode() if "partitionkey" in attributes else None)
    expected = document if data is None else {**document, "datacontenttype": "application/json"}
    assert json.loads(shown(record, EVENT)[1]) == expected
    assert json.loads(shown(record, EVENT_BATCH)[1]) == [expected]


@given(
    ATTRIBUTES,
    st.binary(max_size=60),
    st.sampled_from([None, "text/plain", "application/json", "image/png", "application/xml"]),
)
def test_a_binary_event_comes_back_in_binary_and_in_structured_mode(attributes, data, content_type):
    (first,) = binary_event(attributes, content_type, data)
    headers, body = shown(stored(first), BINARY)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    again = binary_attributes({name: value for name, value in headers.items() if name != "Content-Type"})
    assert again == attributes
    assert (headers.get("Content-Type"), body) == (content_type, data)
    (second,) = binary_event(again, content_type, body)
    assert (second.key, second.value, sorted(second.headers)) == (first.key, first.value, sorted(first.headers))
    (third,) = decode_event(shown(stored(first), EVENT)[1])
    assert (third.key, third.value) == (first.key, first.value)
    assert dict(third.headers).get(CONTENT_TYPE) == (None if content_type is None else content_type.encode())


@given(
    st.binary(max_size=40) | st.none(),
    st.binary(max_size=20) | st.none(),
    st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=8),
)
def test_any_record_at_all_is_shown_as_an_event_that_can_be_taken_again(value, key, headers):
    record = record_of(key, value, headers)
    document = json.loads(shown(record, EVENT)[1])
    assert {"specversion", "id", "source", "type"} <= document.keys()
    decode_event(json.dumps(document).encode())
    if document["type"] == "penstock.record.v1" and value is not None:
        data = document.get("data")
        raw = base64.b64decode(document["data_base64"]) if "data_base64" in document else None
        is_text = isinstance(data, str) and data.encode() == value
        assert raw == value or is_text or json.loads(value) == data
    binary, _ = shown(record, BINARY)
    assert all(text.isascii() for text in binary.values())
