"""HPACK, with the hpack library as the peer."""

from contextlib import suppress

import hpack as oracle
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import hpack, huffman
from gateway.wire.hpack import STATIC, TABLE_BYTES, BrokenBlock, encode
from tests.codecs import each_codec

__all__ = ["each_codec"]
pytestmark = pytest.mark.usefixtures("each_codec")

NAMES = st.sampled_from([":path", ":method", "content-type", "content-length", "x-a", "x-b", "authorization"])
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=10)


def decoder(list_bytes_max=65536, fields_max=1000):
    return hpack.decoder(list_bytes_max, fields_max)


def test_the_tables_are_those_of_the_standard():
    assert huffman.words() == list(zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True))
    assert [(name.decode(), value.decode()) for name, value in HeaderTable.STATIC_TABLE] == list(STATIC)


@given(st.binary(max_size=300))
def test_a_text_survives_the_huffman_code(text):
    code = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)
    assert huffman.decode(code) == huffman.decode_plainly(code) == text


@given(st.binary(max_size=60))
def test_bytes_that_are_no_huffman_code_are_an_error_and_nothing_else(code):
    try:
        text = huffman.decode(code)
    except huffman.BrokenCode:
        with pytest.raises(huffman.BrokenCode):
            huffman.decode_plainly(code)
        return
    assert huffman.decode_plainly(code) == text
    assert HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text) == code


@given(st.lists(st.tuples(FIELDS, st.booleans(), st.sampled_from([None, 0, 100, TABLE_BYTES])), max_size=8))
def test_blocks_of_a_connection_are_read_as_they_were_written(blocks):
    ours, theirs = decoder(), oracle.Encoder()
    for fields, is_coded, table_bytes in blocks:
        if table_bytes is not None:
            theirs.header_table_size = table_bytes
        assert ours.decode(theirs.encode(fields, huffman=is_coded)) == fields
        table = [(name.decode(), value.decode()) for name, value in theirs.header_table.dynamic_entries]
        assert ours.table() == table


@given(st.lists(st.tuples(FIELDS, st.booleans()), max_size=12))
def test_a_decoder_that_is_given_the_table_of_another_goes_on_where_it_was(blocks):
    ours, theirs = decoder(), oracle.Encoder()
    for fields, is_coded in blocks:
        ours = hpack.decoder_of(ours.table()[::-1], 65536, 1000)
        assert ours.decode(theirs.encode(fields, huffman=is_coded)) == fields
        assert ours.table() == [(name.decode(), value.decode()) for name, value in theirs.header_table.dynamic_entries]


@given(st.integers(100, 599), st.lists(st.tuples(st.sampled_from(["Content-Type", "Date", "X-A"]), VALUES)))
def test_blocks_of_answers_are_read_by_others(status, headers):
    fields = oracle.Decoder(max_header_list_size=2**20).decode(encode(status, headers))
    assert fields == [(":status", str(status)), *((name.lower(), value) for name, value in headers)]


@given(st.binary(max_size=100))
def test_bytes_that_are_no_block_are_an_error_and_nothing_else(block):
    with suppress(BrokenBlock):
        decoder().decode(block)


def test_a_bomb_is_not_unpacked_and_the_table_stays_in_step():
    """A field of 4,000 bytes, referenced thousands of times by one byte each."""
    theirs, ours = oracle.Encoder(), decoder(list_bytes_max=16 * 1024)
    ours.decode(theirs.encode([("x-a", "a" * 4000)], huffman=False))
    fields = ours.decode(theirs.encode([("x-a", "a" * 4000)] * 5000 + [("x-b", "b")]))
    assert ours.is_too_large
    assert sum(len(value) for _, value in fields) <= 16 * 1024
    assert ours.decode(theirs.encode([("x-b", "b")])) == [("x-b", "b")]


def test_the_number_of_fields_is_bounded_and_the_table_too():
    ours = decoder(list_bytes_max=2**20, fields_max=3)
    ours.decode(b"\x82" * 4)
    assert ours.is_too_large
    with pytest.raises(BrokenBlock):
        ours.decode(b"\x3f\xe2\x1f")  # a table of 4,097 bytes
    with pytest.raises(BrokenBlock):
        ours.decode(b"\xff" + b"\xff" * 10)  # a number without end
