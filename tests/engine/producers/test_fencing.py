"""Fencing tokens in one partition: which appends are rejected, also in the plan that sets the token, and after
failures.
"""

import asyncio
import errno
import os

import pytest

from engine.errors import FencingTokenMismatch, StorageFull
from engine.format import batch
from engine.format.control_batch import encode_fence
from engine.producers.appends import AppendConditions
from engine.producers.fencing import NO_FENCE, Fence, Fencing
from engine.producers.snapshots import State, decode_state
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import running_node

TIME_MS = 1_700_000_000_000


def values(*these: bytes) -> bytearray:
    return batch.encode_values(these or [b"1"], TIME_MS)


def setting(token: str) -> bytearray:
    return encode_fence(token, TIME_MS)


class Writer:
    """Queues appends of one partition without waiting, so that they share a plan."""

    def __init__(self, node) -> None:
        self.leader = node.leaders["t", 0]

    def append(self, data: bytearray, carried: str | None = None) -> asyncio.Future:
        conditions = None if carried is None and data[22] & 0x20 == 0 else AppendConditions(fencing_token=carried)
        return self.leader.append(data, Acks.LEADER, conditions)

    @property
    def present(self) -> Fence:
        return self.leader.partition.validator.fencing.present


@pytest.fixture
async def writer(new_node):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        yield Writer(node)


async def outcomes(*appends: asyncio.Future) -> list[int | str | None]:
    """Return base offsets, and for rejected appends the token that fenced them."""
    found = await asyncio.gather(*appends, return_exceptions=True)
    assert all(not isinstance(one, BaseException) or isinstance(one, FencingTokenMismatch) for one in found), found
    return [one.members["fencing_token"] if isinstance(one, BaseException) else one.base_offset for one in found]


async def test_in_one_plan_a_token_counts_from_its_place_on(writer):
    append = writer.append
    found = await outcomes(
        append(values()),
        append(setting("a")),
        append(values()),
        append(values(), "a"),
        append(setting("b"), "a"),
        append(values(), "a"),
        append(setting("c"), "a"),
        append(values(), "b"),
        append(setting("")),
        append(values(), "b"),
        append(values()),
    )
    assert found == [0, 1, "a", 2, 3, "b", "b", 4, 5, None, 6]
    assert writer.present == Fence("", 5)


async def test_a_token_whose_write_failed_is_not_in_force(tmp_path, clock):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {})
        writer = Writer(node)
        await writer.append(setting("a"))
        disk.rules = [Rule("pwritev", path=".log", error=errno.ENOSPC)]
        failed = [writer.append(setting("b")), writer.append(values(), "b"), writer.append(values(), "a")]
        for outcome in await asyncio.gather(*failed, return_exceptions=True):
            assert isinstance(outcome, StorageFull)
        assert writer.present == Fence("a", 0)
        assert await outcomes(writer.append(values(), "b"), writer.append(values(), "a")) == ["a", 1]


@pytest.mark.parametrize("token", ["a", ""])
async def test_what_retention_takes_of_a_token_is_kept_and_the_log_comes_to_rest(new_node, token):
    async with new_node() as node:
        await node.shard.create_topic("t", 1, 1, {})
        await node.shard.mark_fenced(node.shard.partition("t", 0))
        writer = Writer(node)
        await outcomes(writer.append(setting("before")), writer.append(setting(token)))
        partition = node.shard.partition("t", 0)
        await partition.watermark.polls.wait_for(2)
        for _ in range(3):
            await node.shard.delete_before(partition, partition.log_end)
        assert partition.log.log_start == partition.log_end == 2, "nothing was written to say it again"
        await saved_states(node)  # all saves have ended
        directory = partition.log.directory
    for name in os.listdir(directory):
        if name.endswith(".snapshot"):
            os.unlink(os.path.join(directory, name))
    async with new_node() as node:
        assert Writer(node).present == Fence(token, 1)
        await node.shard.mark_fenced(node.shard.partition("t", 0))
    async with new_node() as node:
        assert Writer(node).present == Fence(token, 1)


async def saved_states(node) -> list[State]:
    await node.shard._background.wait_ended()
    directory = node.shard.partition("t", 0).log.directory
    disk = node.shard.disk
    found = []
    for name in disk.listdir(directory):
        if name.endswith(".snapshot"):
            handle = disk.open(f"{directory}/{name}")
            found.append(decode_state(disk.pread(handle, 10_000, 0), int(name.split(".")[0])))
            disk.close(handle)
    return found


async def test_a_control_batch_that_is_not_understood_sets_nothing(writer):
    unknown = batch.encode([(TIME_MS, bytes([0, 0, 0, 1]), b"commit", [])])
    batch.mark_control(unknown)
    await writer.append(unknown)
    assert writer.present == NO_FENCE
    fencing = Fencing()
    broken = batch.encode([(TIME_MS, b"?", b"", [])])
    batch.mark_control(broken)
    fencing.replay(bytes(broken), 0)
    assert fencing.present == NO_FENCE
