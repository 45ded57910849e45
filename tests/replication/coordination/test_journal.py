"""The journal of the embedded store: its bytes, the states after a power loss, and damage."""

import asyncio
import errno
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from unittest import mock

import pytest

import replication.coordination
from engine.errors import Corrupt, StartRefused, StorageFailed, StorageFull, TooManyOpenFiles
from engine.runtime.disk import RealDisk, read_file
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk
from replication.cluster.producer_ids import KEY, ProducerIds, StoredBlocks
from replication.coordination import journal as journal_module
from replication.coordination.embedded import EmbeddedStore
from replication.coordination.interface import Create, Delete, Put
from replication.coordination.journal import (
    COMPACT_BYTES,
    HEADER,
    Journal,
    encode_change,
    encode_confirmation,
    encode_full,
    open_journal,
)
from replication.coordination.tree import Entry
from tests.engine.crash.inline_node import InlineExecutor
from tests.engine.crash.power_loss import telling, until_power_is_lost

PATH = "/data/coordination"
FORMAT = Path(replication.coordination.__file__).with_name("FORMAT.md").read_text()


def bytes_of_the_example() -> bytes:
    """Check that each row of the example is at its stated position, and return the bytes."""
    (table,) = re.findall(r"```text journal\n(.*?)```", FORMAT, re.DOTALL)
    data = HEADER
    for line in table.splitlines()[1:]:
        at, row = re.match(r"(\d+) +((?:[0-9a-f]{2} )*[0-9a-f]{2})  ", line).groups()
        assert int(at) == len(data)
        data += bytes.fromhex(row)
    return data


def test_the_example_is_what_is_written_and_is_read_back(tmp_path):
    data = bytes_of_the_example()
    entry = Entry(b"1000", 0, 1)
    assert data == encode_full(0, {}) + encode_change(1, {KEY: entry}) + encode_confirmation(1)
    (tmp_path / "journal").write_bytes(data)
    _, tree = open_journal(RealDisk(), str(tmp_path / "journal"))
    assert (tree.number, tree.entries) == (1, {KEY: entry})


def new_disk() -> RecordingDisk:
    disk = RecordingDisk()
    disk.mkdir("/data")
    disk.fsync_dir("/")
    return disk


async def open_store(disk) -> EmbeddedStore:
    return await EmbeddedStore.open(disk, PATH, InlineExecutor())


async def test_a_store_comes_back_as_it_was(tmp_path):
    disk = new_disk()
    store = await open_store(disk)
    session = store.session()
    await session.commit(Create("/a", b"1"), Create("/b/c", b""), Create("/r", b"", is_ephemeral=True))
    await session.commit(Put("/a", b"2", 0))
    await session.commit(Delete("/b/c", 0))
    created = (await session.get("/a")).created
    await store.close()
    session = (await open_store(disk.snapshot())).session()
    assert await session.get("/a") == (b"2", 1, created)
    assert await session.get("/r") is None, "registrations end with the process"
    assert await session.children("/b") == []
    await session.commit(Create("/r", b"", is_ephemeral=True))
    assert (await session.get("/r")).created > created + 2


