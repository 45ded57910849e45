"""MessagePack: values keep what they are, and damaged bytes have a reason."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime

import msgspec
import pytest

from engine.encodings.json_text import json_text
from spark_ingest.payload import message_pack
from tests.spark_ingest.payload.test_text import converter, one


def timestamp(seconds: int, nanoseconds: int) -> bytes:
    """Return a timestamp in its smallest form with nanoseconds."""
    if 0 <= seconds < 1 << 34:
        return b"\xd7\xff" + struct.pack(">Q", nanoseconds << 34 | seconds)
    return b"\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)


def test_members_keep_what_they_are() -> None:
    value = {"a": 1, "b": [1.5, None], "t": datetime(2026, 1, 2, tzinfo=UTC), "x": b"\x00\x01", "n": float("nan")}
    value |= {"i": float("-inf"), "e": msgspec.msgpack.Ext(7, b"z"), "big": 2**64 - 1}
    assert one(converter("msgpack"), msgspec.msgpack.encode(value)) == {
        "a": 1,
        "b": [1.5, None],
        "t": "2026-01-02T00:00:00Z",
        "x": "AAE=",
        "n": "NaN",
        "i": "-Infinity",
        "e": {"type": 7, "data": "eg=="},
        "big": 2**64 - 1,
    }


@pytest.mark.parametrize(
    ("seconds", "nanoseconds", "text"),
    [
        (1, 123_456_789, "1970-01-01T00:00:01.123456789Z"),
        (1, 999_999_999, "1970-01-01T00:00:01.999999999Z"),
        (-1, 1, "1969-12-31T23:59:59.000000001Z"),
        (-62_135_596_800, 1, "0001-01-01T00:00:00.000000001Z"),
        (253_402_300_799, 999_999_999, "9999-12-31T23:59:59.999999999Z"),
        (1, 123_456_000, "1970-01-01T00:00:01.123456Z"),
        (-62_135_596_801, 1, "not_msgpack"),
        (1, 1_000_000_001, "not_msgpack"),
    ],
)
def test_a_timestamp_keeps_its_nanoseconds(seconds: int, nanoseconds: int, text: str) -> None:
    """msgspec alone rounds them to microseconds."""
    value = b"\x81\xa1a" + timestamp(seconds, nanoseconds)
    assert one(converter("msgpack"), value) == (text if text == "not_msgpack" else {"a": text})


def test_no_other_bytes_are_taken_for_a_timestamp() -> None:
    """Bytes, numbers and other extensions that look like one stay, beside one in each kind of container."""
    exact, looks = timestamp(1, 1), timestamp(1, 1) + b"\xc7\x08\xff" + bytes(8) + timestamp(-1, 1)
    plain = {"n": -1, "u": 2**64 - 1, "i": -(2**40), "f": -1.5, "x": looks, "s": "a" * 300, "none": [None, True]}
    plain |= {"long": "b" * 70_000, "e": msgspec.msgpack.Ext(5, looks), "r": msgspec.msgpack.Ext(-2, bytes(16))}
    plain |= {"map": {str(at): at for at in range(20)}, "list": [0] * 70_000, "y": bytes(70_000)}
    packed = msgspec.msgpack.encode({**plain, "times": [plain, "T"], "in": {"a": {"t": "T"}}})
    value = packed.replace(b"\xa1T", exact)
    text = "1970-01-01T00:00:01.000000001Z"
    wanted = json.loads(json_text({**plain, "times": [plain, text], "in": {"a": {"t": text}}}))
    assert one(converter("msgpack"), value) == wanted
    assert one(converter("msgpack"), packed.replace(b"\xa1T", exact[:-1])) == "not_msgpack"


def test_containers_beyond_the_memory_of_a_value_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte may be an empty map. Text and bytes do not count more than they have."""
    monkeypatch.setattr(message_pack, "VALUE_BYTES_MAX", 1 << 16)
    many = msgspec.msgpack.encode({"a": [{}] * 1000, "t": "x"})
    assert one(converter("msgpack"), many) == "too_large"
    plain = {"a": "\x80" * 5000, "b": [1, 2.5, None, True], "c": {"d": [-1, 2**40]}}
    assert one(converter("msgpack"), msgspec.msgpack.encode(plain)) == plain


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not_msgpack"),
        (b"\xdd\xff\xff\xff\xff", "not_msgpack"),
        (b"\xc6\xff\xff\xff\xff", "not_msgpack"),
        (b"\x80\x00", "not_msgpack"),
        (b"\x91" * 100_000, "nested_too_deeply"),
        (b"\x05", "not_an_object"),
        (b"\x81\xc0\x01", "not_decodable"),
        (b"\x81\xa1\xff\x01", "not_utf8"),
    ],
)
def test_what_is_not_an_object_of_messagepack_has_no_row(value: bytes, reason: str) -> None:
    assert one(converter("msgpack"), value) == reason
