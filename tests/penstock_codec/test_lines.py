"""NDJSON to a batch by the compiled codec: the same values, the same bytes and the same refusals as by its twin."""

from __future__ import annotations

import json
import struct
from itertools import product
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.format import batch as record_batch
from engine.format.batch import Codec
from engine.format.keyed_batch import KeyEntry
from engine.topic_settings import TopicSettings
from gateway.http.json_limits import JsonLimits
from gateway.http.problems import Problem
from gateway.produce.batching import Destination, IncomingObjects, IncomingSpans, Part, to_batches
from gateway.produce.ndjson_values import decode_keyed_values, decode_values
from gateway.produce.partitioner import Partitioner
from tests.codecs import COMPILED, needs_compiled, plainly
from tests.engine.format.first_entry import read_entry
from tests.gateway.json_texts import SPACES_IN_LINE, json_texts, written
from tests.gateway.produce.parts import topic_of

pytestmark = needs_compiled

LIMITS = JsonLimits(depth_max=5, digits_max=4)
WIDE = JsonLimits(depth_max=128, digits_max=1000)
TO = Destination(topic_of(), None, 1_700_000_000_000, 3)


def outcome(body: bytes, limits: JsonLimits = WIDE, to: Destination = TO) -> list[Part] | tuple[Any, ...]:
    try:
        return to_batches(decode_values(body, limits), to, 1000)
    except Problem as problem:
        return problem.code, problem.detail, problem.members


def is_found(text: bytes, limits: JsonLimits = WIDE) -> bool:
    assert COMPILED is not None
    found = COMPILED.find_lines(text, limits.depth_max, limits.digits_max)
    return found is not None and found[1] == 1


PIECES = st.sampled_from(
    [b"1", b"-0.5e7", b"12345", b"[", b"]", b"{", b"}", b",", b":", b'"a":', b'"', b"null", b"true", b"\\", b"\\u00e9",
     b'"\\ud83d\\ude00"', b" ", b"\n", b"\r", b"\t", b"nul", b"1.", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"\x00",
     b'"' + b"x" * 40 + b'"', b"\xf0\x9f\x98\x80"]
)  # fmt: skip
BODIES = st.lists(PIECES, max_size=14).map(b"".join)
LINES = st.lists(json_texts(spaces=SPACES_IN_LINE).map(str.encode), max_size=5).map(b"\n".join)
DAMAGED = st.tuples(LINES, st.binary(max_size=2), st.floats(0, 1)).map(
    lambda drawn: drawn[0][: int(len(drawn[0]) * drawn[2])] + drawn[1] + drawn[0][int(len(drawn[0]) * drawn[2]) + 1 :]
)


@given(BODIES | LINES | DAMAGED | st.binary(max_size=30))
@example(b"")
@example(b"\n \n")
@example(b'"\xed\xa0\x80"')
@example(b'"\xf4\x90\x80\x80"')
@example(b'"\xc0\xaf"')
@example(b"[1,\n2]")
@example(b"[1,\r2]")
@example(b"1\r2")
@example(b"null\nnull")
def test_a_body_becomes_the_batch_of_the_twin_or_its_refusal(body: bytes) -> None:
    assert outcome(body) == plainly(outcome, body)


@given(BODIES | LINES, st.integers(0, 9))
def test_limits_are_those_of_the_twin(body: bytes, wrapped: int) -> None:
    wrapped_body = b"[" * wrapped + body + b"]" * wrapped
    assert outcome(wrapped_body, LIMITS) == plainly(outcome, wrapped_body, LIMITS)


@given(LINES, st.sampled_from(Codec), st.booleans(), st.none() | st.binary(max_size=9))
def test_every_form_of_a_batch_is_that_of_the_twin(
    body: bytes, codec: Codec, is_keyed: bool, key: bytes | None
) -> None:
    entry = KeyEntry(b"k" * 16, b"r" * 16, 7, 1_700_000_000_000) if is_keyed else None
    settings = TopicSettings(compression=codec.name.lower())
    to = TO._replace(topic=topic_of(settings), key=key, entry=entry)
    with mock.patch("time.time", return_value=0.0):  # a gzip member has the time in it
        compiled = outcome(body, to=to)
        assert compiled == plainly(outcome, body, to=to)
    if entry is not None and isinstance(compiled, list):
        assert read_entry(compiled[0].batch) == entry


def test_a_record_beyond_the_limit_of_the_topic_is_refused_alike() -> None:
    to = TO._replace(topic=topic_of(TopicSettings(record_bytes_max=1024)), key=b"k" * 20)
    for length in (1000, 1001, 1002, 1003, 1024, 1025):
        body = b'1\n"' + b"x" * length + b'"\n'
        assert outcome(body, to=to) == plainly(outcome, body, to=to)


ALPHABET = [b'"', b"\\", b"u", b"0", b"1", b"-", b".", b"e", b"+", b"[", b"]", b"{", b"}", b",", b":", b" "]