class Taken:
    """Takes id blocks and changes keys in several lives, and records the answers."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.values: dict[str, set[bytes | None]] = {}

    async def story(self, disk: RecordingDisk) -> None:
        for _ in range(2):
            store = await open_store(disk)
            session = store.session()
            for _ in range(3):
                self.ids.append(await ProducerIds(StoredBlocks(session)).take())
            for n in range(3):
                await self.put(session, f"/k{n % 2}", b"%d" % len(self.ids) * 900)
            await store.close()

    async def put(self, session, key: str, value: bytes) -> None:
        found = await session.get(key)
        before = None if found is None else found.value
        self.values[key] = {before, value}
        await session.commit(Create(key, value) if found is None else Put(key, value, found.version))
        self.values[key] = {value}

    async def check(self, disk: RecordingDisk) -> None:
        store = await open_store(disk)
        session = store.session()
        for key, may_be in self.values.items():
            found = await session.get(key)
            assert (None if found is None else found.value) in may_be, key
        for _ in range(2):
            assert await ProducerIds(StoredBlocks(session)).take() > max(self.ids, default=-1)


def written_afresh_often():
    return mock.patch.multiple(journal_module, COMPACT_BYTES=3000, COMPACT_FACTOR=1)


async def crashed(limit: int = 12, every: int = 1) -> None:
    """Cut the power at each operation of the story; check every state, with two recoveries."""
    await Taken().story(counted := new_disk())
    first = new_disk().operations
    for n in range(first + 1, counted.operations + 1, every):
        disk, taken = new_disk(), Taken()
        disk.lose_power_after(n)
        with until_power_is_lost(disk):
            await taken.story(disk)
        for number, state in enumerate([disk.snapshot(), *disk.crash_states(limit, Random(n))]):
            with telling(f"operation {n}, state {number}: {state!r}"):
                await taken.check(state)
                await taken.check(state.snapshot())


async def test_no_id_is_given_twice_and_no_change_is_lost_whatever_a_power_loss_leaves():
    with (
        written_afresh_often(),
        mock.patch.object(Journal, "compact", autospec=True, side_effect=Journal.compact) as seen,
    ):
        await crashed()
    assert seen.call_count > 20


def truncate_what_is_damaged(path, data):
    """Planted: a reader that treats any damage as a torn tail, and everything before it as the journal."""
    position = len(HEADER)
    while frame := journal_module._frame_at(data, position):
        yield frame
        position = frame.end


def rename_without_sync(disk, path, data):
    handle = disk.open(path, create=True, writable=True)
    disk.pwritev(handle, [data], 0)
    return handle


@pytest.mark.parametrize(
    ("where", "name", "mutant"),
    [
        (Journal, "_confirm", lambda self, confirmation: self._write(confirmation)),
        (journal_module, "_written", rename_without_sync),
        (Journal, "append", lambda self, number, changes: self._write(encode_change(number, changes))),
    ],
    ids=["nothing is fsynced", "a new journal is not fsynced", "a change is only written"],
)
async def test_a_journal_that_breaks_its_promise_is_caught(where, name, mutant):
    mutated = mock.patch.object(where, name, mutant)
    with written_afresh_often(), mutated, pytest.raises(AssertionError, match="operation"):
        await crashed()


async def three_blocks() -> bytes:
    disk = new_disk()
    store = await open_store(disk)
    for _ in range(3):
        await ProducerIds(StoredBlocks(store.session())).take()
    return read_file(disk, PATH)


def opened(data: bytes):
    disk = new_disk()
    handle = disk.open(PATH, create=True, writable=True)
    disk.pwritev(handle, [data], 0)
    return open_journal(disk, PATH)[1]


async def test_a_changed_byte_never_gives_an_id_twice():
    """For any changed byte the journal is rejected, or nothing that was answered is missing."""
    data = await three_blocks()
    refused = 0
    for at in range(len(data)):
        for changed in (data[at] ^ 0x01, data[at] ^ 0x80, 0):
            if changed == data[at]:
                continue
            try:
                tree = opened(data[:at] + bytes([changed]) + data[at + 1 :])
            except Corrupt:
                refused += 1
            else:
                assert tree.get(KEY).value == b"3000"
    assert refused > len(data)


async def test_a_reader_that_cuts_at_any_damage_is_caught():
    with mock.patch.object(journal_module, "_frames", truncate_what_is_damaged), pytest.raises(AssertionError):
        await test_a_changed_byte_never_gives_an_id_twice()


async def test_the_rest_of_an_unacknowledged_change_is_truncated():
    data = await three_blocks()
    begun = encode_change(4, {KEY: Entry(b"4000", 3, 1)})
    for left in (*(begun[:length] for length in range(1, len(begun))), bytes(100), begun[:-1] + b"\0"):
        assert opened(data + left).get(KEY).value == b"3000"
    assert opened(data + begun).get(KEY).value == b"4000", "whole, so it may have been acted on"


@pytest.mark.parametrize("data", [b"", b"penstock", HEADER, HEADER + bytes(50), encode_full(0, {})[:40]])
def test_a_journal_without_its_beginning_is_refused(data):
    with pytest.raises(Corrupt):
        opened(data)


def test_frames_out_of_turn_are_refused():
    full = encode_full(0, {})
    change = encode_change(1, {})
    for data in (
        full + encode_change(2, {}) + encode_confirmation(2),
        full + change + encode_change(2, {}) + encode_confirmation(2),
        full + change + encode_confirmation(1) + encode_confirmation(1),
    ):
        with pytest.raises(Corrupt):
            opened(data)


async def test_a_damaged_journal_is_a_start_refused_with_what_to_do(tmp_path):
    (tmp_path / "coordination").write_bytes(b"something else")
    with pytest.raises(StartRefused, match="damaged") as refused:
        await EmbeddedStore.open(RealDisk(), str(tmp_path / "coordination"), InlineExecutor())
    assert "backup" in refused.value.hint


async def test_the_journal_stays_small_and_keeps_everything():
    disk = new_disk()
    store = await open_store(disk)
    session = store.session()
    value = bytes(20_000)
    await session.commit(Create("/k", value), Create("/kept", b"x"))
    sizes = []
    for version in range(100):
        await session.commit(Put("/k", b"%d" % version + value, version))
        sizes.append(store._journal.size_bytes)
    assert max(sizes) < COMPACT_BYTES + 3 * len(value)
    session = (await open_store(disk.snapshot())).session()
    assert (await session.get("/k")).version == 100
    assert (await session.get("/kept")).value == b"x"
    assert disk.listdir("/data") == ["coordination"]


async def test_a_full_disk_stores_nothing_and_room_brings_the_store_back():
    for room in range(0, 60, 7):  # too little for the change, or for the change and its confirmation
        disk = FaultyDisk(new_disk())
        session = (await open_store(disk)).session()
        await session.commit(Create("/a", b"1"))
        disk.room_bytes = room
        with pytest.raises(StorageFull):
            await session.commit(Put("/a", b"2", 0))
        assert await session.get("/a") == (b"1", 0, 1)
        disk.room_bytes = None
        await session.commit(Put("/a", b"3", 0))
        session = (await open_store(disk)).session()
        assert (await session.get("/a")).value == b"3"


@pytest.mark.parametrize("rule", [Rule("fdatasync", error=errno.EIO), Rule("pwritev", error=errno.EIO)])
async def test_after_a_failing_disk_nothing_is_written_any_more(rule):
    disk = FaultyDisk(new_disk())
    session = (await open_store(disk)).session()
    await session.commit(Create("/a", b"1"))
    disk.rules = [rule]
    for _ in range(2):
        with pytest.raises(StorageFailed):
            await session.commit(Put("/a", b"2", 0))
        written = disk.count("pwritev")
    assert (await session.get("/a")).value == b"1"
    assert disk.count("pwritev") == written, "tried once"


@pytest.mark.parametrize(("operation", "continues"), [("fdatasync", True), ("rename", False), ("fsync_dir", False)])
async def test_a_journal_that_cannot_be_rewritten_continues_or_stops(operation, continues):
    disk = FaultyDisk(new_disk())
    session = (await open_store(disk)).session()
    await session.commit(Create("/k", b""))
    disk.rules = [Rule(operation, path="/data" if operation == "fsync_dir" else ".tmp", error=errno.EIO)]
    value, version = bytes(50_000), 0
    try:
        for version in range(12):
            await session.commit(Put("/k", value, version))
        stopped = False
    except StorageFailed:
        stopped = True
    assert stopped == (not continues)
    assert disk.faults == 1
    found = await (await open_store(disk.disk.snapshot())).session().get("/k")
    assert found.version in (version, version + 1)


async def test_a_commit_continues_without_the_caller_who_left():
    disk = new_disk()
    with ThreadPoolExecutor(1) as executor:
        store = await EmbeddedStore.open(disk, PATH, executor)
        commit = asyncio.create_task(store.session().commit(Create("/a", b"")))
        await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        await store.close()
    assert await (await open_store(disk)).session().get("/a") is not None


def test_a_journal_written_afresh_waits_for_a_file_handle_before_it_takes_more():
    """Without a handle the directory cannot be opened for its sync: a power loss could bring the old file back."""
    recording = new_disk()
    disk = FaultyDisk(recording)
    journal, _ = open_journal(disk, PATH)
    journal.append(1, {"/k": Entry(b"one", 0, 1)})
    disk.rules.append(Rule("fsync_dir", times=2, error=errno.EMFILE))
    with pytest.raises(TooManyOpenFiles):
        journal.compact(1, {"/k": Entry(b"one", 0, 1)})
    for state in (recording.snapshot(), *recording.crash_states(12, Random(1))):
        assert open_journal(state, PATH)[1].get("/k").value == b"one"
    with pytest.raises(TooManyOpenFiles):
        journal.append(2, {"/k": Entry(b"two", 1, 1)})
    journal.append(2, {"/k": Entry(b"two", 1, 1)})
    for state in (recording.snapshot(), *recording.crash_states(12, Random(1))):
        assert open_journal(state, PATH)[1].get("/k").value == b"two"
