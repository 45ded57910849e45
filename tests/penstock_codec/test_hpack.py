"""Header blocks of HTTP/2: the compiled decoder and its plain Python twin find the same fields, tables and faults."""

import sys

import pytest
from hpack import Encoder
from hypothesis import example, given
from hypothesis import strategies as st

import penstock_codec
from gateway.wire.hpack import FAULTS, STATIC, TABLE_BYTES, BlockDecoder, BrokenBlock, Decoder
from gateway.wire.messages import Header
from tests.codecs import needs_compiled

pytestmark = needs_compiled

NAMES = st.sampled_from(
    [b":path", b"content-length", b"x-a", b"idempotency-key", b"", b"\xc3\xa4", b"\xff", b"n" * 3000]
)
VALUES = st.binary(max_size=40) | st.sampled_from([b"v" * 2000, b"v" * 4096, "ä".encode() * 100, b"\xed\xa0\x80"])


def _number(value: int, bits: int, flags: int) -> bytes:
    """Encodes a number in the last bits of a byte (RFC 7541 5.1)."""
    mask = (1 << bits) - 1
    if value < mask:
        return bytes([flags | value])
    encoded = bytearray([flags | mask])
    value -= mask
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def _text(text: bytes) -> bytes:
    return _number(len(text), 7, 0) + text


def _literal(kind: tuple[int, int], index: int, name: bytes, value: bytes) -> bytes:
    bits, flags = kind
    return _number(index, bits, flags) + (b"" if index else _text(name)) + _text(value)


INDICES = st.integers(0, 80) | st.integers(0, 200)
LITERALS = st.builds(_literal, st.sampled_from([(6, 0x40), (6, 0x40), (4, 0), (4, 0x10)]), INDICES, NAMES, VALUES)
KEPT = st.builds(_literal, st.just((6, 0x40)), st.just(0), NAMES, VALUES)
SIZES = st.builds(
    _number, st.sampled_from([0, 31, 32, 100, 4000, TABLE_BYTES, TABLE_BYTES + 1]), st.just(5), st.just(0x20)
)
INDEXED = st.builds(_number, INDICES, st.just(7), st.just(0x80))
CODED = st.builds(lambda fields: Encoder().encode(fields, huffman=True), st.lists(st.tuples(NAMES, VALUES), max_size=3))
ITEMS = LITERALS | KEPT | KEPT | INDEXED | CODED
WHOLE = st.builds(lambda size, items: size + b"".join(items), st.just(b"") | SIZES, st.lists(ITEMS, max_size=12))


@st.composite
def _blocks(draw: st.DrawFn) -> list[bytes]:
    """Returns blocks of a connection. Some are cut, or have a byte changed."""
    blocks = draw(st.lists(WHOLE, min_size=1, max_size=6))
    if draw(st.booleans()) and blocks[-1]:
        block, at = blocks[-1], draw(st.integers(0, len(blocks[-1]) - 1))
        blocks[-1] = block[:at] + draw(st.sampled_from([b"", bytes([draw(st.integers(0, 255))]) + block[at + 1 :]]))
    return blocks


def _decoded(one: BlockDecoder, block: bytes) -> tuple[list[Header] | str, bool, bool, list[Header]]:
    try:
        found: list[Header] | str = one.decode(block)
    except BrokenBlock as fault:
        found = str(fault)
    return found, one.is_too_large, one.has_changed, one.table()


def _compiled(list_bytes_max: int, fields_max: int) -> BlockDecoder:
    return penstock_codec.native.HpackDecoder(STATIC, BrokenBlock, FAULTS, list_bytes_max, fields_max)


