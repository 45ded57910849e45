"""A disk that fails at any call: callers get a definite answer, no partial result is visible, other work continues.

The story appends, rolls, checkpoints and deletes in two partitions; a rule fails the n-th call of one operation, for
every n. Then the live node is judged and killed, and the state after a healthy restart is judged as after a crash.
"""

import errno
from contextlib import suppress

import pytest

from engine.errors import EngineError, StorageFailed, TooManyOpenFiles
from engine.format import batch
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk
from tests.engine.crash.power_loss import EVERY, telling
from tests.engine.crash.teller import ALL, HOUR_MS, LEADER, Teller

WRITING = ("pwritev", "fdatasync", "fsync_dir", "truncate", "open", "rename")  # a full disk fails these
OPERATIONS = ["pwritev", "fdatasync", "fsync_dir", "truncate", "open", "rename", "unlink", "stat", "pread", "close"]


class FaultTeller(Teller):
    """Interprets definite errors: rejected means not stored, failed means possibly stored, and any other error is a
    bug.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[EngineError] = []

    async def attempt(self, number: int, size_bytes: int, acks: object) -> None:
        ledger = self.ledgers["t", number]
        sent = list(ledger.sent)
        try:
            await self.append("t", (number, size_bytes, acks))
        except EngineError as error:
            self.errors.append(error)
            if error.no_side_effects:
                ledger.sent = sent

    async def housekeeping(self, *, expire: bool) -> None:
        """Do the ticker's work; it logs failures and retries."""
        with suppress(EngineError):
            await self.node.shard.roll_topic("t")
        await self.node.idle()
        with suppress(OSError):
            self.checkpoint()
        for number in (0, 1) if expire else ():
            if self.node.shard.partition("t", number).offline is None:
                with suppress(OSError):
                    await self.expire("t", number)

    async def check_live(self) -> None:
        """Check that all readable data is whole batches, in order, of what was sent."""
        for (topic, number), ledger in self.ledgers.items():
            partition = self.node.shard.partition(topic, number)
            if partition.offline is not None:
                continue
            offset, data = partition.log.local_log_start, b""
            while chunk := await self.node.shard.reader.read(partition, offset, 10_000):
                data, offset = data + chunk.data, chunk.next_offset
            readable = range(partition.log.local_log_start, partition.high_watermark)
            expected = [b for b in ledger.batches() if b[0] in readable]
            assert data == b"".join(b[2] for b in expected), f"{topic}/{number}"


async def story(teller: FaultTeller) -> None:
    await teller.create("t", 2, retention_ms=HOUR_MS)
    for number in (0, 1):
        await teller.attempt(number, 300, ALL)
        await teller.attempt(number, 5000, LEADER)
    await teller.housekeeping(expire=False)
    teller.clock.pass_ms(2 * HOUR_MS)
    for _ in range(3):
        await teller.attempt(0, 30_000, LEADER)
        await teller.attempt(1, 50, ALL)
    await teller.housekeeping(expire=True)
    await teller.attempt(0, 50, ALL)
    await teller.attempt(1, 50, LEADER)
    await teller.check_live()


async def sequel(teller: FaultTeller) -> None:
    """Steps of the next life, which reads the files of the first one."""
    for number in (0, 1):
        await teller.attempt(number, 50, ALL)
    await teller.housekeeping(expire=True)
    await teller.check_live()


async def play(*rules: Rule) -> tuple[FaultyDisk, FaultTeller]:
    teller = FaultTeller()
    disk = FaultyDisk(RecordingDisk(teller.clock), rules)
    with suppress(OSError, EngineError):  # a start or a stop that fails ends the process with these
        await teller.life(disk, story)
        await teller.life(disk, sequel)
    return disk, teller


@pytest.mark.parametrize(
    ("operation", "error"),
    [(operation, errno.EIO) for operation in OPERATIONS]
    + [pytest.param(operation, errno.ENOSPC, marks=pytest.mark.slow) for operation in WRITING],
)
async def test_an_operation_that_fails_once_anywhere(operation, error):
    """EIO and ENOSPC begin with another call, so that the strides do not hit the same ones."""
    n = 1 - EVERY if error == errno.EIO else 2 - EVERY
    while True:
        n += EVERY
        disk, teller = await play(Rule(operation, first=n, error=error))
        if not disk.faults:
            break
        with telling(f"{operation} number {n} fails: {next(call for call in disk.calls if call.error)}"):
            check_syncs(disk)
            await teller.check(disk.disk.snapshot())
    assert n > 2, "the story never does that"


