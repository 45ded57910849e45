"""What a leader keeps in memory for its followers is what its log has, whatever is appended, cut off or dropped."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.format import batch as record_batch
from engine.log.batch_cache import ENTRY_BYTES, BatchCache, BatchCaches
from engine.log.log import Log
from engine.log.truncation import reset_to, truncate_to
from engine.partition.writer import Group, PartitionWork, carry_out
from engine.testing.recording_disk import RecordingDisk
from engine.topic_settings import TopicSettings
from tests.engine.log.test_truncation import DIRECTORY, opened

SETTINGS = TopicSettings(segment_bytes=40_000)
SIZES = st.sampled_from([1, 300, 3_000, 5_000, 30_000])  # joined with others, or large enough for an entry
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=6)),
        st.tuples(st.sampled_from(["cut", "committed", "reset"]), st.integers(0, 20)),
    ),
    min_size=2,
    max_size=12,
)
JOINED_AND_CUT = [("append", [(1, False)] * 3), ("cut", 2), ("append", [(300, False)] * 3)]

_values = itertools.count()


def batch(size: int, *, is_clients: bool) -> bytes | bytearray:
    made = record_batch.encode_values([(b"%d " % next(_values)).ljust(size, b".")] * 2, 1)
    return bytes(made) if is_clients else made


def append(log: Log, batches: list[bytes | bytearray]) -> None:
    steps = log.plan(batches, SETTINGS, 1)
    work = PartitionWork("t/0", DIRECTORY, steps, sync=[step.segment for step in steps], sync_directory=True)
    carry_out(log.disk, Group([work]))
    log.apply(steps)


def take(log: Log, cache: BatchCache, step: str, argument: object) -> None:
    match step, argument:
        case "append", list(rows):
            append(log, [batch(size, is_clients=is_clients) for size, is_clients in rows])
        case "cut", int(offset):
            copy = log.copy()
            truncate_to(copy, min(max(offset, log.local_log_start), log.log_end))
            log.replace_with(copy)
        case "reset", int(offset):
            copy = log.copy()
            reset_to(copy, offset, offset)
            log.replace_with(copy)
        case "committed", int(offset):
            cache.drop_below(offset)


def check_cached(log: Log, cache: BatchCache) -> int:
    """Compare all reads with the files. Returns the number of reads that the cache answers."""
    answered = 0
    for segment in log.segments:
        data = log.disk.pread(segment.handle, segment.size_bytes, 0)
        ends = [(at, header.base_offset, header.next_offset) for at, header in record_batch.walk(data)]
        for (at, base_offset, _), max_bytes in itertools.product(ends, (1, 8_000)):
            if (found := cache.read(base_offset, max_bytes, log.log_end)) is not None:
                answered += 1
                given = b"".join(found.pieces)
                assert given == data[at : at + found.size_bytes]
                assert found.next_offset in [end for _, _, end in ends]
                assert [header.next_offset for _, header in record_batch.walk(given)][-1] == found.next_offset
    assert cache.read(log.log_end, 1, log.log_end) is None
    return answered


@given(STEPS)
@example(JOINED_AND_CUT)
def test_a_cache_has_what_the_log_has(steps):
    log, caches = opened(RecordingDisk()), BatchCaches(1 << 20)
    cache = log.batch_cache = caches.new()
    for step, argument in steps:
        take(log, cache, step, argument)
        assert check_cached(log, cache) or step != "append"
    cache.clear()
    assert (len(cache), caches.size_bytes) == (0, 0)


def test_a_cache_that_keeps_what_was_cut_off_is_found(monkeypatch):
    monkeypatch.setattr(BatchCache, "clear", lambda _: None)
    log = opened(RecordingDisk())
    cache = log.batch_cache = BatchCaches(1 << 20).new()
    for step, argument in JOINED_AND_CUT:
        take(log, cache, step, argument)
    with pytest.raises(AssertionError):
        check_cached(log, cache)


def test_the_log_that_was_written_longest_ago_gives_way():
    caches = BatchCaches(3 * (6_000 + ENTRY_BYTES))
    logs = [opened(RecordingDisk()) for _ in range(2)]
    for log in logs:
        log.batch_cache = caches.new()
    for log in (logs[0], logs[1], logs[1]):
        append(log, [batch(2_800, is_clients=False)])
    assert [check_cached(log, log.batch_cache) for log in logs] == [2, 4]
    append(logs[1], [batch(2_800, is_clients=False)])
    assert [check_cached(log, log.batch_cache) for log in logs] == [0, 6]
    append(logs[1], [batch(2_800, is_clients=False)])
    assert [check_cached(log, log.batch_cache) for log in logs] == [0, 6]
    append(logs[0], [batch(30_000, is_clients=False)])
    assert caches.size_bytes == 0, "what is larger than the bound is not kept"


def test_a_buffer_that_its_owner_appends_once_more_is_not_given_for_the_first():
    log = opened(RecordingDisk())
    cache = log.batch_cache = BatchCaches(1 << 20).new()
    same = batch(5_000, is_clients=False)
    append(log, [same])
    append(log, [same])
    assert cache.read(0, 1, log.log_end) is None
