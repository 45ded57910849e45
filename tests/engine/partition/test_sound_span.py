"""The check of a read: the complete span at once where its checksum is known, else batch by batch.

Compared with a simple twin: for any known checksums and any damage the result equals a check of each batch.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cleaning import segment_check as scrub
from engine.format.batch import encode_values, stamp, walk
from engine.format.batch_header import read_header, valid_batches
from engine.format.index import SegmentIndex
from engine.log.log import ReadSpan
from engine.log.segment import Segment
from engine.partition import valid_span
from engine.runtime.disk import RealDisk
from engine.runtime.pooled_disk import PooledDisk
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

BASE = 1000
ALL = 1 << 40


@dataclass
class Written:
    """A segment file as bytes, with the index that was built while it was written."""

    data: bytes
    index: SegmentIndex

    def span(self, first: int, last: int, index: SegmentIndex | None = None) -> ReadSpan:
        """Return the span from one index entry to another, or to the end."""
        positions = [*self.index.positions, len(self.data)]
        offset, behind = self.index.offset_of(first), read_all(self.data)
        end = self.index.offset_of(last) if last < len(self.index.positions) else behind
        segment = Segment(RealDisk(), "/nowhere", BASE, size_bytes=len(self.data))
        return ReadSpan(segment, index or self.index, positions[first], positions[last], end, offset)


def read_all(data: bytes) -> int:
    return max(header.next_offset for _, header in walk(data))


def written(sizes: list[int], at_once: int) -> Written:
    """Write batches of one record of these sizes, this many at once."""
    batches = []
    for number, size in enumerate(sizes):
        batches.append(encode_values([bytes([number % 251]) * size], 5))
        stamp(batches[-1], BASE + number, 0)
    index, position = SegmentIndex(BASE), 0
    for start in range(0, len(batches), at_once):
        group = batches[start : start + at_once]
        position = index.add_written([read_header(one) for one in group], group, position)
    return Written(b"".join(batches), index)


def forgetful(index: SegmentIndex) -> SegmentIndex:
    """Return the same index as a restarted process loads it."""
    loaded = SegmentIndex(BASE)
    loaded.positions, loaded.relative_offsets = index.positions, index.relative_offsets
    return loaded


sizes = st.lists(st.sampled_from([1, 60, 700, 3000, 9000]), min_size=20, max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.data(), sizes, st.integers(1, 30), st.booleans())
def test_a_span_is_found_as_sound_as_its_batches_are(data, sizes, at_once, is_restarted):
    log = written(sizes, at_once)
    index = forgetful(log.index) if is_restarted else log.index
    entries = len(index.positions)
    for _ in range(4):  # a read uses the checksums that earlier ones found
        first = data.draw(st.integers(0, entries - 1))
        span = log.span(first, data.draw(st.integers(first + 1, entries)), index)
        good = log.data[span.start : span.end]
        offset = data.draw(st.integers(span.start_offset, span.next_offset - 1))
        flips = data.draw(st.lists(st.integers(0, len(good) - 1), max_size=2))
        bad = bytearray(good)
        for at in flips:
            bad[at] ^= 1 << at % 8
        cut = data.draw(st.sampled_from([len(bad), len(bad) - 1, len(bad) // 2]))
        for found in (bytes(bad[:cut]), good):
            sound = valid_span.valid_span(span, offset, found, ALL)
            twin = valid_batches(found, span.start_offset, offset, ALL)
            assert sound == twin


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_long_read_of_small_batches_looks_at_few_of_them_one_by_one(is_restarted):
    log = written([10] * 2000, 50)
    span = log.span(3, len(log.index.positions), forgetful(log.index) if is_restarted else None)
    found = log.data[span.start : span.end]
    if is_restarted:
        valid_span.valid_span(span, span.start_offset, found, ALL)  # the first read in this process
    with mock.patch.object(valid_span, "valid_batches", wraps=valid_batches) as looked_at:
        sound = valid_span.valid_span(span, span.start_offset + 5, found, ALL)
    assert sound == valid_batches(found, span.start_offset, span.start_offset + 5, ALL)
    assert sum(len(call.args[0]) for call in looked_at.call_args_list) < 9000


def test_reads_that_go_through_a_segment_learn_all_of_it():
    log = written([100] * 3000, 7)
    index = forgetful(log.index)
    entries = len(index.positions)
    for first, last in pairwise(accumulate([0, *[5] * (entries // 5)])):
        span = log.span(first, last, index)
        valid_span.valid_span(span, span.start_offset, log.data[span.start : span.end], ALL)
    assert index.checksums.lookup(0, entries - 1) is not None


async def test_sealing_looks_at_no_batch_of_what_this_process_wrote(tmp_path, clock):
    async with running_node(tmp_path / "data", clock, PooledDisk(RealDisk(), 64)) as node:
        await node.shard.create_topic("t", 1, 1, {})
        leader = node.leaders["t", 0]
        for _ in range(30):
            await leader.acknowledge(leader.append(encode_values([b"x" * 300] * 3, 5), Acks.ALL), Acks.ALL, 5000)
        with mock.patch.object(scrub, "find_damage", side_effect=AssertionError("each batch was looked at")):
            await node.shard.roll_topic("t")
            await node.shard.sealer.wait_saved(node.shard.partition("t", 0))
    assert list(tmp_path.glob("data/topics/t/*/0/*.checksum"))
