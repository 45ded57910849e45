"""Records on the wire: any value is returned as it was sent, in every form of line."""

from __future__ import annotations

import base64
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from penstock.producer.batch import Batch
from penstock.producer.lines import is_json_line, key_bytes, line_of
from penstock.producer.partitioners import by_key_hash
from penstock.records import milliseconds

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ANY_BYTES = st.binary() | JSON.map(orjson.dumps) | JSON.map(lambda v: orjson.dumps(v, option=orjson.OPT_INDENT_2))


def stored(line: bytes, *, is_plain: bool) -> dict[str, Any]:
    """Return what a node would store for a line."""
    assert b"\n" not in line
    if is_plain:
        orjson.loads(line)
        assert line.strip() == line
        return {"value": line}
    fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    if "value_base64" in fields:
        return {**fields, "value": base64.b64decode(orjson.loads(bytes(fields["value_base64"])))}
    raw = bytes(fields["value"])
    return {**fields, "value": None if raw == b"null" else raw}


@given(ANY_BYTES, st.none() | st.text())
def test_bytes_are_stored_byte_for_byte(value: bytes, key: str | None) -> None:
    text, is_plain = line_of(value, key)
    assert stored(text, is_plain=is_plain)["value"] == value


@given(JSON)
def test_other_values_are_stored_as_their_json(value: Any) -> None:
    text, is_plain = line_of(value)
    got = stored(text, is_plain=is_plain)["value"]
    assert (got is None) if value is None else (orjson.loads(got) == value)


@given(st.lists(st.tuples(ANY_BYTES, st.none() | st.text(), st.booleans()), min_size=1, max_size=8))
def test_a_batch_keeps_each_record_whatever_forms_meet_in_it(records: list[tuple[bytes, str | None, bool]]) -> None:
    batch = Batch("t", 0, 0.0)
    sizes = 0
    for value, key, has_headers in records:
        sizes += batch.add(line_of(value, key, {"h": "1"} if has_headers else None))
    lines = batch.body().split(b"\n")
    assert [stored(line, is_plain=batch.is_plain)["value"] for line in lines] == [value for value, _, _ in records]
    assert batch.size_bytes == sizes == len(batch.body()) + 1


@pytest.mark.parametrize(
    ("key", "expected"),
    [("a", b"a"), (b"\xff", b"\xff"), (5, b"5"), ({"b": 1}, b'{"b":1}'), ("", b""), (True, b"true")],
)
def test_keys_are_stored_as_the_contract_says(key: Any, expected: bytes) -> None:
    assert key_bytes(key) == expected
    fields = orjson.loads(line_of(1, key)[0])
    if "key_base64" in fields:
        assert base64.b64decode(fields["key_base64"]) == expected
    else:
        assert (fields["key"].encode() if isinstance(fields["key"], str) else orjson.dumps(fields["key"])) == expected


@given(st.binary(), st.integers(1, 10_000))
def test_partitions_are_those_of_kafka(key: bytes, partitions: int) -> None:
    assert by_key_hash("t", key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions


def test_timestamps_need_a_zone() -> None:
    assert milliseconds(datetime(2013, 1, 1, 5, tzinfo=UTC)) == 1357016400000
    assert orjson.loads(line_of(1, timestamp=datetime(2013, 1, 1, 5, tzinfo=UTC))[0])["timestamp"] == 1357016400000
    with pytest.raises(ValueError, match="time zone"):
        milliseconds(datetime(2013, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("value", [object(), {1, 2}, bytearray(b"1"), float])
def test_what_is_not_json_is_refused_at_once(value: Any) -> None:
    with pytest.raises(TypeError):
        line_of(value)


@pytest.mark.parametrize("key", [datetime(2026, 1, 1, tzinfo=UTC), uuid.UUID(int=1), float("nan"), float("inf")])
def test_a_key_of_a_wrong_type_is_refused(key: Any) -> None:
    for encode in (key_bytes, lambda key: line_of(1, key)):
        with pytest.raises((TypeError, ValueError), match="a key "):
            encode(key)


def test_headers_must_be_text_or_bytes() -> None:
    with pytest.raises(TypeError, match="a header value is text, bytes or None"):
        line_of(1, headers={"n": 5})  # type: ignore[dict-item]
    text, _ = line_of(1, headers=[("a", "1"), ("b", b"\x02"), ("a", None)])
    assert orjson.loads(text)["headers"] == {"a": ["1", None], "b": {"base64": "Ag=="}}


@pytest.mark.parametrize(
    "value", [b" 1", b"1 ", b"[1,\n2]", b"null", b"", b"1 2", b'"\xff"', b"nope", b"01", b"[" * 99_999]
)
def test_what_a_line_cannot_carry_unchanged_is_not_plain(value: bytes) -> None:
    assert not is_json_line(value)
