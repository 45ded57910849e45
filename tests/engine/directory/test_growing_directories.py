"""Topics that grow over several data directories: only the new partitions are created, each once."""

import shutil

import pytest

from tests.engine.data_directory_lives import Lives, append, ends, make


@pytest.fixture
def lives(tmp_path, clock) -> Lives:
    return Lives(tmp_path, clock)


async def test_a_topic_that_grows_leaves_what_it_has_where_it_is(lives):
    async with lives.life() as node:
        await make(node, partitions=2)
        before = lives.of(node, "a")
        await node.shard.alter_topic("t", {}, 6)
        assert lives.of(node, "a")[: len(before)] == before
        assert (len(lives.of(node, "a")), len(lives.of(node, "b"))) == (3, 3)
        await append(node)
    async with lives.life() as node:
        assert ends(node) == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1}


async def test_what_a_growth_that_was_cut_short_has_left_is_not_found_beside_the_next_one(lives):
    async with lives.life() as node:
        await make(node, partitions=2)
        for name in ("a", "b"):
            for number in ("2", "3"):
                (lives.home(name) / number).mkdir()
        await node.shard.alter_topic("t", {}, 4)
        await append(node)
    async with lives.life() as node:
        assert ends(node) == {0: 2, 1: 2, 2: 1, 3: 1}


async def test_growing_does_not_recreate_what_is_missing(lives):
    async with lives.life() as node:
        await make(node, partitions=2)
        (lost,) = lives.of(node, "b")
    shutil.rmtree(lives.home("b") / str(lost))
    async with lives.life() as node:
        await node.shard.alter_topic("t", {}, 4)
        assert ends(node)[lost] is None
    async with lives.life() as node:
        assert ends(node)[lost] is None
