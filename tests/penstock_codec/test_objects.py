"""Record objects to batches by the compiled codec: the same batches and refusals as by its twin."""

import json
from base64 import b64encode
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import BatchTooLarge
from engine.format.batch import Codec, decode_one
from engine.format.keyed_batch import KeyEntry
from engine.topic_settings import TopicSettings
from gateway.http.json_limits import JsonLimits
from gateway.http.problems import Problem
from gateway.produce.batching import Destination, Incoming, IncomingObjects, to_batches
from gateway.produce.json_records import decode_envelope, decode_record_lines
from gateway.produce.partitioner import Partitioner, kafka_hash
from tests.codecs import COMPILED, needs_compiled, plainly
from tests.gateway.json_texts import SPACES, SPACES_IN_LINE, TEXTS, VALUES, written
from tests.gateway.produce.parts import topic_of

pytestmark = needs_compiled

NOW = 1_700_000_000_000
WIDE = JsonLimits()
NARROW = JsonLimits(depth_max=2, digits_max=3)
IN_BASE64 = st.binary(max_size=9).map(lambda data: b64encode(data).decode()) | st.sampled_from(
    ["eA==", "eB==", "eHl=", "eHh5", "?", "eA=", "eA", "=", "====", "eA==eA==", "e===", "é", "e\n==", None]
)
MEMBERS = {
    "value": VALUES,
    "key": st.none() | TEXTS | VALUES,
    "headers": st.dictionaries(
        TEXTS | st.sampled_from(["content-type", "Content-Type", "__penstock-x"]),
        st.none() | TEXTS | st.sampled_from(["text/plain", "application/json"]) | VALUES,
        max_size=3,
    ),
    "timestamp": st.none() | st.integers(-1, 2 * NOW) | st.sampled_from(["2024-05-01T00:00:00Z", 1e3]),
    "partition": st.none() | st.integers(-1, 7),
    "key_base64": IN_BASE64,
    "value_base64": IN_BASE64,
    "offset": st.integers(0, 9),
    "other": VALUES,
}
USUAL = ("key", "headers", "timestamp", "partition")


@st.composite
def objects(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return record objects. Most are right."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        names = draw(st.sets(st.sampled_from(USUAL))) | {draw(st.sampled_from(["value", "value", "value_base64"]))}
        if draw(st.integers(0, 5)) == 0:
            names ^= {draw(st.sampled_from(sorted(MEMBERS)))}
        members = {name: draw(MEMBERS[name]) for name in draw(st.permutations(sorted(names)))}
        found.append(members)
    return found


def destinations() -> st.SearchStrategy[Destination]:
    def made(is_only: bool, partition: int | None, key: bytes | None, is_keyed: bool, settings: TopicSettings) -> Any:
        partitioner = None if is_only else Partitioner("t", 6, Random(1))
        entry = KeyEntry(b"k" * 16, b"r" * 16, 7, NOW) if is_keyed else None
        return Destination(topic_of(settings), partitioner, NOW, 3, 2 if is_only else partition, key, None, entry)

    settings = st.builds(
        TopicSettings,
        compression=st.sampled_from(["none", "none", *(codec.name.lower() for codec in Codec)]),
        timestamp_type=st.sampled_from(["create", "append"]),
        record_bytes_max=st.sampled_from([1024, 1 << 20]),
    )
    return st.builds(
        made, st.booleans(), st.none() | st.integers(0, 5), st.none() | st.binary(max_size=5), st.booleans(), settings
    )


TO = Destination(topic_of(), Partitioner("t", 6, Random(1)), NOW, 3)


def outcome(decode: Any, body: bytes, limits: JsonLimits, to: Destination) -> Any:
    try:
        with mock.patch("time.time", return_value=0.0):  # a gzip member has the time in it
            return to_batches(decode(body, limits), to, 1000)
    except (Problem, BatchTooLarge) as problem:
        return problem.args, getattr(problem, "code", ""), getattr(problem, "members", None)


@given(objects(), destinations(), st.data())
def test_an_envelope_becomes_the_batches_of_the_twin_or_its_refusal(records, to, data):
    body = data.draw(written({"records": records}, SPACES)).encode("utf-8", "surrogatepass")
    for limits in (WIDE, NARROW):
        assert outcome(decode_envelope, body, limits, to) == plainly(outcome, decode_envelope, body, limits, to)


@given(objects(), destinations(), st.data())
def test_lines_become_the_batches_of_the_twin_or_its_refusal(records, to, data):
    lines = [data.draw(written(record, SPACES_IN_LINE)) for record in records]
    body = data.draw(st.sampled_from(["\n", "\r\n", "\n\n "])).join(lines).encode("utf-8", "surrogatepass")
    for limits in (WIDE, NARROW):
        assert outcome(decode_record_lines, body, limits, to) == plainly(outcome, decode_record_lines, body, limits, to)


@given(objects(), st.data())
def test_damaged_bodies_are_refused_as_by_the_twin(records, data):
    for decode, whole in (
        (decode_envelope, json.dumps({"records": records}, ensure_ascii=False)),
        (decode_record_lines, "\n".join(json.dumps(record, ensure_ascii=False) for record in records)),
    ):
        body = bytearray(whole.encode("utf-8", "surrogatepass"))
        at = data.draw(st.integers(0, len(body) - 1))
        pieces = [b"", b'"', b"{", b"}", b",", b"\n", b"\\", b"\xff", b'"value":1,', b"0", b".", b" ", b'"a"']
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(pieces))
        assert outcome(decode, bytes(body), WIDE, TO) == plainly(outcome, decode, bytes(body), WIDE, TO)