@pytest.mark.parametrize("stride", [6] if EVERY > 1 else [6, 1])
async def test_an_open_for_which_no_file_is_free_is_refused_and_takes_nothing_offline(stride, monkeypatch):
    """For each open in appends, rolls, checkpoints, deletions and starts."""
    monkeypatch.setattr("engine.runtime.file_retries.PAUSE_S", 0)  # this test has no timers
    n = 1
    while True:
        n += stride
        disk, teller = await play(Rule("open", first=n, error=errno.EMFILE))
        if not disk.faults:
            break
        with telling(f"open number {n} fails: {next(call for call in disk.calls if call.error)}"):
            if teller.node is not None:  # else the data directory could not be opened, and nothing was started
                assert not [one for one in teller.node.shard.partitions() if one.offline is not None]
            assert all(isinstance(error, TooManyOpenFiles) and error.no_side_effects for error in teller.errors)
            check_syncs(disk)
            await teller.check(disk.disk.snapshot())
    assert n > 100, "the story opens files"


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["pwritev", "fdatasync", "fsync_dir", "open"])
async def test_a_disk_that_dies_at_any_moment(operation):
    n = 1 - EVERY
    while True:
        n += EVERY
        disk, teller = await play(Rule(operation, first=n, times=None, error=errno.EIO))
        if not disk.faults:
            return
        with telling(f"{operation} fails from number {n} on"):
            check_syncs(disk)
            await teller.check(disk.disk.snapshot())


async def test_short_writes_of_every_kind_leave_nothing():
    for first, write_bytes in enumerate((0, 1, 60, 61, 4096)):
        n = 1 + first % EVERY - EVERY
        while True:
            n += EVERY
            disk, teller = await play(Rule("pwritev", first=n, write_bytes=write_bytes))
            if not disk.faults:
                break
            with telling(f"write number {n} takes {write_bytes} bytes"):
                await teller.check(disk.disk.snapshot())


def check_syncs(disk: FaultyDisk) -> None:
    """Check that a file with a failed fsync is fsynced again in the same life only if it was rewritten completely."""
    failed: set[str] = set()
    for call in disk.calls:
        if call.operation == "lock":
            failed.clear()  # a new life
        if call.operation == "truncate" and not call.path.endswith(".log"):
            failed.discard(call.path)  # a small file is rewritten this way
        if call.operation == "fdatasync":
            assert call.path not in failed, f"{call.path} was fsynced again"
            if call.error is not None:
                failed.add(call.path)


async def test_after_a_failed_fsync_a_partition_is_offline_until_a_restart_and_the_others_continue():
    teller = FaultTeller()
    disk = FaultyDisk(RecordingDisk(teller.clock))

    async def steps(teller: FaultTeller) -> None:
        await teller.create("t", 2)
        await teller.append("t", (0, 50, ALL), (1, 50, ALL))
        disk.rules = [Rule("fdatasync", "/0/", error=errno.EIO)]
        await teller.attempt(0, 50, ALL)
        assert isinstance(teller.errors[-1], StorageFailed)
        assert not teller.errors[-1].no_side_effects
        syncs = disk.count("fdatasync", "/0/")
        await teller.append("t", (1, 50, ALL))
        for acks in (ALL, LEADER):
            with pytest.raises(StorageFailed):
                await teller.append("t", (0, 50, acks))
        with pytest.raises(StorageFailed):
            await teller.node.shard.committer.roll(teller.node.shard.partition("t", 0))
        await teller.node.shard.committer.wait_drained()
        assert disk.count("fdatasync", "/0/") == syncs
        await teller.append("t", (1, 50, ALL))
        teller.node.kill()

    await teller.life(disk, steps)
    await teller.check(disk.disk.snapshot())
    await teller.life(disk.disk.snapshot(), lambda teller: teller.append("t", (0, 50, ALL), (1, 50, ALL)))


async def test_reads_that_fail_are_definite_and_cost_nothing_but_themselves():
    teller = FaultTeller()
    disk = FaultyDisk(RecordingDisk(teller.clock))

    async def steps(teller: FaultTeller) -> None:
        await teller.create("t", 1)
        await teller.append("t", (0, 50, ALL))
        partition, reader = teller.node.shard.partition("t", 0), teller.node.shard.reader
        disk.rules = [Rule("pread_nowait", error=errno.EIO)]
        with pytest.raises(EngineError) as failed:
            await reader.read(partition, 0, 100)
        assert (failed.value.code, failed.value.no_side_effects) == ("storage_failed", True)
        assert batch.decode((await reader.read(partition, 0, 100)).data)
        await teller.append("t", (0, 50, ALL))
        assert reader.failed_reads == 1
        ((name, (count, reason)),) = reader.failures.items()
        assert (name, count) == (("t", 0), 1)
        assert "Input/output error" in reason

    await teller.life(disk, steps)
