"""What recognises repeats: the compiled codec and its plain Python twins make the same bytes and find the same keys."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock_codec
from engine.format.keyed_batch import (
    SEQUENCE_MARK,
    KeyEntry,
    RequestEntry,
    SequenceEntry,
    SourceEntry,
    keys_in_plainly,
    pack_entries,
)
from engine.producers.key_window import store_keys
from tests.codecs import needs_compiled

pytestmark = needs_compiled


def _about(*numbers: int) -> st.SearchStrategy[int]:
    """Returns numbers at and around these bounds."""
    near = [number + step for number in numbers for step in (-1, 0, 1)]
    return st.integers(0, 3) | st.sampled_from(near)


HASHES = st.binary(min_size=16, max_size=16) | st.sampled_from([b"a" * 16, b"b" * 16])
KEYS = st.builds(KeyEntry, HASHES, HASHES, _about(0, 10_000, 2**16), _about(0, 2**48, 2**63))
SEQUENCES = st.builds(
    SequenceEntry, _about(0, 2**63), _about(-(2**15), 2**15), _about(-(2**31), 2**31), _about(0, -(2**63), 2**63)
)
SOURCES = st.builds(SourceEntry, HASHES, st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
PLACES = _about(0, 2**31, 2**32)
REQUESTS = st.lists(st.builds(RequestEntry, KEYS | SEQUENCES, PLACES, PLACES), max_size=6)
TIMES = st.integers(-(2**63) + 1, 2**63 - 1)
SMALL = st.lists(
    st.builds(
        RequestEntry,
        st.builds(KeyEntry, HASHES, HASHES, st.integers(0, 65535), st.integers(0, 2**48 - 1))
        | st.builds(SequenceEntry, TIMES, st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), TIMES),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
    ),
    max_size=6,
)


@given(REQUESTS | SMALL)
def test_both_pack_the_same_rows(requests):
    packed = penstock_codec.native.pack_entries(requests, SEQUENCE_MARK)
    try:
        rows = pack_entries(requests)
    except (struct.error, OverflowError):
        assert packed is None
        return
    assert packed == rows


@given(st.lists(st.builds(RequestEntry, KEYS | SEQUENCES | SOURCES, PLACES, PLACES), max_size=8))
def test_both_find_the_same_keys(requests):
    found = penstock_codec.native.keys_in(requests)
    if found is not None:
        keys, count = keys_in_plainly(requests)
        assert (list(found[0].items()), found[1]) == (list(keys.items()), count)
        assert all(found[0][key_hash] is entry for key_hash, entry in keys.items())
    else:
        numbers = [number for _, first, count in requests for number in (first, count)]
        assert max(numbers) >= 2**63, "only numbers that no batch has are for the twin"


@given(st.lists(st.tuples(KEYS, _about(0, 2**62), _about(0, 2**31)), max_size=6), _about(0, 2**62, 2**63), _about(0))
def test_both_store_the_same_keys(stored, base_offset, after_first_ms):
    before = {b"a" * 16: b"earlier"}
    compiled, plain = dict(before), dict(before)
    if base_offset > 2**63 - 1:
        base_offset = 2**63 - 1
    rows = penstock_codec.native.store_keys(compiled, stored, base_offset, after_first_ms)
    try:
        expected = store_keys(plain, stored, base_offset, after_first_ms)
    except struct.error:
        assert rows is None
        return
    assert rows == expected
    assert list(compiled.items()) == list(plain.items())


ENTRY = KeyEntry(b"k" * 16, b"r" * 16, 1, 5)


@pytest.mark.parametrize(
    "request_entry",
    [5, (ENTRY, 0), (5, 0, 1), (ENTRY[:3], 0, 1), (ENTRY, "0", 1), (ENTRY, 0, 2**70), ((b"k", b"r" * 16, 1, 5), 0, 1),
     ((b"k" * 16, b"r", 1, 5), 0, 1), ((b"k" * 16, b"r" * 16, "1", 5), 0, 1), (("k", 1, 2, 3), 0, 1)],
)  # fmt: skip
def test_entries_of_another_kind_are_for_the_twin(request_entry):
    native = penstock_codec.native
    good = (ENTRY, 0, 1)
    assert native.pack_entries([good, request_entry], SEQUENCE_MARK) is None  # type: ignore[list-item]
    assert native.store_keys({}, [good, request_entry], 0, 0) is None  # type: ignore[list-item]
    for found in (native.pack_entries((good,), 1), native.keys_in((good,)), native.store_keys({}, (good,), 0, 0)):
        assert found is None, "only lists are taken"
    with pytest.raises(TypeError):
        native.store_keys([], [], 0, 0)  # type: ignore[arg-type]
