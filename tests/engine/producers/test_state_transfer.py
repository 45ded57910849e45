"""A replica that starts in the middle of a log validates appends like one that has copied all of it."""

import os
from pathlib import Path

import pytest

from engine.errors import Corrupt
from engine.format import batch as record_batch
from engine.format.control_batch import encode_fence
from engine.format.keyed_batch import KeyEntry, SourceEntry, stored_entry
from engine.producers.append_validator import AppendValidator
from engine.producers.appends import AppendConditions
from engine.producers.fence_file import load_fence
from engine.producers.fencing import NO_FENCE, Fence
from engine.producers.snapshots import State, save_state, snapshot_offsets
from engine.producers.state_transfer import encoded, import_state, take_snapshot
from engine.runtime.disk import RealDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, running_node

OLD, BOTH, NEW, REBORN = 1, 2, 3, 4  # a producer that wrote early; throughout; late; early, and late with a new epoch
KEYS = [b"early".ljust(16), b"late".ljust(16)]
SOURCE = b"source".ljust(16)
RECORDS = 2  # per batch


class Whole:
    """A log with all validator state, and its batches."""

    def __init__(self, node) -> None:
        self.partition = node.shard.partition("t", 0)
        self._node = node
        self._leader = node.leaders["t", 0]
        self._now_ms = node.shard.clock.now_ms()
        self._token: str | None = None

    async def fill(self) -> None:
        await self._node.shard.mark_fenced(self.partition)
        for n in range(4):
            for producer in (OLD, BOTH, REBORN):
                await self._sequenced(producer, n)
        await self._keyed(KEYS[0])
        await self._sourced(0, 4)
        await self._fence("first")
        for n in range(14):
            await self._sequenced(BOTH, 4 + n)
        await self._fence("second")
        await self._keyed(KEYS[1])
        await self._sourced(5, 9)
        for n in range(3):
            await self._sequenced(NEW, n)
            await self._sequenced(REBORN, n, epoch=1)

    @property
    def batches(self) -> list[tuple[record_batch.Header, bytes]]:
        data = b"".join(Path(segment.path).read_bytes() for segment in self.partition.log.segments)
        return [(header, data[at : at + header.size_bytes]) for at, header in record_batch.walk(data)]

    async def producer_state(self, offset: int) -> bytes:
        """Return the transferred state for a log that starts there."""
        begin, data = await self._node.shard.export_producer_state(self.partition, offset)
        assert begin == offset
        return data

    async def _append(self, data: bytearray, key: KeyEntry | None = None, source: SourceEntry | None = None) -> None:
        conditions = AppendConditions(key=key, fencing_token=self._token, source=source)
        await self._leader.produce(data, Acks.ALL, 5000, conditions)

    async def _sequenced(self, producer: int, n: int, epoch: int = 0) -> None:
        data = record_batch.encode_values([b"value"] * RECORDS, self._now_ms)
        record_batch.stamp_sequence(data, producer, epoch, n * RECORDS)
        await self._append(data)

    async def _keyed(self, key: bytes) -> None:
        entry = KeyEntry(key, b"request".ljust(16), 1, self._now_ms)
        data = record_batch.encode_values([b"a", b"b"], 5, record_batch.Codec.NONE, entry=stored_entry(entry))
        await self._append(data, entry)

    async def _sourced(self, first: int, last: int) -> None:
        entry = SourceEntry(SOURCE, first, last, self._now_ms)
        await self._append(record_batch.encode_values([b"a"], 5, entry=stored_entry(entry)), source=entry)

    async def _fence(self, token: str) -> None:
        await self._append(encode_fence(token, self._now_ms))
        self._token = token


def knowledge(of: AppendValidator) -> tuple[object, ...]:
    """Return the state without how many records each producer stored before its last 16 batches, which may be lower."""
    producers = {known: (one.epoch, list(one.batches)) for known, one in of.producers.items()}
    known = [of.keys.window.find(key) for key in KEYS]
    sources = {known: list(one.batches) for known, one in of.sources.items()}
    return producers, of.fencing.present, [one and one._replace(since_ms=None) for one in known], sources


