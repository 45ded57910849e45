"""Blocks are fetched ahead of readers that go on, and for no others."""

from engine.tiering.reading.read_ahead import BLOCKS_MAX, ReadAhead

BLOCKS = 64


def test_a_reader_that_goes_on_gets_each_block_once_and_a_growing_window():
    ahead, wanted = ReadAhead(), []
    for block in range(BLOCKS):
        wanted.append(ahead.advance("key", block, block, BLOCKS, is_start=block == 0))
    fetched = [number for one in wanted for number in one]
    assert fetched == list(range(1, BLOCKS))
    assert [one for one in wanted if one][:4] == [range(1, 2), range(2, 4), range(4, 7), range(7, 13)]
    assert max(map(len, wanted)) <= BLOCKS_MAX


def test_single_reads_anywhere_get_nothing_ahead():
    ahead = ReadAhead()
    for block in (5, 40, 2, 17, 0, 63):
        assert not ahead.advance("key", block, block, BLOCKS, is_start=False)


def test_small_reads_within_a_block_count_once():
    ahead = ReadAhead()
    assert [ahead.advance("key", 3, 3, BLOCKS, is_start=False) for _ in range(5)] == [range(0)] * 5
    assert ahead.advance("key", 3, 4, BLOCKS, is_start=False) == range(5, 6)
    assert not ahead.advance("key", 4, 4, BLOCKS, is_start=False)
    assert ahead.advance("key", 4, 5, BLOCKS, is_start=False) == range(6, 8)


def test_readers_of_one_object_and_of_others_do_not_disturb_each_other():
    ahead = ReadAhead()
    fetched: dict[tuple[str, int], list[int]] = {}
    for step in range(10):
        for key, at in (("a", 0), ("a", 30), ("b", 0)):
            wanted = ahead.advance(key, at + step, at + step, BLOCKS, is_start=at + step == 0)
            fetched.setdefault((key, at), []).extend(wanted)
    assert fetched["a", 0] == fetched["b", 0]
    assert fetched["a", 30][:4] == [32, 33, 34, 35]


def test_nothing_beyond_the_end_is_fetched():
    ahead = ReadAhead()
    assert ahead.advance("key", 0, 1, 2, is_start=True) == range(2, 2)
    assert not ahead.advance("small", 0, 0, 1, is_start=True)


def test_a_million_readers_take_bounded_memory():
    ahead = ReadAhead()
    for number in range(1000):
        ahead.advance(str(number), 0, 0, BLOCKS, is_start=True)
    assert len(ahead._readers) == 256