@pytest.mark.parametrize(
    "record",
    [
        '{"value":1,"value":2}',
        '{"value":1,"key":null}',
        '{"value":null}',
        '{"key":"a"}',
        "{}",
        '{"value":1,}',
        '{"value":1,"headers":{}}',
        '{"value":1,"headers":{"a":"b",}}',
        '{"value":1,"headers":{"a":"b","a":"c"}}',
        '{"value":1,"headers":{"é":"ü","n":null}}',
        '{"value":"x","headers":{"content-type":"text/plain"}}',
        '{"value":"x","headers":{"CONTENT-TYPE":" Text/HTML ; charset=utf-8"}}',
        '{"value":"x","headers":{"content-type":"application/json"}}',
        '{"value":1,"timestamp":007}',
        '{"value":1,"timestamp":1.0}',
        '{"value":1,"timestamp":999999999999999}',
        '{"value":1,"timestamp":9007199254740993}',
        '{"value":1,"partition":5}',
        '{"value":1,"partition":6}',
        '{"value":1,"partition":99999999999}',
        '{"value":1,"key":"a\\u00e9"}',
        '{"value":1,"key":""}',
        '{"value":1,"key":{"a": 1}}',
        '{"value":1,"ke\\u0079":"x"}',
        '{"value_base64":"eA=="}',
        '{"value_base64":""}',
        '{"value_base64":null}',
        '{"value_base64":"eA==","value":null}',
        '{"value":1,"key_base64":"","key":null}',
        '{"value_base64":"e\\u0041=="}',
        '{"value_base64":"eA==","headers":{"content-type":"text/plain"}}',
        '{"value": [1,\n2]}',
    ],
)
def test_a_record_is_taken_as_by_the_twin(record):
    body = f'{{"records":[{record}, {{"value":7}}]}}'.encode()
    assert outcome(decode_envelope, body, WIDE, TO) == plainly(outcome, decode_envelope, body, WIDE, TO)
    line = record.encode() + b"\n"
    assert outcome(decode_record_lines, line, WIDE, TO) == plainly(outcome, decode_record_lines, line, WIDE, TO)


def test_usual_bodies_need_no_object_for_a_record():
    records = [
        {"key": f"k{n}", "value": {"n": n}, "headers": {"a": "b"}, "timestamp": NOW - n, "partition": n % 6}
        for n in range(100)
    ]
    incoming = decode_envelope(json.dumps({"records": records}).encode())
    assert isinstance(incoming, IncomingObjects)
    with mock.patch.object(IncomingObjects, "plainly", side_effect=AssertionError("decoded in Python")):
        assert [(one.partition, one.record_count) for one in to_batches(incoming, TO, 100)] == [
            (0, 17), (1, 17), (2, 17), (3, 17), (4, 16), (5, 16)
        ]  # fmt: skip


@given(st.lists(st.text(max_size=30), min_size=1, max_size=20))
@example(["", "a", "ab", "abc", "abcd", "abcde"])
def test_keys_choose_partitions_as_kafkas_producers_do(keys):
    body = json.dumps({"records": [{"value": 1, "key": key} for key in keys]}, ensure_ascii=False)
    incoming: Incoming = decode_envelope(body.encode("utf-8", "surrogatepass"))
    if isinstance(incoming, IncomingObjects):
        found = {one.partition: one.record_count for one in to_batches(incoming, TO, 100)}
        wanted = [kafka_hash(key.encode()) % 6 for key in keys]
        assert found == {number: wanted.count(number) for number in wanted}


@pytest.mark.parametrize("rows", [b"", b"\x00" * 40, b"\x00" * 39, b"\xff" * 40, b"\x7f" * 40])
def test_rows_that_are_not_of_a_body_are_refused(rows):
    with pytest.raises(ValueError, match="rows"):
        COMPILED.encode_objects(b"12345678", rows, False, 0)


def test_a_body_of_binary_values_needs_no_object_for_a_record():
    values = [bytes(range(n % 256)) for n in range(300)]
    lines = [json.dumps({"value_base64": b64encode(value).decode(), "key_base64": "AP8="}) for value in values]
    incoming = decode_record_lines("\n".join(lines).encode())
    assert isinstance(incoming, IncomingObjects)
    with mock.patch.object(IncomingObjects, "plainly", side_effect=AssertionError("decoded in Python")):
        [batch] = to_batches(incoming, TO._replace(partition=0), 300)
    assert [(record.key, record.value) for record in decode_one(batch.batch)] == [
        (b"\0\xff", value) for value in values
    ]


def test_a_key_with_escapes_is_stored_without_them():
    incoming = decode_envelope(
        rb'{"records":[{"key":"\u00e9\ud83d\ude00\n\/\"\u007f","value":1},{"key":"k","value":2}]}'
    )
    assert isinstance(incoming, IncomingObjects)
    to = TO._replace(partition=0)
    [batch] = to_batches(incoming, to, 2)
    assert [record.key for record in decode_one(batch.batch)] == ['é😀\n/"\x7f'.encode(), b"k"]