@pytest.fixture
async def whole(tmp_path, clock):
    async with running_node(tmp_path / "whole", clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        found = Whole(node)
        await found.fill()
        yield found


async def begun(path: Path, clock: HandClock, whole: Whole, offset: int) -> AppendValidator:
    """Return the state of a replica that starts at an offset and copies from there."""
    data = await whole.producer_state(offset)
    async with running_node(path / f"begun{offset}", clock) as node:
        await node.shard.create_topic("t", 1, 1, {})
        partition = node.shard.partition("t", 0)
        await node.shard.reset_log(partition, offset, 0, data)
        copies = b"".join(batch for header, batch in whole.batches if header.base_offset >= offset)
        if copies:
            await node.shard.committer.append_as_follower(partition, copies, wants_sync=True)
        assert partition.log_end == whole.partition.log_end
        return partition.validator


async def test_wherever_it_begins_it_knows_as_much_as_who_has_all(tmp_path, clock, whole):
    ends = [header.next_offset for header, _ in whole.batches]
    assert len(ends) > 30
    for offset in (0, *ends):
        found = await begun(tmp_path, clock, whole, offset)
        assert knowledge(found) == knowledge(whole.partition.validator), offset
        assert 16 * RECORDS <= found.producers[BOTH].record_count <= 18 * RECORDS


async def test_nothing_of_the_records_that_it_will_copy_is_handed_over(whole):
    """Otherwise each of them would be taken for a repeat of itself."""
    first = whole.batches[0][0].base_offset
    state = AppendValidator("t/0")
    forgotten = max(whole.partition.validator.producers.ids())  # unknown until their batches are copied
    handed_over = take_snapshot(whole.partition.validator, first)
    assert encoded(handed_over) == encoded(take_snapshot(state, first)._replace(forgotten_id_max=forgotten))


async def test_what_cannot_be_read_is_not_believed_and_changes_nothing(tmp_path, whole):
    disk, directory = RealDisk(), str(tmp_path / "log")
    os.mkdir(directory)
    save_state(disk, directory, State(7))
    data = bytearray(encoded(take_snapshot(whole.partition.validator, 20)))
    data[-1] ^= 1
    with pytest.raises(Corrupt, match="producer state before offset 20 cannot be read"):
        import_state(disk, directory, 20, bytes(data))
    assert snapshot_offsets(disk, directory) == [7]


async def test_what_was_known_of_the_log_before_goes_and_the_token_outlives_the_snapshot(tmp_path, clock, whole):
    disk, directory, end = RealDisk(), str(tmp_path / "log"), whole.partition.log_end
    os.mkdir(directory)
    save_state(disk, directory, State(7))
    import_state(disk, directory, end, encoded(take_snapshot(whole.partition.validator, end)))
    assert snapshot_offsets(disk, directory) == [end]
    present = whole.partition.validator.fencing.present
    assert load_fence(disk, directory) == present == Fence("second", present.offset)
    assert present != NO_FENCE


async def test_a_beginning_within_a_batch_is_that_batch_s(whole, clock, tmp_path):
    """Records are deleted below any offset; batches are copied as units."""
    header, _ = whole.batches[5]
    assert header.next_offset - header.base_offset > 1
    begin, data = await whole._node.shard.export_producer_state(whole.partition, header.base_offset + 1)
    assert begin == header.base_offset
    assert data == encoded(take_snapshot(whole.partition.validator, begin))


async def test_nothing_handed_over_is_nothing_known(tmp_path, clock, whole):
    """This log's own state is about deleted records."""
    await whole._node.shard.reset_log(whole.partition, 500, 500)
    assert knowledge(whole.partition.validator) == knowledge(AppendValidator("t/0"))
    assert snapshot_offsets(RealDisk(), whole.partition.log.directory) == []
