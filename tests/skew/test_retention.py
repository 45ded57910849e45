"""No clock makes records expire before their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.format import batch
from engine.testing.recording_disk import RecordingDisk
from engine.topic_settings import TopicSettings
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, Node, running_node

RETENTION_MS = TopicSettings().retention_ms or 0
STEPS_MS = [2 * RETENTION_MS, -2 * RETENTION_MS, 365 * 86_400_000]


async def filled(node: Node, pause_ms: int = 0) -> None:
    """Return a partition with three sealed segments of one record each, and one record in the active segment."""
    await node.shard.create_topic("t", 1, 1, {})
    for number in range(4):
        await node.leaders["t", 0].append(batch.encode_values([b"value"], 5), Acks.LEADER)
        if number < 3:
            await node.shard.roll_topic("t")
            node.shard.clock.pass_ms(pause_ms)
    await node.shard._background.wait_ended()


def expired(node: Node) -> int:
    return node.shard.deletion.expired(node.shard.partition("t", 0)).log_start


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_a_step_of_the_clock_expires_nothing(tmp_path: Path, step_ms: int) -> None:
    clock = HandClock()
    async with running_node(tmp_path, clock) as node:
        await filled(node)
        clock.ms += step_ms
        assert expired(node) == 0
        clock.pass_ms(RETENTION_MS + 1)
        assert expired(node) == 3


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_a_clock_that_is_set_while_the_node_is_stopped_expires_nothing(tmp_path: Path, step_ms: int) -> None:
    clock = HandClock()
    disk = RecordingDisk(clock)
    async with running_node(tmp_path, clock, disk) as node:
        await filled(node, RETENTION_MS // 4)
    clock.ms += step_ms
    clock.restart()
    async with running_node(tmp_path, clock, disk.snapshot()) as node:
        assert expired(node) == 0
        clock.pass_ms(RETENTION_MS // 2 + 1)
        assert expired(node) == 2, "the age of each goes on where it was"


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_a_roll_after_a_step_of_the_clock_ages_nothing(tmp_path: Path, step_ms: int) -> None:
    clock = HandClock()
    disk = RecordingDisk(clock)
    async with running_node(tmp_path, clock, disk) as node:
        await filled(node)
        clock.ms += step_ms
        await node.shard.roll_topic("t")
        await node.shard._background.wait_ended()
    clock.restart()
    async with running_node(tmp_path, clock, disk.snapshot()) as node:
        assert expired(node) == 0


async def test_a_segment_from_the_future_is_rolled_by_age(tmp_path: Path) -> None:
    """The clock was ahead by a year when the segment was written, and has been corrected since."""
    clock = HandClock()
    disk = RecordingDisk(clock)
    clock.ms += 365 * 86_400_000
    async with running_node(tmp_path, clock, disk) as node:
        await filled(node)
    clock.ms -= 365 * 86_400_000
    clock.restart()
    async with running_node(tmp_path, clock, disk.snapshot()) as node:
        partition = node.shard.partition("t", 0)
        clock.pass_ms(partition.settings.segment_ms)
        assert partition.log.is_due_to_roll(partition.settings, clock.steady_ms())
