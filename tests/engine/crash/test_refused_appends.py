"""An append refused for want of space was not stored: not then, not after a kill, and not after a power loss."""

from __future__ import annotations

from random import Random

import pytest

from engine.errors import StorageFull
from engine.testing.recording_disk import RecordingDisk
from tests.engine.crash.power_loss import telling
from tests.engine.crash.teller import ALL, LEADER, Teller


class SmallDisk(RecordingDisk):
    """Takes `room_bytes` more of writes, the last one short, when that is set."""

    room_bytes: int | None = None

    def pwritev(self, handle, buffers, position):
        data = b"".join(buffers)
        if self.room_bytes is not None:
            data = data[: self.room_bytes]
            self.room_bytes -= len(data)
        return super().pwritev(handle, [data], position)


async def refused(teller: Teller, disk: SmallDisk, room_bytes: int, *sends) -> None:
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


# With nothing written, within a batch, after a whole batch, and after rolling to new segments.
@pytest.mark.parametrize("room_bytes", [0, 5000, 15_200, 40_000, 64_000, 80_000])
async def test_a_refused_group_leaves_nothing(room_bytes):
    teller = Teller()
    disk = SmallDisk(teller.clock)

    async def steps(teller: Teller) -> None:
        await teller.create("t", 1)
        await teller.append("t", (0, 50, ALL))
        await teller.append("t", (0, 50, LEADER))
        await refused(teller, disk, room_bytes, *[(0, 15_000, LEADER)] * 6)
        await check_all(disk, teller)
        await teller.append("t", (0, 50, ALL), (0, 70_000, ALL))
        await check_all(disk, teller)

    await teller.life(disk, steps)
