"""MessagePack: values keep what they are, and damaged bytes have a reason."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

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
