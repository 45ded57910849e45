"""Bodies of complete lines, for input in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.records.line_splitter import LineSplitter, LineTooLong


def cut(pieces: list[bytes], body_bytes: int, line_bytes_max: int = 1_000_000) -> list[bytes]:
    cutter, bodies = LineSplitter(body_bytes, line_bytes_max), []
    for piece in pieces:
        cutter.feed(piece)
        while (body := cutter.take()) is not None:
            bodies.append(body)
    while cutter.held_bytes and (body := cutter.take(is_end=True)) is not None:
        bodies.append(body)
    return bodies


@given(st.lists(st.text("ab\n", max_size=12).map(str.encode), max_size=12), st.integers(1, 20))
def test_nothing_is_lost_and_no_line_is_cut(pieces: list[bytes], body_bytes: int) -> None:
    bodies = cut(pieces, body_bytes)
    assert b"".join(bodies) == b"".join(pieces)
    assert all(body.endswith(b"\n") for body in bodies[:-1])
    assert all(len(body) <= body_bytes or body.count(b"\n") <= 1 for body in bodies)


@given(st.integers(1, 50), st.integers(1, 200))
def test_bodies_are_as_full_as_they_can_be(lines: int, body_bytes: int) -> None:
    bodies = cut([b"abcdefghi\n" * lines], body_bytes)
    assert all(len(body) == max(10, body_bytes // 10 * 10) for body in bodies[:-1])


def test_a_line_without_end_is_refused() -> None:
    for pieces in ([b"x" * 101], [b"x" * 60, b"x" * 60], [b"x" * 200 + b"\n"]):
        with pytest.raises(LineTooLong):
            cut(pieces, 10, line_bytes_max=100)
    assert cut([b"x" * 99 + b"\n"], 10, line_bytes_max=100) == [b"x" * 99 + b"\n"]
