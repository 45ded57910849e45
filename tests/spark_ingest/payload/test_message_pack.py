"""MessagePack: values keep what they are, and damaged bytes have a reason."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from spark_ingest.payload import message_pack
from tests.spark_ingest.payload.test_text import converter, one


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
