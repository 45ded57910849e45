"""Batches of the small requests of a turn by the compiled codec: the same bytes as by its twin, or none."""

from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock_codec
from engine.format import batch as record_batch
from engine.format.batch import NOT_SEQUENCED, BatchRows, Codec
from engine.format.keyed_batch import KeyEntry, stored_entry
from tests.codecs import needs_compiled

pytestmark = needs_compiled

TEXTS = st.text(max_size=70)
BYTES = st.none() | st.binary(max_size=70) | st.just(b"x" * 9000)
TIMES = st.integers(0, 2**42) | st.sampled_from([0, 2**63 - 1])
ROWS = st.lists(st.tuples(TIMES, BYTES, BYTES, st.lists(st.tuples(TEXTS, BYTES), max_size=3)), min_size=1, max_size=4)
ENTRY = stored_entry(KeyEntry(b"k" * 16, b"r" * 16, 3, 2**40))
SEQUENCES = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))
BATCHES = st.lists(
    st.tuples(ROWS, st.just(ENTRY), st.just(NOT_SEQUENCED))
    | st.tuples(ROWS, st.none(), SEQUENCES | st.just(NOT_SEQUENCED)),
    max_size=5,
)
ROW = (5, None, b"1", [])


@given(BATCHES)
@example([([ROW], ENTRY, NOT_SEQUENCED), ([ROW, ROW], None, (2**63 - 1, 2**15 - 1, 2**31 - 1))])
@example([([(5, b"", None, [("", None), ("é", b"")])], None, NOT_SEQUENCED)])
def test_the_batches_are_those_of_the_twin(batches):
    made = penstock_codec.native.encode_batches(batches)
    with mock.patch.object(penstock_codec, "native", None):
        assert made == record_batch.encode_all(batches)
    for data in made or ():
        assert record_batch.has_valid_crc(data, 0, record_batch.read_header(data))


@pytest.mark.parametrize(
    "batch",
    [
        ([], None, NOT_SEQUENCED),
        ([(-1, None, b"", [])], None, NOT_SEQUENCED),
        ([(2**63, None, b"", [])], None, NOT_SEQUENCED),
        ([(2**63 - 1, None, b"", []), (-(2**63), None, b"", [])], None, NOT_SEQUENCED),
        ([(0, None, "text", [])], None, NOT_SEQUENCED),
        ([(0, None, memoryview(b""), [])], None, NOT_SEQUENCED),
        ([(0, None, b"")], None, NOT_SEQUENCED),
        ([(0, None, b"", ())], None, NOT_SEQUENCED),
        ([(0, None, b"", [("\ud800", b"")])], None, NOT_SEQUENCED),
        ([(0, None, b"", [(b"name", b"")])], None, NOT_SEQUENCED),
        ([(0, None, b"", [("name",)])], None, NOT_SEQUENCED),
        ([ROW], ("name", "text"), NOT_SEQUENCED),
        ([ROW], None, (0, 2**15, 0)),
        ([ROW], None, (0, 0, 2**31)),
        ([ROW], None, (2**63, 0, 0)),
        ([ROW], None, (0, 0)),
        ([ROW], None, None),
        ([ROW], None),
        [ROW],
        None,
    ],
    ids=range(20),
)
def test_a_batch_of_another_form_is_left_to_the_twin(batch):
    right: BatchRows = ([ROW], None, NOT_SEQUENCED)
    assert penstock_codec.native.encode_batches([right, batch, right]) is None
    assert len(penstock_codec.native.encode_batches([right, right]) or ()) == 2


def test_compressed_batches_are_made_by_the_twin():
    batches: list[BatchRows] = [([ROW], ENTRY, NOT_SEQUENCED), ([ROW] * 3, None, (1, 2, 3))]
    made = record_batch.encode_all(batches, Codec.LZ4)
    assert [record_batch.read_header(data).codec for data in made] == [Codec.LZ4, Codec.LZ4]
    assert [len(record_batch.decode(data)) for data in made] == [1, 3]