def test_every_short_text_is_taken_exactly_when_python_takes_it() -> None:
    """All texts of up to four characters that mean something to JSON."""

    def is_json(text: bytes) -> bool:
        try:
            json.loads(text)
        except ValueError:
            return False
        return True

    for length in range(1, 5):
        for letters in product(ALPHABET, repeat=length):
            text = b"".join(letters)
            assert is_found(text) == is_json(text), text


@given(st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=6))
def test_a_string_is_taken_exactly_when_it_is_utf_8(text: bytes) -> None:
    inner = text.translate(None, bytes(range(0x20)) + b'"\\')
    try:
        inner.decode()
    except UnicodeDecodeError:
        assert not is_found(b'"' + inner + b'"')
    else:
        assert is_found(b'"' + inner + b'"')


@pytest.mark.parametrize("place", range(40))
def test_every_byte_of_a_long_string_is_looked_at(place: int) -> None:
    text = bytearray(b'"' + b"x" * 40 + b'"')
    for bad in (b"\x00", b"\x1f", b"\x80", b"\xff", b'"', b"\n"):
        text[place + 1 : place + 2] = bad
        assert not is_found(bytes(text))
    text[place + 1 : place + 2] = b"\x7f"
    assert is_found(bytes(text))


@pytest.mark.parametrize("spans", [(0, 9), (9, 1), (0, -2), (2**32 - 1, 1), (4, 2**31 - 1), ()])
def test_spans_that_are_not_of_a_body_are_refused(spans: tuple[int, ...]) -> None:
    assert COMPILED is not None
    packed = struct.pack("Ii", *spans) if spans else b""
    with pytest.raises(ValueError, match="spans"):
        COMPILED.encode_values(b"12345678", packed, 0)


def test_a_large_body_gives_the_interpreter_lock_back() -> None:
    """Its result is the same as that of a small one."""
    body = b'{"a":[1,2,3],"b":"' + b"x" * 90 + b'"}\n'
    found = decode_values(body * 1000)
    assert isinstance(found, IncomingSpans)
    assert found.rows(7, b"k") == [(7, b"k", body.rstrip(), [])] * 1000
    assert outcome(body * 1000) == plainly(outcome, body * 1000)


def test_kafkas_own_reader_finds_the_values() -> None:
    [batch] = to_batches(decode_values(b'1\n null\n"\xc3\xa9"\n{"a": [1, 2]} \r\n'), TO, 10)
    records = record_batch.decode(batch.batch)
    assert [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in records] == [
        (0, TO.now_ms, None, b"1", []),
        (1, TO.now_ms, None, None, []),
        (2, TO.now_ms, None, '"é"'.encode(), []),
        (3, TO.now_ms, None, b'{"a": [1, 2]}', []),
    ]


POINTERS = st.lists(st.sampled_from(["a", "", "é", "0", "1", "01", "9", "b~", 'q"', "back\\"]), min_size=1, max_size=4)
MEMBERS = st.recursive(
    st.sampled_from([None, 1, 1.5, "x", "é", 'q"', "", True]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "", "é", "0", "b~", 'q"', "back\\"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def keyed_outcome(body: bytes, pointer: list[str]) -> list[Part] | tuple[Any, ...]:
    to = Destination(topic_of(), Partitioner("t", 3, Random(1)), 1_700_000_000_000, 1)
    try:
        return to_batches(decode_keyed_values(body, pointer), to, 1000)
    except Problem as problem:
        return problem.code, problem.detail, problem.members


@given(st.lists(MEMBERS.flatmap(lambda value: written(value, SPACES_IN_LINE)), min_size=1, max_size=3), POINTERS)
@example(['{"a":"x"}', '{"a": [1, 2] }'], ["a"])
@example(['{"a":1,"a":2}'], ["a"])
@example(['{"\\u0061":1,"a":2}'], ["a"])
@example(['{"a":[[],{"0":"k"}]}'], ["a", "1", "0"])
@example(['{"a":"x\\u00e9"}'], ["a"])
@example(['{"a":null}'], ["a"])
@example(["null"], ["a"])
@example(['{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}}'], ["a"] * 9)
def test_a_key_is_found_as_by_the_twin(lines: list[str], pointer: list[str]) -> None:
    body = "\n".join(lines).encode()
    assert keyed_outcome(body, pointer) == plainly(keyed_outcome, body, pointer)


def test_usual_keys_need_no_object_for_a_record() -> None:
    incoming = decode_keyed_values(b'{"user": {"id": "x"}, "n": 1}\n{"n":2,"user":{"id":7}}', ["user", "id"])
    assert isinstance(incoming, IncomingObjects)
    [batch] = to_batches(incoming, TO, 10)
    assert [record.key for record in record_batch.decode(batch.batch)] == [b"x", b"7"]
