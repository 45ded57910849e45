"""A partition's known keys match its log after failed plans, rolls, stops, kills and deletions."""

import asyncio
import errno
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cleaning.retention import Bounds
from engine.errors import KeyReused, StorageFull
from engine.format import batch
from engine.format.keyed_batch import KeyEntry, stored_entry
from engine.producers import state_loader as rebuilding
from engine.producers.appends import AppendConditions, Appended
from engine.producers.snapshots import snapshot_offsets
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, running_node

WINDOW_MS = 15 * 60_000


def entry(node, key: str, request: str) -> KeyEntry:
    return KeyEntry(key.encode().ljust(16), request.encode().ljust(16), 1, node.shard.clock.now_ms())


def append(node, key: str, *values: str, request: str = "r", codec=batch.Codec.NONE) -> asyncio.Future[Appended]:
    own = entry(node, key, request)
    data = batch.encode_values([value.encode() for value in values], 5, codec, entry=stored_entry(own))
    return node.leaders["t", 0].append(data, Acks.LEADER, AppendConditions(key=own))


def plain(node, *values: str) -> asyncio.Future[Appended]:
    data = batch.encode_values([value.encode() for value in values], 5)
    return node.leaders["t", 0].append(data, Acks.LEADER)


async def test_a_key_of_a_write_that_failed_is_free(node, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(node.shard.disk, "pwritev", lambda *_: 0)
        group = [append(node, "k", "a"), append(node, "k", "a"), append(node, "k", "b", request="two")]
        results = await asyncio.gather(*group, return_exceptions=True)
    assert [type(result) for result in results] == [StorageFull] * 3
    keys = node.shard.partition("t", 0).validator.keys
    assert keys.find(b"k".ljust(16), node.shard.clock.now_ms()) is None
    assert (await append(node, "k", "b", request="two")).base_offset == 0


async def test_a_key_is_known_from_the_moment_it_is_queued(node):
    future = append(node, "k", "a", request="one")
    keys = node.shard.partition("t", 0).validator.keys
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
            await killed(node, paths[0], paths[1])
    async with running_node(paths[0 if is_clean else 1], clock) as node:
        for key, base_offset, count in (("before", 1, 2), ("after", 3, 2)):
            again = await append(node, key, *"x" * count)
            assert (again.base_offset, again.record_count, again.is_duplicate) == (base_offset, count, True)
        with pytest.raises(KeyReused):
            await append(node, "before", "b", request="other")
        if not is_clean:
            await killed(node, paths[1], paths[2])
    async with running_node(paths[0 if is_clean else 2], clock) as node:
        assert (await append(node, "before", "b", "c")).is_duplicate


async def idle(node) -> None:
    await node.shard._background.wait_ended()


async def killed(node, path: Path, copy: Path) -> None:
    """Return the files that a kill would leave of a node's directory now."""
    await idle(node)
    copytree(path, copy, ignore=ignore_patterns("*.tmp"))


async def rolled(node, *keys: str) -> None:
    """Append these, each in a segment of its own."""
    for key in keys:
        await append(node, key, key)
        await node.shard.roll_topic("t")
        await idle(node)


def expired(node) -> None:
    """Expire as housekeeping does every second."""
    partition = node.shard.partition("t", 0)
    partition.validator.expire(node.shard.clock.steady_ms(), partition.settings)


def snapshots_of(node) -> list[int]:
    return snapshot_offsets(node.shard.disk, node.shard.partition("t", 0).log.directory)


async def assert_all_known(node, *keys: str) -> None:
    for key in keys:
        assert (await append(node, key, key)).is_duplicate, key


async def test_snapshots_have_the_keys_of_a_window_together_and_nothing_is_walked(tmp_path, clock, monkeypatch):
    keys = [f"k{n}" for n in range(6)]
    async with running_node(tmp_path, clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await rolled(node, *keys[:5])
        await append(node, keys[5], "x")
    looked_into = []
    monkeypatch.setattr(rebuilding, "_entries_of", lambda *_: looked_into.append(_) or [])
    for _ in range(2):
        async with running_node(tmp_path, clock) as node:
            assert snapshots_of(node) == [1, 2, 3, 4, 5, 6]
            await assert_all_known(node, *keys)
    assert looked_into == []
    async with running_node(tmp_path, clock) as node:
        clock.pass_ms(2 * WINDOW_MS)
        expired(node)
        await rolled(node, "later", "latest")
        assert snapshots_of(node) == [7, 8]
        await assert_all_known(node, "later", "latest")


async def test_keys_of_a_snapshot_that_failed_outlive_their_records(tmp_path, clock, monkeypatch):
    async with running_node(tmp_path, clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        with monkeypatch.context() as patch:
            patch.setattr(
                "engine.cleaning.sealing.save_state", mock.Mock(side_effect=OSError(errno.ENOSPC, "no space"))
            )
            await rolled(node, "k0")
        await rolled(node, "k1", "k2")
        await node.shard.advancer.advance(node.shard.partition("t", 0), Bounds(3, 3))
    async with running_node(tmp_path, clock) as node:
        await assert_all_known(node, "k0", "k1", "k2")


@pytest.mark.parametrize("lost", [2, 5])
async def test_a_snapshot_that_cannot_be_read_is_made_up_for_by_the_log(tmp_path, clock, lost):
    keys = [f"k{n}" for n in range(5)]
    async with running_node(tmp_path, clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await rolled(node, *keys)
        file = Path(node.shard.partition("t", 0).log.directory) / f"{lost:020}.snapshot"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    for _ in range(2):
        async with running_node(tmp_path, clock) as node:
            await assert_all_known(node, *keys)


async def test_with_one_snapshot_the_keys_of_the_others_are_not_lost(tmp_path, clock):
    keys = [f"k{n}" for n in range(5)]
    async with running_node(tmp_path, clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        await rolled(node, *keys)
        partition = node.shard.partition("t", 0)
        await node.shard.delete_before(partition, partition.log_end)
        directory = Path(partition.log.directory)
    (directory / f"{2:020}.snapshot").write_bytes(b"")
    for _ in range(2):
        async with running_node(tmp_path, clock) as node:
            await assert_all_known(node, *(key for key in keys if key != "k1"))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 7), st.integers(0, 1)),
        st.tuples(st.sampled_from(["plain", "roll", "stop", "kill", "pause"]), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_what_is_known_of_keys_is_what_a_dumb_twin_knows(steps):
    """The twin has a list of what was stored. After any stop or kill no key is forgotten within the window."""
    with TemporaryDirectory() as directory:
        asyncio.run(_against_a_twin(Path(directory), steps))


async def _against_a_twin(directory: Path, steps) -> None:
    clock, twin, lives, at = HandClock(), {}, 0, 0
    while at < len(steps):
        async with running_node(directory / str(lives), clock) as node:
            started_ms = clock.now_ms()
            if lives == 0 and at == 0:
                await node.shard.create_topic("t", 1, 1, {})
            while at < len(steps):
                step, key, request = steps[at]
                at += 1
                if step == "append":
                    await _append_as_the_twin_says(node, twin, f"k{key}", f"r{request}", started_ms)
                elif step == "plain":
                    await plain(node, "p")
                elif step == "roll":
                    await node.shard.roll_topic("t")
                elif step == "pause":
                    clock.pass_ms(WINDOW_MS // 4)
                    partition = node.shard.partition("t", 0)
                    partition.validator.expire(clock.steady_ms(), partition.settings)  # as housekeeping, once a second
                elif step == "stop":
                    break
                else:
                    await killed(node, directory / str(lives), directory / str(lives + 1))
                    lives += 1
                    break


async def _append_as_the_twin_says(node, twin, key: str, request: str, started_ms: int) -> None:
    now, log_end = node.shard.clock.now_ms(), node.shard.partition("t", 0).log_end
    known = twin.get(key)
    age = WINDOW_MS * 2 if known is None else now - known[2]
    try:
        appended = await append(node, key, "a", "b", request=request)
    except KeyReused:
        assert min(age, now - started_ms) <= WINDOW_MS * 9 // 8, "it may be known for longer after a start"
        assert known[0] != request
        return
    if age < WINDOW_MS:
        assert (known[0], known[1], True) == (request, appended.base_offset, appended.is_duplicate)
        assert appended.timestamp_ms == known[2]
    elif not appended.is_duplicate:
        assert appended.base_offset == log_end
        twin[key] = (request, log_end, now)


async def test_keys_older_than_the_window_are_not_known_after_a_restart(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await append(node, "k", "a")
        node.shard.clock.pass_ms(2 * WINDOW_MS)
        expired(node)
    async with new_node() as node:
        assert not (await append(node, "k", "a")).is_duplicate


async def test_the_keys_of_a_state_that_went_by_count_are_not_kept_in_its_file(tmp_path, clock):
    """For any number of restarts within a window, although each starts a new window."""
    async with running_node(tmp_path, clock) as node:
        await node.shard.create_topic("t", 1, 1, {"idempotency_keys_max": 8})
    counts: list[int] = []
    for number in range(40):
        async with running_node(tmp_path, clock) as node:
            await rolled(node, f"k{number}")
            counts.append(len(snapshots_of(node)))
    assert max(counts) <= 12, counts
    async with running_node(tmp_path, clock) as node:
        await assert_all_known(node, *(f"k{number}" for number in range(33, 40)))


async def test_a_deleted_topic_leaves_its_room(node):
    await append(node, "k", "a")
    assert node.shard.key_budget.keys == 1
    await node.shard.delete_topic("t")
    assert node.shard.key_budget.keys == 0
    await node.shard.create_topic("t", 1, 1, {})
    assert not (await append(node, "k", "a")).is_duplicate
