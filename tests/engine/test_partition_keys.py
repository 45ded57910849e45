"""What a partition knows of keys follows its log: through plans that fail, rolls, stops, kills and deletions."""

from __future__ import annotations

import asyncio
from shutil import copytree

import pytest

from engine import batch
from engine.admission import Appended, Terms
from engine.errors import KeyReused, StorageFull
from engine.keyed_batch import KeyEntry, stored_entry
from replication.acks import Acks
from tests.engine.conftest import running_node

WINDOW_MS = 15 * 60_000


def entry(node, key: str, request: str) -> KeyEntry:
    return KeyEntry(key.encode().ljust(16), request.encode().ljust(16), 1, node.shard.clock.now_ms())


def append(node, key: str, *values: str, request: str = "r", codec=batch.Codec.NONE) -> asyncio.Future[Appended]:
    own = entry(node, key, request)
    data = batch.encode_values([value.encode() for value in values], 5, codec, entry=stored_entry(own))
    return node.leaders["t", 0].append(data, Acks.LEADER, Terms(key=own))


def plain(node, *values: str) -> asyncio.Future[Appended]:
    data = batch.encode_values([value.encode() for value in values], 5)
    return node.leaders["t", 0].append(data, Acks.LEADER)


async def test_a_repeat_in_one_group_is_told_what_the_first_is_told(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        group = [plain(node, "a"), append(node, "k", "b", "c"), append(node, "k", "b", "c"), plain(node, "d")]
        zeroth, first, again, last = await asyncio.gather(*group)
        assert (zeroth.base_offset, first.base_offset, last.base_offset) == (0, 1, 3)
        assert (again.base_offset, again.record_count, again.is_duplicate) == (1, 2, True)
        assert again.timestamp_ms == node.shard.clock.now_ms()
        assert first.key_kept_ms == again.key_kept_ms == WINDOW_MS


async def test_another_request_in_one_group_is_refused(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        group = [append(node, "k", "a", request="one"), append(node, "k", "b", request="two")]
        first, second = await asyncio.gather(*group, return_exceptions=True)
        assert first.base_offset == 0
        assert isinstance(second, KeyReused)
        assert node.shard.partition("t", 0).log_end == 1


async def test_a_key_of_a_write_that_failed_is_free(new_node, monkeypatch):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        with monkeypatch.context() as patch:
            patch.setattr(node.shard.disk, "pwritev", lambda *_: 0)
            group = [append(node, "k", "a"), append(node, "k", "a"), append(node, "k", "b", request="two")]
            results = await asyncio.gather(*group, return_exceptions=True)
        assert [type(result) for result in results] == [StorageFull] * 3
        keys = node.shard.partition("t", 0).admission.keys
        assert keys.find(b"k".ljust(16), node.shard.clock.now_ms()) is None
        assert (await append(node, "k", "b", request="two")).base_offset == 0


async def test_a_key_is_known_from_the_moment_it_is_queued(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        future = append(node, "k", "a", request="one")
        keys = node.shard.partition("t", 0).admission.keys
        assert keys.find(b"k".ljust(16), node.shard.clock.now_ms()).request_hash == b"one".ljust(16)
        await future
        assert keys.find(b"k".ljust(16), node.shard.clock.now_ms()).request_hash == b"one".ljust(16)


@pytest.mark.parametrize("codec", [batch.Codec.NONE, batch.Codec.ZSTD])
@pytest.mark.parametrize("is_clean", [True, False])
async def test_keys_survive_restarts_and_rolls(tmp_path, clock, codec, is_clean):
    paths = [tmp_path / str(n) for n in range(3)]
    async with running_node(paths[0], clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await plain(node, "a")
        await append(node, "before", "b", "c", codec=codec)
        await node.shard.roll_topic("t")
        await append(node, "after", "d", "x" * 5000, codec=codec)
        await plain(node, "f")
        if not is_clean:
            copytree(paths[0], paths[1])  # as a kill leaves it
    async with running_node(paths[0 if is_clean else 1], clock) as node:
        for key, base_offset, count in (("before", 1, 2), ("after", 3, 2)):
            again = await append(node, key, *"x" * count)
            assert (again.base_offset, again.record_count, again.is_duplicate) == (base_offset, count, True)
        with pytest.raises(KeyReused):
            await append(node, "before", "b", request="other")
        if not is_clean:
            copytree(paths[1], paths[2])
    async with running_node(paths[0 if is_clean else 2], clock) as node:
        assert (await append(node, "before", "b", "c")).is_duplicate


async def test_keys_older_than_the_window_are_not_known_after_a_restart(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await append(node, "k", "a")
        node.shard.clock.pass_ms(2 * WINDOW_MS)
    async with new_node() as node:
        assert not (await append(node, "k", "a")).is_duplicate


async def test_a_deleted_topic_leaves_its_room(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await append(node, "k", "a")
        assert node.shard.key_budget.keys == 1
        await node.shard.delete_topic("t")
        assert node.shard.key_budget.keys == 0
        await node.shard.create_topic("t", 1, 1, {})
        assert not (await append(node, "k", "a")).is_duplicate
