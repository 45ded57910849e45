"""An append rejected for lack of space is never stored: not at the time, not after a kill, and not after a power
loss.
"""

from random import Random

import pytest

from engine.errors import StorageFull
from engine.testing.faulty_disk import FaultyDisk
from engine.testing.recording_disk import RecordingDisk
from tests.engine.crash.power_loss import telling
from tests.engine.crash.teller import ALL, LEADER, Teller


async def refused(teller: Teller, disk: FaultyDisk, room_bytes: int, *sends) -> None:
    sent = list(teller.ledgers["t", 0].sent)
    disk.room_bytes = room_bytes
    with pytest.raises(StorageFull):
        await teller.append("t", *sends)
    await teller.node.idle()
    disk.room_bytes = None
    teller.ledgers["t", 0].sent = sent


async def check_all(disk: RecordingDisk, teller: Teller) -> None:
    for state in (disk.snapshot(), *disk.crash_states(60, Random(1))):
        with telling(repr(state)):
            await teller.fork().check(state)


# Before the first byte, within a batch, after a batch, and after rolls to new segments.
@pytest.mark.parametrize("room_bytes", [0, 5000, 15_200, 40_000, 64_000, 80_000])
async def test_a_refused_group_leaves_nothing(room_bytes):
    teller = Teller()
    recording = RecordingDisk(teller.clock)
    disk = FaultyDisk(recording)

    async def steps(teller: Teller) -> None:
        await teller.create("t", 1)
        await teller.append("t", (0, 50, ALL))
        await teller.append("t", (0, 50, LEADER))
        await refused(teller, disk, room_bytes, *[(0, 15_000, LEADER)] * 6)
        await check_all(recording, teller)
        await teller.append("t", (0, 50, ALL), (0, 70_000, ALL))
        await check_all(recording, teller)

    await teller.life(disk, steps)
