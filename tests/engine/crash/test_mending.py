"""Power losses while a damaged segment is quarantined and repaired: afterwards it is quarantined or good, never
torn.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from engine.cleaning.quarantine import LocalPartition
from engine.cleaning.segment_check import examine
from engine.errors import Damaged
from engine.format import batch as record_batch
from engine.format.checksum import at_once
from engine.runtime.disk import RealDisk, read_file
from engine.testing.recording_disk import RecordingDisk
from engine.tiering.manifest.chain import commit
from engine.tiering.manifest.manifest import append, first_manifest, successor
from engine.tiering.reading.repair import restore_segment
from engine.tiering.shipping.local_log import SealedSegment
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.upload import upload_segment
from engine.tiering.store.store import ObjectStore, open_store
from tests.engine.crash.inline_node import InlineNode, inline_node
from tests.engine.crash.power_loss import telling, until_power_is_lost
from tests.engine.crash.teller import ALL, Teller

PREFIX = "cluster/t/id/0/"


class Mending:
    """A cleanly stopped node with a changed byte in a sealed segment, and the store's copy of it."""

    def __init__(self) -> None:
        self.teller = Teller()
        self.disk = RecordingDisk(self.teller.clock)
        self.is_locked_up = self.is_mended = False

    async def play(self) -> Mending:
        async def steps(teller: Teller) -> None:
            await teller.create("t", 1)
            await teller.append("t", (0, 5000, ALL), (0, 5000, ALL), (0, 5000, ALL))
            await teller.roll("t")

        await self.teller.life(self.disk, steps)
        self.disk = self.disk.snapshot()
        self.path = next(path for path, _ in self.disk._tree.files() if path.endswith("0.log"))
        self.good = read_file(self.disk, self.path)
        self.bad = bytes([*self.good[:6000], self.good[6000] ^ 1, *self.good[6001:]])
        handle = self.disk.open(self.path, writable=True)
        self.disk.pwritev(handle, [self.bad], 0)
        self.disk.fdatasync(handle)
        self.disk.close(handle)
        return self

    def ship(self, directory: Path) -> ObjectStore:
        """Put the segment into a store as it was sealed."""
        store = open_store((directory / "store").as_uri())
        (local := directory / "good.log").write_bytes(self.good)
        end = max(header.next_offset for _, header in record_batch.walk(self.good))
        segment = SealedSegment(0, end, str(local), len(self.good))
        entry = upload_segment(store, RealDisk(), PREFIX, Upload(segment, 0), 0, lambda: f"{1:032x}")
        first = first_manifest(PREFIX, 0, "w", 0)
        commit(store, first)
        commit(store, append(successor(first, 0, "w"), entry))
        return store

    async def mend(self, disk: RecordingDisk, store: ObjectStore) -> None:
        self.is_locked_up = self.is_mended = False
        async with inline_node(disk, self.teller.clock) as node:
            node.kill()
            partition = node.shard.partition("t", 0)
            own = LocalPartition("id", partition, node.shard.quarantine)
            if partition.offline is not None:
                raise partition.offline
            (file, *_) = await own.list_sealed_files()
            assert await own.report(file, examine(disk, file, at_once))
            self.is_locked_up = True
            path = restore_segment(store, disk, PREFIX, file)
            self.is_mended = await own.repair(file, path)
            assert await self.found(node) == self.good

    async def found(self, node: InlineNode) -> bytes | None:
        """Return what is read of the segment; None if the read is rejected."""
        partition = node.shard.partition("t", 0)
        assert partition.offline is None
        try:
            return bytes((await node.shard.reader.read(partition, 0, 1 << 20)).data)
        except Damaged:
            return None

    async def check(self, disk: RecordingDisk) -> None:
        data = read_file(disk, self.path)
        assert data in (self.good, self.bad)
        async with inline_node(disk, self.teller.clock) as node:
            node.kill()
            damage = node.shard.partition("t", 0).log.segments[0].damage
            assert not self.is_mended or (data == self.good and not damage)
            assert damage or data == self.good or not self.is_locked_up


@pytest.fixture
async def mending() -> Mending:
    return await Mending().play()


async def test_every_crash_state_of_a_repair_is_locked_up_or_good(mending, tmp_path):
    store = mending.ship(tmp_path)
    await mending.mend(counted := mending.disk.snapshot(), store)
    assert mending.is_mended
    for n in range(1, counted.operations + 1):
        disk = mending.disk.snapshot()
        disk.lose_power_after(n)
        with until_power_is_lost(disk):
            await mending.mend(disk, store)
        for number, state in enumerate([disk.snapshot(), *disk.crash_states(8, Random(n))]):
            with telling(f"operation {n}, state {number}: {state!r}"):
                await mending.check(state)
