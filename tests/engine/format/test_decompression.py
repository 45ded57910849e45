"""Decompression stops at its limit, and truncated or damaged data is never taken for shorter valid data."""

import contextlib
import gzip
import resource
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.format.batch import Codec
from engine.format.decompression import FIRST_ROOM_BYTES, Broken, DoesNotFit, unpack
from tests.engine.handmade import PACK

KINDS = {codec.name.lower(): PACK[codec] for codec in Codec if codec}
MIB = 1024 * 1024
kinds = pytest.mark.parametrize("kind", KINDS)


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=2000), st.binary(max_size=70))
def test_what_was_packed_comes_back_behind_its_head(kind, text, head):
    assert unpack(kind, KINDS[kind](text), len(text), head) == head + text


@kinds
@pytest.mark.parametrize("size", [1, 1000, FIRST_ROOM_BYTES, FIRST_ROOM_BYTES + 1, 3 * MIB])
def test_a_text_of_exactly_the_bound_fits_and_one_byte_more_does_not(kind, size):
    text = b"abc" * (size // 3) + b"x" * (size % 3)
    packed = KINDS[kind](text)
    assert unpack(kind, packed, size) == text
    with pytest.raises(DoesNotFit):
        unpack(kind, packed, size - 1)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"snappy"}))
def test_a_text_that_is_cut_off_is_broken_wherever_it_is_cut(kind):
    """Xerial's frame of snappy blocks is an exception, since it has no block count: the record count detects it."""
    packed = KINDS[kind](b"".join(b"%d " % n for n in range(20_000)))
    for cut in range(1, len(packed), 97):
        with pytest.raises(Broken):
            unpack(kind, packed[:-cut], MIB)


@pytest.mark.parametrize("kind", ["gzip", "zstd", "lz4"])
def test_several_texts_one_after_the_other_are_one(kind):
    pack = KINDS[kind]
    assert unpack(kind, pack(b"one") + pack(b"") + pack(b"two"), 6) == b"onetwo"


@given(st.sampled_from(sorted(KINDS)), st.binary(min_size=1, max_size=300))
def test_any_bytes_unpack_within_the_bound_or_are_refused(kind, noise):
    with contextlib.suppress(Broken, DoesNotFit):
        assert len(unpack(kind, noise, 1000)) <= 1000


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 400), st.integers(1, 255))
def test_a_wrong_byte_is_refused_or_harmless(kind, position, flip):
    packed = bytearray(KINDS[kind](b"a text of some length, " * 100 + bytes(range(256))))
    packed[position % len(packed)] ^= flip
    with contextlib.suppress(Broken, DoesNotFit):
        assert len(unpack(kind, packed, 10_000)) <= 10_000


def test_a_bomb_takes_no_more_memory_than_the_bound():
    """944 MB in 29 kB, once as one frame and once as many gzip members."""
    bomb = zstandard.compress(bytes(944 * MIB))
    assert len(bomb) < 40_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind, packed in (("zstd", bomb), ("gzip", gzip.compress(bytes(MIB)) * 944)):
        with pytest.raises(DoesNotFit):
            unpack(kind, packed, 64 * MIB)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 150 * 1024


def test_gzip_members_are_bounded():
    member = gzip.compress(b"x")
    assert unpack("gzip", member * 10_000, MIB) == b"x" * 10_000
    with pytest.raises(Broken, match="more than 10000 gzip members"):
        unpack("gzip", member * 10_001, MIB)


def empty_deflate_blocks(count: int) -> bytes:
    """Return one gzip member of empty blocks with fixed Huffman codes, 10 bits each."""
    bits = ("0" + "10" + "0000000") * count + "1" + "10" + "0000000"
    bits += "0" * (-len(bits) % 8)
    blocks = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    return gzip.compress(b"")[:10] + blocks + bytes(8)


def test_a_gzip_member_of_empty_blocks_is_refused_after_a_bounded_amount_of_input():
    assert unpack("gzip", empty_deflate_blocks(1000), 0) == b""
    with pytest.raises(Broken, match="131072 bytes of a gzip member hold 0 bytes"):
        unpack("gzip", empty_deflate_blocks(400_000), MIB)


def test_gzip_that_is_flushed_after_every_byte_is_read():
    packing = zlib.compressobj(wbits=31)
    packed = b"".join(packing.compress(b"a") + packing.flush(zlib.Z_SYNC_FLUSH) for _ in range(30_000))
    assert unpack("gzip", packed + packing.flush(), MIB) == b"a" * 30_000


def xerial(*blocks: bytes) -> bytes:
    lengths = b"".join(len(block).to_bytes(4, "big", signed=True) + block for block in blocks)
    return b"\x82SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1]) + lengths


BLOCK = KINDS["snappy"](b"hello")[20:]


def test_snappy_is_read_with_and_without_xerials_frame():
    assert unpack("snappy", BLOCK, 5) == b"hello"
    assert unpack("snappy", xerial(BLOCK, BLOCK), 10) == b"hellohello"


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(xerial(BLOCK)[:18], id="a length is cut off"),
        pytest.param(xerial(BLOCK) + b"\xff\xff\xff\xff", id="a negative length"),
        pytest.param(xerial(BLOCK) + b"\x7f\xff\xff\xff", id="a length beyond the end"),
        pytest.param(xerial(BLOCK) + b"\0\0\0\0" * 1000, id="blocks of nothing"),
        pytest.param(xerial(*[b"\x01\0a"] * 65_537), id="too many blocks"),
        pytest.param(xerial(b"\xff\xff\xff\xff\x0f" + BLOCK), id="a block that lies about its text"),
    ],
)
def test_a_frame_of_snappy_blocks_that_lies_is_refused(packed):
    with pytest.raises((Broken, DoesNotFit)):
        unpack("snappy", packed, MIB)
