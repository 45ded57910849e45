"""Record objects from JSON: they are stored as sent, and an object with a duplicate field is rejected."""

import base64
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.http.problems import Problem
from gateway.produce.batching import IncomingObjects, IncomingRow, IncomingSpans
from gateway.produce.json_records import decode_envelope, decode_record_lines
from tests.codecs import each_codec  # noqa: F401
from tests.gateway.json_texts import SPACES, SPACES_IN_LINE, TEXTS, VALUES, json_texts, written
from tests.gateway.refusals import refusal_of

HEADER_VALUES = st.none() | TEXTS | st.binary(max_size=5).map(lambda raw: {"base64": base64.b64encode(raw).decode()})
MOMENTS = st.none() | st.integers(0, 2**53 - 1)
NAMES = TEXTS.filter(lambda name: not name.startswith("__penstock"))  # those are the log's own
OPTIONAL = {
    "key": TEXTS,
    "headers": st.dictionaries(NAMES, HEADER_VALUES | st.lists(HEADER_VALUES, max_size=3), max_size=3),
    "timestamp": MOMENTS,
    "partition": st.none() | st.integers(0, 2**31),
}
RECORDS = st.fixed_dictionaries({"value": VALUES}, optional=OPTIONAL)


pytestmark = pytest.mark.usefixtures("each_codec")


def rows_of(incoming):
    if isinstance(incoming, IncomingObjects):
        return incoming.plainly()
    if isinstance(incoming, IncomingSpans):
        return [IncomingRow(None, value, headers) for _, _, value, headers in incoming.rows(0, None)]
    return incoming


def assert_is(row, record):
    assert row.key == (record["key"].encode() if record.get("key") is not None else None)
    assert row.value is None if record["value"] is None else json.loads(row.value) == record["value"]
    assert row.timestamp == record.get("timestamp")
    assert row.partition == record.get("partition")
    assert row.headers == [pair for name, given in record.get("headers", {}).items() for pair in pairs(name, given)]


def pairs(name, given):
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, dict):
            yield name, base64.b64decode(one["base64"])
        else:
            yield name, None if one is None else one.encode()


@given(st.data(), st.lists(RECORDS, max_size=4))
def test_an_envelope_is_read_however_it_is_written(data, records):
    body = data.draw(SPACES) + data.draw(written({"records": records})) + data.draw(SPACES)
    rows = rows_of(decode_envelope(body.encode()))
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        assert_is(row, record)


@given(st.data(), st.lists(RECORDS, min_size=1, max_size=4))
def test_record_lines_are_read_however_they_are_written(data, records):
    lines = [data.draw(written(record, SPACES_IN_LINE)) for record in records]
    for row, record in zip(rows_of(decode_record_lines("\n".join(lines).encode())), records, strict=True):
        assert_is(row, record)


@given(json_texts())
@example('{"a": [1.50, 1E5]}')
@example("123456789012345678901234567890.000")
def test_the_bytes_of_a_value_are_kept(text):
    (row,) = rows_of(decode_envelope(b'{"records":[{"value":%s}]}' % text.encode()))
    assert row.value == (None if text == "null" else text.encode())


@given(st.data(), st.lists(RECORDS, min_size=1, max_size=3))
def test_a_field_given_twice_is_always_found(data, records):
    """At any position, in any spelling, with any white space."""
    where = data.draw(st.integers(0, len(records) - 1))
    name = data.draw(st.sampled_from(sorted(records[where])))
    texts = [data.draw(written(record, SPACES)) for record in records]
    field = data.draw(written(records[where][name], SPACES))
    spelled = data.draw(
        st.sampled_from([json.dumps(name), json.dumps(name).replace(name[0], f"\\u{ord(name[0]):04x}", 1)])
    )
    twice = texts[where].rstrip()[:-1] + f",{data.draw(SPACES)}{spelled}:{field}}}"
    body = '{"records":[' + ",".join([*texts[:where], twice, *texts[where + 1 :]]) + "]}"
    with pytest.raises(Problem) as refused:
        decode_envelope(body.encode())
    assert refused.value.code == "invalid_body"
    assert "twice" in refused.value.detail
    line = twice.replace("\n", " ").replace("\r", " ")
    with pytest.raises(Problem) as refused:
        decode_record_lines(b'{"value":1}\n' + line.encode())
    assert refused.value.members["line"] == 2


@given(st.binary(max_size=60))
def test_any_bytes_are_records_or_a_problem(body):
    for decode in (decode_envelope, decode_record_lines):
        problem = refusal_of(decode, body)
        assert problem is None or problem.status == 400


@given(st.text(max_size=60).map(lambda text: '{"records":[' + text + "]}"))
@example('{"records":[{"value":1,"headers":{"h":1e999}}]}')
@example('{"records":[{"value":1,"headers":{"h":' + "9" * 5000 + "}}]}")
@example('{"records":[{"value":' + "9" * 5000 + ', "val\\u0075e":1}]}')
@example('{"records":[{"value":' + "9" * 5000 + "},]}")
@example('{"records":[{"value":1,"timestamp":99999999999999999999}]}')
@example('{"records":[{"value":1,"timestamp":"0001-01-01T00:00:00+23:59"}]}')
@example('{"records":[{"value":1,"timestamp":"9999-12-31T23:59:59-23:59"}]}')
@example('{"records":[{"value":1,"key":"\\ud800"}]}')
@example('{"records":[{"value":"\\udc00"}]}')
def test_any_text_in_the_envelope_is_records_or_a_problem(body):
    problem = refusal_of(decode_envelope, body.encode("utf-8", "surrogatepass"))
    assert problem is None or problem.status == 400


@pytest.mark.parametrize("depth", [900, 1100, 100_000])
@pytest.mark.parametrize("kind", ["[]", "{}"])
def test_nesting_of_any_depth_is_taken_or_refused(depth, kind):
    opened, closed = ("[", "]") if kind == "[]" else ('{"a":', "}")
    value = opened * depth + "1" + closed * depth
    for body in (
        '{"records":[{"value":VALUE}]}',
        '{"records":[{"value":1,"headers":{"h":VALUE}}]}',
        '{"records":[{"value":VALUE,"value":1}]}',
        '{ "records":[{"value":VALUE, "key":1}]}',
        '{"records":VALUE}',
        '{"value":VALUE, "key":1}',
    ):
        for decode in (decode_envelope, decode_record_lines):
            problem = refusal_of(decode, body.replace("VALUE", value).encode())
            assert problem is None or problem.status == 400
