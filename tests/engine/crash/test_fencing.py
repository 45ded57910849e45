"""Power losses while fencing tokens are set and removed: an answered change stays in force in every disk state."""

from unittest import mock

import pytest

from engine.errors import FencingTokenMismatch
from engine.format import batch
from engine.format.control_batch import encode_fence
from engine.producers.appends import AppendConditions
from engine.shard import record_deletion, shard
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node
from tests.engine.crash.power_loss import check_story
from tests.engine.crash.teller import HOUR_MS


class Fenced:
    """Sets tokens in two lives, with rolls and expiry between them; knows the tokens that may be in force."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.may_be = {""}
        self.token = ""

    async def story(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, self.clock) as node:
            await node.shard.create_topic("t", 1, 1, {"retention_ms": HOUR_MS})
            await self.append(node)
            await self.set_token(node, "a")
            await self.append(node)
            await self.roll(node)
            node.checkpoint()
            await self.set_token(node, "b")
            await self.append(node)
            for _ in range(3):  # the snapshots that know "b" only from the scan are the ones that stay
                await self.roll(node)
                await self.append(node)
            await self.roll(node)
            self.clock.pass_ms(2 * HOUR_MS)
            await self.append(node)
            await node.expire(node.shard.partition("t", 0))
            await self.append(node)
        async with inline_node(disk, self.clock) as node:
            await self.append(node)
            await self.set_token(node, "")
            await self.append(node)
            await self.set_token(node, "c")
            await node.idle()

    async def set_token(self, node, token: str) -> None:
        partition = node.shard.partition("t", 0)
        self.may_be = {self.token, token}
        await node.shard.mark_fenced(partition)
        await self.acknowledged(node, encode_fence(token, self.clock.ms), AppendConditions(fencing_token=self.token))
        self.token, self.may_be = token, {token}

    async def append(self, node) -> None:
        conditions = AppendConditions(fencing_token=self.token) if self.token else None
        await self.acknowledged(node, batch.encode_values([b"x" * 300], self.clock.ms), conditions)

    async def acknowledged(self, node, data: bytearray, conditions: AppendConditions | None) -> None:
        leader = node.leaders["t", 0]
        await leader.acknowledge(leader.append(data, Acks.ALL, conditions), Acks.ALL, 5000)

    async def roll(self, node) -> None:
        await node.shard.roll_topic("t")
        await node.idle()

    async def check(self, disk: RecordingDisk) -> None:
        await self.check_token(disk.snapshot())
        await self.check_token(without_snapshots(disk))

    async def check_token(self, disk: RecordingDisk) -> None:
        async with inline_node(disk, HandClock()) as node:
            node.kill()
            if "t" not in node.shard.topics:
                assert self.may_be == {""}
                return
            partition = node.shard.partition("t", 0)
            assert partition.offline is None
            token = partition.validator.fencing.present.token
            assert token in self.may_be
            for wrong in {"", "other"} - {token}:
                with pytest.raises(FencingTokenMismatch):
                    await self.acknowledged(
                        node, batch.encode_values([b"1"], 5), AppendConditions(fencing_token=wrong or None)
                    )


def without_snapshots(state: RecordingDisk) -> RecordingDisk:
    """Remove the snapshots: they are derived, so a start works without them."""
    for path, _ in list(state._tree.files()):
        if path.endswith(".snapshot"):
            state.unlink(path)
    return state


async def crashed(every: int, limit: int) -> None:
    await check_story(Fenced, every=every, limit=limit)


async def test_a_token_that_was_answered_is_in_force_whatever_a_power_loss_leaves():
    await crashed(every=7, limit=3)


async def keep_nothing(disk, executor, partition, below):
    """Planted: drops the control batch that sets the token."""


async def note_without_file(disk, executor, partition):
    """Planted: a start does not know that the log has a token."""


@pytest.mark.parametrize(
    ("where", "name", "mutant"),
    [(record_deletion, "save_fence_below", keep_nothing), (shard, "mark_fenced", note_without_file)],
    ids=["the token goes with its segment", "a start does not look for a token"],
)
async def test_a_token_that_could_be_lost_is_caught(where, name, mutant):
    with mock.patch.object(where, name, mutant), pytest.raises(AssertionError, match="operation"):
        await crashed(every=7, limit=3)
