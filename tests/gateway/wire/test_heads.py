"""Heads of HTTP/2 that differ in values from an earlier one of their connection."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.frames import StreamFault
from gateway.wire.heads import HeadReader, Malformed, head_of
from gateway.wire.messages import RequestHead, VariedHead

PSEUDO = [(":method", "POST"), (":scheme", "http"), (":path", "/a?b"), (":authority", "h")]
NAMES = st.sampled_from(["content-length", "idempotency-key", "producer-seq", "x-request-id", "x-other", ":path"])
VALUES = st.sampled_from(["1", "2", "0002", "two words", " padded", "", "a\tb", "+1", "a\r", "a\n", "\xe4", "9" * 21])
WIDE = (64 * 1024, 100)


def parts_of(head: RequestHead) -> tuple[object, ...]:
    return (
        head.version, head.method, head.path, head.query, head.authority, head.headers, head.content_length,
        head.expects_continue, head.size_bytes,
    )  # fmt: skip


@given(
    st.lists(NAMES, max_size=4),
    st.lists(st.tuples(st.lists(VALUES, min_size=4, max_size=4), st.booleans()), min_size=2, max_size=6),
)
def test_they_are_what_is_made_of_them_alone(names: list[str], requests: list[tuple[list[str], bool]]) -> None:
    reader, encoder = HeadReader(*WIDE), hpack.Encoder()
    for values, is_coded in requests:
        fields = [*PSEUDO, *zip(names, values, strict=False)]
        block = encoder.encode(fields, huffman=is_coded)
        try:
            expected = head_of(fields)
        except Malformed:
            with pytest.raises(StreamFault):
                reader.read(1, block)
            continue
        head = reader.read(1, block)
        assert head is not None
        assert parts_of(head) == parts_of(expected)


def test_a_head_with_another_key_or_length_is_like_the_first() -> None:
    reader, encoder = HeadReader(*WIDE), hpack.Encoder()
    first, second, third = (
        reader.read(1, encoder.encode([*PSEUDO, ("idempotency-key", key), ("content-length", length)]))
        for key, length in (("a", "1"), ("bc", "2"), ("two words", "1"))
    )
    assert type(second) is VariedHead
    assert second.like is first
    assert second.own == [("idempotency-key", "bc"), ("content-length", "2")]
    assert type(third) is RequestHead


def test_few_heads_are_kept_for_others_and_none_that_is_large() -> None:
    reader, encoder = HeadReader(*WIDE), hpack.Encoder()
    for number in range(9):
        reader.read(1, encoder.encode([*PSEUDO, ("content-length", "1"), ("x-a", str(number))]))
    reader.read(1, encoder.encode([*PSEUDO, ("content-length", "1"), ("x-a", "a" * 5000)]))
    assert "similar=1," in repr(reader)
