"""The values in the gaps of a known head: the compiled codec finds what its plain Python twin finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock_codec
from gateway.wire.heads import match_plainly, vary_plainly
from tests.codecs import needs_compiled

pytestmark = needs_compiled

PIECES = st.sampled_from([b"\r\nA: ", b"\r\nB: ", b" HTTP/1.1\r\n", b"&a=1", b"\r\n\r\n"]) | st.binary(max_size=3)
VALUES = st.sampled_from([b"1", b"", b"k-1", b"0" * 15, b"0" * 16, b"9" * 18, b"9" * 19, b"a b", b"\x7f", b"\xc3\xa4"])
GAPS = st.lists(
    st.tuples(st.integers(0, 2), VALUES | st.from_regex(rb"[!-~]{1,9}", fullmatch=True), PIECES), max_size=8
)


@given(st.binary(max_size=4), GAPS, st.binary(max_size=3), st.integers(-2, 3))
def test_both_find_the_same_values(start, gaps, behind, more):
    shape = (bytes(kind for kind, _, _ in gaps), start, *[piece for _, _, piece in gaps])
    head = start + b"".join(value + piece for _, value, piece in gaps)
    for head_bytes in {len(head), max(0, len(head) + more)}:
        found = penstock_codec.native.match_head(head + behind, head_bytes, shape)
        assert found == (match_plainly(head + behind, head_bytes, shape) if head_bytes <= len(head + behind) else None)


@pytest.mark.parametrize(
    "arguments",
    [(b"ab", 2), (b"ab", -1, (b"", b"ab")), (b"ab", 2**70, (b"", b"ab")), ("ab", 2, (b"", b"ab")), (b"ab", 2, [b""]),
     (b"ab", 2, ()), (b"ab", 2, (b"\0", b"ab")), (b"ab", 2, (b"\3", b"a", b"b")), (b"ab", 2, (b"", "ab")),
     (b"ab", 2, (bytes(9), *[b""] * 10))],
)  # fmt: skip
def test_arguments_of_another_kind_are_an_error(arguments):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        penstock_codec.native.match_head(*arguments)  # type: ignore[arg-type]


NAMES = st.sampled_from([":path", "content-length", "idempotency-key", "x-a"])
SOME = ["1", "", "k-1", "0" * 15, "0" * 16, "a b", "\x7f", "ä", "\udcff", "\u0663"]
TEXTS = st.sampled_from(SOME) | st.text("0aB~! ", max_size=3)
FIELDS = st.lists(st.tuples(NAMES, TEXTS), max_size=5)


@given(FIELDS, st.lists(st.sampled_from([None, None, 0, 1]), min_size=5, max_size=5), FIELDS)
def test_both_find_the_same_values_among_fields(like, kinds, other):
    pairs = list(zip(like, kinds, strict=False))
    pattern = tuple([field if kind is None else (field[0], kind) for field, kind in pairs])
    varied = [field if kind is None else (field[0], "own-1") for field, kind in pairs]
    mixed = [mine if kind is None else (mine[0], own[1]) for (mine, kind), own in zip(pairs, other, strict=False)]
    for fields in (like, varied, mixed, other):
        assert penstock_codec.native.vary(fields, pattern) == vary_plainly(fields, pattern)


@pytest.mark.parametrize(
    "arguments",
    [([],), ((), ()), ([], []), ([("a", "b")], ("a",)), ([("a",)], (("a", 0),)), (["a"], (("a", 0),)), ([], (), 1)],
)
def test_fields_of_another_kind_are_an_error(arguments):
    with pytest.raises(TypeError):
        penstock_codec.native.vary(*arguments)  # type: ignore[arg-type]
    assert penstock_codec.native.vary([("a", "b")], (("a", 9),)) is None
    assert penstock_codec.native.vary([("a", 5)], (("a", 0),)) is None  # type: ignore[list-item]
