"""Runs of batches by their headers and checksums: the compiled codec finds what its twin finds."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidBatch
from engine.format.batch import Codec, encode_values, set_crc, stamp
from engine.format.batch_header import is_compressed, mark_control, valid_batches, valid_batches_plainly
from tests.codecs import COMPILED, needs_compiled, plainly

pytestmark = needs_compiled


@st.composite
def runs(draw: st.DrawFn) -> bytearray:
    """Return a run of batches from offset 5 on, whole or not, damaged or not."""
    data, offset = bytearray(), 5
    for count in draw(st.lists(st.integers(1, 4), max_size=6)):
        value = draw(st.binary(max_size=60) | st.just(b"x" * 5000))
        batch = encode_values([value] * count, 1000, draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD])))
        if draw(st.integers(0, 5)) == 0:
            mark_control(batch)
        stamp(batch, offset + draw(st.sampled_from([0, 0, 0, 0, 0, 1])), 0)
        data += batch
        offset += count
    for _ in range(draw(st.integers(0, 1))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return data


@given(runs(), st.integers(4, 6), st.integers(0, 30), st.integers(0, 8))
def test_the_sound_batches_of_a_run_are_those_of_the_twin(data, start_offset, offset, batches_max):
    wanted = valid_batches_plainly(data, start_offset, offset, batches_max)
    assert valid_batches(data, start_offset, offset, batches_max) == wanted
    assert valid_batches(memoryview(bytes(data)), start_offset, offset, batches_max) == wanted


def outcome(data: Any) -> bool | str:
    try:
        return is_compressed(data)
    except InvalidBatch as error:
        return error.detail


@given(runs())
def test_a_compressed_batch_is_found_as_by_the_twin(data):
    assert outcome(data) == plainly(outcome, data)


@given(st.binary(max_size=200))
def test_the_checksum_of_any_length_is_that_of_the_library(value):
    batch = encode_values([value], 1)
    set_crc(batch)
    assert COMPILED.valid_batches(batch, 0, 0, 9) == (0, len(batch), 1, False)
    batch[-1] ^= 1
    assert COMPILED.valid_batches(batch, 0, 0, 9) == (0, 0, 0, False)


def test_large_batches_are_left_to_the_library():
    assert COMPILED.valid_batches(encode_values([b"x" * 5000], 1), 0, 0, 9) is None
    assert COMPILED.valid_batches(encode_values([b"x"], 1), 2**62, 0, 9) is None
