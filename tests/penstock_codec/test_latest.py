"""The last offset of each key, in the compiled codec and its plain Python twin: both keep the same records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock_codec
from engine.compaction.latest_offsets import CompiledOffsets, PythonOffsets
from engine.errors import InvalidBatch
from engine.format import batch as record_batch
from engine.format.batch_header import stamp

pytestmark = pytest.mark.skipif(penstock_codec.native is None, reason="the codec is not compiled here")

HASH_KEY = bytes(range(16))
KEYS = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"a", b"b", b"", b"12345678"]))
RECORDS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=20))), min_size=1, max_size=9)


def batch_of(records, base_offset: int) -> bytearray:
    made = record_batch.encode([(5, key, value, [("h", b"1")]) for key, value in records])
    stamp(made, base_offset, 0)
    return made


@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(0, 60), st.booleans())
def test_both_keep_the_same_records(batches, expired_below, keeps_first):
    compiled, plain = CompiledOffsets(1 << 12, HASH_KEY), PythonOffsets(1 << 20, HASH_KEY)
    made = [batch_of(records, 10 * at) for at, records in enumerate(batches)]
    for one in made:
        for latest in (compiled, plain):
            latest.add(one, record_batch.read_header(one))
    for one in made:
        header = record_batch.read_header(one)
        kept = [latest.kept(one, header, expired_below, keeps_first=keeps_first) for latest in (compiled, plain)]
        assert kept[0] == kept[1]


@given(st.lists(RECORDS, min_size=1, max_size=9))
def test_both_find_the_last_offset_of_a_key_however_much_they_grow(batches):
    compiled, plain = CompiledOffsets(1, HASH_KEY), PythonOffsets(1, HASH_KEY)
    last = {}
    for at, records in enumerate(batches):
        one = batch_of(records, 10 * at)
        last |= {key: 10 * at + number for number, (key, _) in enumerate(records) if key is not None}
        for latest in (compiled, plain):
            while latest.room < len(records):
                latest.grow()
            latest.add(one, record_batch.read_header(one))
    for key in [*last, b"none"]:
        assert compiled.find(key) == plain.find(key) == last.get(key)
    assert compiled.size_bytes * 3 // 4 // 24 - compiled.room == len(last)


@given(RECORDS, st.data())
def test_a_damaged_batch_supersedes_nothing_and_stays_whole(records, data):
    sound = batch_of([(b"a", b"1"), (b"b", b"1")], 0)
    bad = batch_of([(b"a", b"2"), *records], 10)
    cut = data.draw(st.integers(record_batch.HEADER_BYTES, len(bad) - 1))
    for latest in (CompiledOffsets(1 << 12, HASH_KEY), PythonOffsets(1 << 20, HASH_KEY)):
        room = latest.room
        latest.add(bad[:cut], record_batch.read_header(bad))
        assert latest.room == room
        kept = latest.kept(sound, record_batch.read_header(sound), 0, keeps_first=False)
        assert kept.record_count == 2
        with pytest.raises(InvalidBatch):
            latest.kept(bad[:cut], record_batch.read_header(bad), 0, keeps_first=False)


def test_a_record_outside_of_the_offsets_of_its_batch_supersedes_nothing():
    hostile, later = batch_of([(b"a", b"1")], 0), batch_of([(b"a", b"2")], 1)
    hostile[record_batch.HEADER_BYTES + 3] = 126  # the delta of the record: 63
    for latest in (CompiledOffsets(1 << 12, HASH_KEY), PythonOffsets(1 << 20, HASH_KEY)):
        for one in (later, hostile):
            latest.add(one, record_batch.read_header(one))
        assert latest.kept(later, record_batch.read_header(later), 0, keeps_first=False).record_count == 1
        with pytest.raises(InvalidBatch):
            latest.kept(hostile, record_batch.read_header(hostile), 0, keeps_first=False)


def test_a_table_takes_as_many_keys_as_it_has_room_for():
    latest = CompiledOffsets(64 * 24, HASH_KEY)
    assert latest.room == 48
    many = batch_of([(b"%d" % at, b"") for at in range(48)], 0)
    latest.add(many, record_batch.read_header(many))
    assert latest.room == 0


def test_the_hash_is_siphash_of_128_bits():
    """The digests of the reference code for the key 00..0f and the messages of 0 and 15 bytes (vectors_sip128)."""
    slots = bytearray(16 * 24)
    key = bytes(range(8))[::-1] + bytes(range(8, 16))[::-1]  # two big-endian words here, little-endian there
    one = batch_of([(b"", b"1")], 6)
    assert penstock_codec.native.latest_add(slots, key, one) == 1
    assert bytes.fromhex("a3817f04ba25a8e66df67214c7550293") in slots
