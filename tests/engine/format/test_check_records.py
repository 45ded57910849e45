"""The records of a client's batch match its header, or the batch is rejected."""

import struct
import time

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import BatchTooLarge, DecodedTooLarge, InvalidBatch, RecordTooLarge
from engine.format import batch as record_batch
from engine.format.batch import HEADER_BYTES, Codec, Row, check_client_batch, check_records, decode_one
from tests.cells import each_cell
from tests.codecs import each_codec  # noqa: F401
from tests.engine.handmade import T0, batch, record

pytestmark = pytest.mark.usefixtures("each_codec")
MIB = 1024 * 1024
codecs = each_cell("codec", list(Codec), ids=lambda codec: codec.name.lower())
TWO = record(0) + record(1)


def check(data: bytes, record_bytes_max: int = MIB, decoded_bytes_max: int = 64 * MIB) -> None:
    """Check as the gateway does: the header first."""
    check_client_batch(data, batch_bytes_max=64 * MIB)
    check_records(data, record_bytes_max=record_bytes_max, decoded_bytes_max=decoded_bytes_max)


@given(
    st.lists(
        st.tuples(
            st.integers(0, T0),
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(Codec),
)
def test_what_an_honest_producer_makes_is_taken(rows, codec):
    check(bytes(record_batch.encode([Row(*row) for row in rows], codec)))


@codecs
def test_a_batch_made_by_hand_is_taken(codec):
    first, second = record(0, time_delta=-1000), record(1, None, b"key")
    third = record(2, b"", headers=[(b"h", None), (b"", b"x")])
    check(batch(first + second + third, 3, codec))


LIES = {
    "an offset delta that is left out": (record(0) + record(2), 2),
    "an offset delta twice": (record(0) + record(0), 2),
    "offset deltas that begin at 1": (record(1) + record(2), 2),
    "an offset delta below 0": (record(-1) + record(0), 2),
    "a time after the maximum": (record(0, time_delta=1), 1),
    "a time before 1970": (record(0, time_delta=-T0 - 1), 1),
    "a time that overflows": (record(0, time_delta=2**63 - 1), 1),
    "fewer records than announced": (TWO, 3),
    "more records than announced": (TWO, 1),
    "a record that is longer than it says": (record(0) + record(1, length_lie=-1), 2),
    "a record that is shorter than it says": (record(0, length_lie=1) + record(1), 2),
    "a header name that is no UTF-8": (record(0, headers=[(b"\xff", b"x")]), 1),
    "more headers than there are": (record(0, headers=[(b"a", b"x")], header_count=2), 1),
    "fewer headers than there are": (record(0, headers=[(b"a", b"x")], header_count=0), 1),
    "a number of headers below 0": (record(0, header_count=-1), 1),
    "two thousand million headers": (record(0, header_count=2**31), 1),
    "nothing at all": (b"", 1),
    "a number without an end": (b"\xff" * 20, 1),
    "a value that ends outside": (record(0)[:-3] + b"\x7f\x00", 1),
}


@codecs
@each_cell("lie", LIES)
def test_records_that_lie_are_refused(lie, codec):
    with pytest.raises(InvalidBatch):
        check(batch(*LIES[lie], codec))


@codecs
def test_records_whose_offsets_lie_are_never_decoded(codec):
    """A consumer would continue after the wrong offset."""
    for lie in ("an offset delta twice", "offset deltas that begin at 1", "an offset delta below 0"):
        with pytest.raises(InvalidBatch):
            decode_one(batch(*LIES[lie], codec))


def test_offsets_that_compaction_has_thinned_out_are_decoded():
    thin = bytearray(batch(record(0) + record(2), 2))
    struct.pack_into(">i", thin, 23, 4)  # the last offset delta, beyond the last record
    assert [one.offset for one in decode_one(thin)] == [0, 2]


@codecs
def test_a_record_over_the_limit_of_the_topic_is_refused(codec):
    data = batch(record(0, b"v" * 90, b"k" * 5, [(b"h", b"x" * 4)]) + record(1), 2, codec)
    check(data, record_bytes_max=100)
    with pytest.raises(RecordTooLarge) as refused:
        check(data, record_bytes_max=99)
    assert refused.value.members == {"limit": 99}


@each_cell("codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name.lower())
def test_records_unpack_to_the_bound_and_no_further(codec):
    records = b"".join(record(n, b"v" * 1000) for n in range(100))
    data = batch(records, 100, codec)
    check(data, decoded_bytes_max=len(records))
    assert len(decode_one(data, len(records))) == 100
    for function in (check, decode_one):
        with pytest.raises(DecodedTooLarge) as refused:
            function(data, decoded_bytes_max=len(records) - 1)
        assert refused.value.members == {"limit": len(records) - 1}


@each_cell("codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name.lower())
def test_nothing_is_compressed_that_could_not_be_read_again(codec):
    values = [b"v" * 1000] * 100
    size = len(record_batch.encode_values(values, T0)) - HEADER_BYTES
    whole = record_batch.encode_values(values, T0, codec, decoded_bytes_max=size)
    assert len(decode_one(whole, size)) == 100
    with pytest.raises(BatchTooLarge):
        record_batch.encode_values(values, T0, codec, decoded_bytes_max=size - 1)
    with pytest.raises(BatchTooLarge):
        record_batch.encode([Row(T0, None, value, []) for value in values], codec, decoded_bytes_max=size - 1)


@codecs
def test_compression_that_is_cut_off_or_of_another_kind_is_refused(codec):
    honest = batch(TWO, 2, codec)
    with pytest.raises(InvalidBatch):
        check(batch(honest[HEADER_BYTES:-1], 2, codec, pack=bytes))
    with pytest.raises(InvalidBatch):
        check(batch(b"\x00\x01\x02 not packed at all", 2, codec, pack=bytes))


def test_a_bomb_is_refused_before_it_goes_off():
    """28 kB of zstd that decompress to 944 MB."""
    bomb = batch(b"", 1, Codec.ZSTD, pack=lambda _: zstandard.compress(bytes(944 * MIB)))
    assert len(bomb) < 40_000
    began = time.process_time()
    with pytest.raises(DecodedTooLarge):
        check(bomb)
    assert time.process_time() - began < 0.8, "64 MiB take 0.05 s, all of it would take 1"


@given(st.binary(max_size=400), st.integers(1, 50), st.sampled_from(Codec))
def test_any_bytes_in_place_of_records_are_one_definite_error(noise, count, codec):
    for data in (batch(noise, count, codec), batch(noise, count, codec, pack=bytes)):
        for function in (check, decode_one):
            try:
                function(data)
            except (InvalidBatch, RecordTooLarge):
                pass
            else:
                assert noise


@given(st.integers(0, 300), st.integers(1, 255), st.sampled_from(Codec))
def test_a_wrong_byte_among_the_records_is_refused_or_harmless(position, flip, codec):
    good = b"".join(record(n, b"value", b"k%d" % n, [(b"h", b"x")], time_delta=-n) for n in range(10))
    bad = bytearray(good)
    bad[position % len(bad)] ^= flip
    data = batch(bytes(bad), 10, codec)
    try:
        check(data)
    except InvalidBatch:
        return
    records = decode_one(data)
    assert [one.offset for one in records] == list(range(10))
    assert max(one.timestamp for one in records) <= T0


@each_cell("codec", [Codec.NONE, Codec.ZSTD])
def test_a_reserved_header_name_is_refused_and_the_same_word_in_a_value_is_not(codec):
    word = b"__penstock-idempotency"
    check_records(record_batch.encode([Row(5, word, word, [("h", word)])], codec), record_bytes_max=1000)
    named = record_batch.encode([Row(5, None, b"", []), Row(5, None, b"", [("__penstock-x", b"")])], codec)
    with pytest.raises(InvalidBatch, match="__penstock"):
        check_records(named, record_bytes_max=1000)
