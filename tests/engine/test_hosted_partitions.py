"""A node of a cluster has some partitions of a topic: they come and go, and what was told is what a restart finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.topics import TopicRecord
from tests.engine.conftest import HandClock
from tests.engine.data_directory_lives import Lives, append, ends

RECORD = TopicRecord("t", "id-of-t", 6, 3, {"flush_ms": 7}, 5, hosted=(1, 3))


@pytest.fixture
def lives(tmp_path: Path, clock: HandClock) -> Lives:
    return Lives(tmp_path, clock)


@pytest.fixture(params=[("a",), ("a", "b")], ids=["one directory", "two directories"])
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


def directories(lives: Lives) -> list[str]:
    """Of partitions, in all data directories."""
    return sorted(path.name for path in lives.path.glob("*/topics/t/*/*") if path.is_dir())


async def adopt(node, record: TopicRecord) -> TopicRecord:
    adopted = await node.shard.catalog.adopt(record)
    if record.name not in node.shard.topics:
        await node.shard.open_topic(adopted)
    else:
        await node.shard.open_added(adopted)
        node.shard.altered(adopted)
    return adopted


async def test_only_what_lies_here_is_made_and_opened_also_after_a_restart(lives, names):
    async with lives.life(*names) as node:
        await adopt(node, RECORD)
        await append(node)
        assert ends(node) == {1: 1, 3: 1}
    assert directories(lives) == ["1", "3"]
    async with lives.life(*names) as node:
        assert ends(node) == {1: 1, 3: 1}
        assert (node.shard.topic("t").record.partitions, node.shard.topic("t").settings.flush_ms) == (6, 7)


async def test_partitions_that_are_moved_here_are_made_and_those_that_are_there_stay(lives, names):
    async with lives.life(*names) as node:
        await adopt(node, RECORD)
        await append(node)
        await adopt(node, replace(RECORD, hosted=(1, 3, 5)))
        assert ends(node) == {1: 1, 3: 1, 5: 0}
        await adopt(node, replace(RECORD, partitions=8, hosted=(1, 3, 5, 7)))
        assert ends(node) == {1: 1, 3: 1, 5: 0, 7: 0}
    async with lives.life(*names) as node:
        assert ends(node) == {1: 1, 3: 1, 5: 0, 7: 0}


async def test_partitions_that_were_moved_away_are_closed_and_their_files_go(lives, names):
    async with lives.life(*names) as node:
        await adopt(node, RECORD)
        await append(node)
        left = []
        node.shard.when_moved_away = lambda topic, partitions: left.extend(one.number for one in partitions)
        without = await adopt(node, replace(RECORD, hosted=(3,)))
        await node.shard.close_partitions("t", [1])
        await node.shard.catalog.let_go(without, [1])
        assert (left, ends(node), directories(lives)) == ([1], {3: 1}, ["3"])
        await adopt(node, replace(RECORD, hosted=(1, 3)))
        assert ends(node) == {1: 0, 3: 1}, "one that comes back begins with nothing"
    async with lives.life(*names) as node:
        assert ends(node) == {1: 0, 3: 1}


async def test_a_topic_of_which_nothing_lies_here_is_known_all_the_same(lives, names):
    async with lives.life(*names) as node:
        await adopt(node, replace(RECORD, hosted=()))
        assert node.shard.topic("t").partitions == {}
    async with lives.life(*names) as node:
        assert node.shard.topic("t").record.hosted == ()


async def test_settings_are_taken_over_as_they_are_told(lives, names):
    async with lives.life(*names) as node:
        await adopt(node, RECORD)
        await adopt(node, replace(RECORD, overrides={}))
    async with lives.life(*names) as node:
        assert node.shard.topic("t").record.overrides == {}
