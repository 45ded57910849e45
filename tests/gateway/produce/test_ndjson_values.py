"""Bare values, one a line: exactly one JSON value a line; anything nearly valid is rejected."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.format import batch as record_batch
from gateway.http.problems import Problem
from gateway.produce.batching import Destination, IncomingObjects, IncomingSpans, to_batches
from gateway.produce.ndjson_values import decode_keyed_values, decode_values, parse_pointer
from tests.codecs import each_codec  # noqa: F401
from tests.gateway.json_texts import SPACES_IN_LINE, TEXTS, VALUES, json_texts, written
from tests.gateway.produce.parts import topic_of
from tests.gateway.refusals import refusal_of

pytestmark = pytest.mark.usefixtures("each_codec")


def values_of(body):
    incoming = decode_values(body)
    if isinstance(incoming, IncomingSpans):
        return [value for _, _, value, _ in incoming.rows(0, None)]
    return [row.value for row in incoming]


def keyed_rows(body, pointer):
    """Return the records with their keys; those of the compiled codec as a batch has them."""
    incoming = decode_keyed_values(body, pointer)
    if isinstance(incoming, IncomingObjects):
        [batch] = to_batches(incoming, Destination(topic_of(), None, 0, 0), 1000)
        return record_batch.decode(batch.batch)
    return incoming


def first_bad_line(body):
    """Return the first bad line, checked slowly line by line; None if there is none. Uses Python's parser without its
    extensions.
    """

    def refuse(text):
        raise ValueError(text)

    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip(b" \t\r"):
            try:
                text = line.strip(b" \t\r").decode()
                json.loads(text, parse_constant=refuse).__class__  # noqa: B018
                text.encode()
                json.dumps(json.loads(text), ensure_ascii=False).encode()
            except (ValueError, RecursionError):
                return number
    return None


@given(st.lists(json_texts(spaces=SPACES_IN_LINE), max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_values_are_kept_as_they_are_written(texts, line_end, has_last_end):
    body = line_end.join(texts) + (line_end if has_last_end else "")
    assert values_of(body.encode()) == [None if text == "null" else text.encode() for text in texts]


NEARLY_JSON = st.lists(
    st.sampled_from(
        ["1", "2 3", "[", "]", "{", "}", ",", ":", '"', '"a"', "null", "\\", " ", "\n", "\r", "\t", "nul", "1.", "é"]
    ),
    max_size=12,
).map("".join)


@given(NEARLY_JSON.map(str.encode) | st.binary(max_size=30))
@example(b"1 2\n")
@example(b"[1,\n2]\n3 4")
@example(b"[\n1\n]")
@example(b'"a\n"')
@example(b"1\n\n2")
@example(b"1\x002")
@example(b"NaN")
@example(b'"\\ud800"')
def test_a_body_is_taken_exactly_when_every_line_is_one_value(body):
    bad, problem = first_bad_line(body), refusal_of(values_of, body)
    if bad is None:
        assert problem is None
        lines = [line.strip(b" \t\r") for line in body.split(b"\n")]
        assert values_of(body) == [None if line == b"null" else line for line in lines if line]
    elif problem.code != "invalid_utf8":  # reported with its byte, before any line is checked
        assert (problem.code, problem.members["line"]) == ("malformed_ndjson", bad)


def at(document, pointer):
    """RFC 6901, as a twin of the tested code. Raises LookupError."""
    for step in pointer:
        if isinstance(document, dict):
            document = document[step]
        elif isinstance(document, list) and (step == "0" or (step.isascii() and step.isdigit() and step[0] != "0")):
            document = document[int(step)]
        else:
            raise LookupError(step)
    return document


@given(st.data(), VALUES, st.lists(st.sampled_from(["0", "1", "01", "-1", "a", "", "~", "/"]) | TEXTS, max_size=3))
def test_a_pointer_finds_what_rfc_6901_says(data, value, steps):
    """Half of the pointers lead to existing values."""
    while data.draw(st.booleans()) and (here := _child_names(value, steps)):
        steps = [*steps, data.draw(st.sampled_from(here))]
    if not steps:
        return
    pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
    body = data.draw(written(value, SPACES_IN_LINE)).encode()
    try:
        expected = at(value, steps)
    except LookupError:
        with pytest.raises(Problem) as refused:
            keyed_rows(body, parse_pointer(pointer))
        assert refused.value.code == "invalid_body"
        return
    (row,) = keyed_rows(body, parse_pointer(pointer))
    if expected is None:
        assert row.key is None
    elif isinstance(expected, str):
        assert row.key == expected.encode()
    else:
        assert json.loads(row.key) == expected


def _child_names(value, steps):
    try:
        here = at(value, steps)
    except LookupError:
        return []
    if isinstance(here, dict):
        return sorted(here)
    return [str(n) for n in range(len(here))] if isinstance(here, list) else []


@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        (['{"a":{"b":"x"}}', '{"a":{"b":"\\u00e9"}}'], [b"x", "é".encode()]),  # strings only: the fast path
        (['{"a":{"b":"x"}}', '{"a":{"b":1.50}}', '{"a":{"b":null}}'], [b"x", b"1.50", None]),
        (['{"a":{"b":"first","b":"last"}}', '{"a":{"b":"first"},"a":{"b":"last"}}'], [b"last", b"last"]),
    ],
)
def test_the_quick_way_and_the_long_one_find_the_same_keys(lines, keys):
    body = "\n".join(lines).encode()
    assert [row.key for row in keyed_rows(body, ["a", "b"])] == keys
    with_a_number = body + b'\n{"a":{"b":0}}'  # a value that is not a string: every line takes the slow path
    assert [row.key for row in keyed_rows(with_a_number, ["a", "b"])] == [*keys, b"0"]


@pytest.mark.parametrize("number", ["1.50", "1e400", "123456789012345678901234567890", "-0.0"])
def test_a_key_that_is_a_number_keeps_its_digits(number):
    (row,) = keyed_rows(b'{"id": %s }' % number.encode(), ["id"])
    assert row.key == number.encode()


@pytest.mark.parametrize("text", ["", "a", "#/a", "/~", "/~2", "/a~", "/~01~"])
def test_what_is_no_pointer_is_refused(text):
    with pytest.raises(Problem) as refused:
        parse_pointer(text)
    assert refused.value.code == "invalid_query"


@pytest.mark.parametrize(
    ("text", "steps"), [("/", [""]), ("/a/b", ["a", "b"]), ("/~1/~0", ["/", "~"]), ("/~01", ["~1"])]
)
def test_escapes_in_a_pointer(text, steps):
    assert parse_pointer(text) == steps