@given(_blocks() | st.lists(st.binary(max_size=60), max_size=6), st.sampled_from([65536, 300, 0]), st.integers(0, 20))
@example([b"\x82" * 21, b"\x20\x82\x3f\xe1\x1f"], 65536, 20)
@example([b"\x40\x00\x00" * 130 + b"\xff\x3e", b"\xff\x40", b"\xff\x3e\xff\x3f"], 65536, 200)
@example([b"\x7f\xff\xff\xff\xff\x7f\x00"], 65536, 20)
@example([b"\x7f\xff\xff\xff\xff\xff\x00"], 65536, 20)
def test_both_find_the_same_fields_tables_and_faults(blocks, list_bytes_max, fields_max):
    compiled, plain = _compiled(list_bytes_max, fields_max), Decoder(list_bytes_max, fields_max)
    for block in blocks:
        found = _decoded(compiled, block)
        assert found == _decoded(plain, block)
        if isinstance(found[0], str):
            return


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (b"\x82\x40", "the block ends within a field"),
        (b"\xff", "the block ends within a field"),
        (b"\x44\x0aabc", "the block ends within a text"),
        (b"\x44\xff\xff\xff\xff\xff\x0f", "the block ends within a text"),
        (b"\xff" + b"\x80" * 5 + b"\x01", "a number that is too long"),
        (b"\x80", "no field has this index"),
        (b"\xbe", "no field has this index"),
        (b"\x7f\x00\x01a", "no field has this index"),
        (b"\x82\x20", "a change of the table's size behind a field"),
        (b"\x3f\xe2\x1f", "a table larger than allowed"),
        (b"\x44\x84\xff\xff\xff\xff", "a text that breaks the Huffman code"),
        (b"\x40\x81\x00\x01a", "a text that breaks the Huffman code"),
    ],
)
def test_each_fault_has_its_text(block, fault):
    assert fault in FAULTS
    for one in (_compiled(65536, 100), Decoder(65536, 100)):
        with pytest.raises(BrokenBlock, match=fault):
            one.decode(block)


def test_the_table_is_bounded_whatever_a_client_adds():
    one = _compiled(1 << 20, 1 << 20)
    for number in range(1000):
        one.decode(
            _literal((6, 0x40), 0, b"", b"") * (number % 7) + _literal((6, 0x40), 0, b"x", b"y" * (number * 37 % 5000))
        )
        table = one.table()
        assert sum(len(name) + len(value) + 32 for name, value in table) <= TABLE_BYTES
        assert len(table) <= TABLE_BYTES // 32


def test_fields_of_a_table_are_one_object_and_are_freed_with_it():
    one = _compiled(65536, 100)
    ((name, value),) = first = one.decode(_literal((6, 0x40), 0, b"x-one", b"its value"))
    again = one.decode(b"\xbe\x82")
    assert again[0] is first[0]
    assert again[1] is STATIC[1]
    with_name = one.decode(_literal((6, 0x40), 62, b"", b"another"))
    assert with_name[0][0] is name
    field = first[0]
    before = sys.getrefcount(field)
    one.decode(b"\x20")
    assert sys.getrefcount(field) == before - 1
    assert (one.table(), field) == ([], (name, value))
    one.decode(b"\x3f\xe1\x1f" + _literal((6, 0x40), 0, b"x-two", b"more"))
    (field,) = one.table()
    before = sys.getrefcount(field)
    del one
    assert sys.getrefcount(field) == before - 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (STATIC, BrokenBlock, FAULTS, 1),
        (list(STATIC), BrokenBlock, FAULTS, 1, 1),
        (STATIC[1:], BrokenBlock, FAULTS, 1, 1),
        ((*STATIC[1:], ("a",)), BrokenBlock, FAULTS, 1, 1),
        ((*STATIC[1:], (b"a", "b")), BrokenBlock, FAULTS, 1, 1),
        (STATIC, str, FAULTS, 1, 1),
        (STATIC, BrokenBlock, FAULTS[1:], 1, 1),
        (STATIC, BrokenBlock, FAULTS, 2**70, 1),
    ],
)
def test_arguments_of_another_kind_are_an_error(arguments):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        penstock_codec.native.HpackDecoder(*arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _compiled(1, 1).decode("text")  # type: ignore[arg-type]
