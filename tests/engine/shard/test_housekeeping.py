"""The log output of housekeeping on a disk that keeps failing, and the effect of a stop on its work."""

import asyncio
import errno
import inspect
import logging
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from engine.format.batch import encode_values
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.runtime.tasks import BackgroundTasks
from engine.shard import housekeeping
from engine.shard.housekeeping import Housekeeping
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, running_node
from tests.waiting import until

LONG_S = 30.0


class Keeper:
    """Fails this many times for each of these reasons, then saves."""

    def __init__(self, errors: list[OSError]) -> None:
        self.errors = errors
        self.saved = asyncio.Event()

    async def fill_spares(self) -> None:
        """No-op: the disk has room."""

    async def save_checkpoints(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.saved.set()


async def test_a_failing_checkpoint_is_logged_once_for_each_reason(monkeypatch, caplog):
    monkeypatch.setattr(housekeeping, "TICK_S", 0.001)
    caplog.set_level(logging.INFO, "penstock.engine")
    full, failing = OSError(errno.ENOSPC, "No space left"), OSError(errno.EIO, "Input/output error")
    log_manager: Any = Keeper([full, full, full, failing, failing, full])
    nothing: Any = SimpleNamespace()
    keeping = Housekeeping(tuple, nothing, log_manager, SystemClock(), lambda _: None, BackgroundTasks())
    ticking = asyncio.create_task(keeping.run())
    async with asyncio.timeout(LONG_S):
        await log_manager.saved.wait()
        log_manager.errors, log_manager.saved = [full], asyncio.Event()
        await log_manager.saved.wait()
    ticking.cancel()
    reasons = [str(error) for error in (full, failing, full, full)]
    assert [line.reason for line in caplog.records if line.message == "checkpoint failed"] == reasons  # type: ignore[attr-defined]


async def test_an_expiry_that_is_cancelled_before_its_first_step_is_closed(monkeypatch):
    monkeypatch.setattr(housekeeping, "TICK_S", 0.001)

    class Stopping(BackgroundTasks):
        def start(self, *args: Any, **named: Any) -> asyncio.Task[None]:
            task = super().start(*args, **named)
            task.cancel()
            return task

    class Partition:
        offline = settings = loaded_index = None
        name = "t"

        def __init__(self) -> None:
            self.log = self.active = self.validator = self

        def is_due_to_roll(self, *_: object) -> bool:
            return False

        def expire(self, *_: object) -> None:
            """No-op: nothing is expired."""

    works: list[Coroutine[Any, Any, None]] = []

    def expiry(_: object) -> Coroutine[Any, Any, None]:
        works.append(asyncio.sleep(0))
        return works[-1]

    log_manager: Any = Keeper([])
    one: Any = Partition()
    nothing: Any = SimpleNamespace()
    keeping = Housekeeping(lambda: [one], nothing, log_manager, SystemClock(), expiry, Stopping())
    ticking = asyncio.create_task(keeping.run())
    async with asyncio.timeout(LONG_S):
        await log_manager.saved.wait()
    ticking.cancel()
    await asyncio.wait([ticking])
    assert works
    assert {inspect.getcoroutinestate(work) for work in works} == {inspect.CORO_CLOSED}


async def test_an_expiry_that_a_deletion_overtakes_is_no_failure(monkeypatch, caplog, tmp_path):
    """The files are deleted with their topic: a failed removal of them needs no warning."""
    monkeypatch.setattr(housekeeping, "TICK_S", 0.001)
    clock, disk = HandClock(), FaultyDisk(RealDisk())
    async with running_node(tmp_path / "data", clock, disk) as node:
        await node.shard.create_topic("t", 1, 1, {"retention_ms": 60_000})
        for _ in range(2):
            await node.leaders["t", 0].produce(bytearray(encode_values([b"v"], 5)), Acks.ALL, 60_000)
            await node.shard.roll_topic("t")
        await node.shard.sealer.wait_saved(node.shard.partition("t", 0))
        disk.rules = [Rule("unlink", ".log", delay_s=0.2)]
        clock.pass_ms(100_000)
        async with asyncio.timeout(LONG_S):
            while not disk.rules[0].matched:
                await asyncio.sleep(0.001)
            await node.shard.delete_topic("t")
    assert "retention failed" not in caplog.messages


async def test_a_topic_with_times_in_seconds_is_logged_once(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(housekeeping, "TICK_S", 0.001)
    async with running_node(tmp_path, HandClock()) as node:
        for topic, time_ms in (("seconds", 1_385_053_862), ("small", 5), ("milliseconds", 1_385_053_862_000)):
            await node.shard.create_topic(topic, 2, 1, {})
            for number in range(2):
                await node.leaders[topic, number].produce(bytearray(encode_values([b"1"], time_ms)), Acks.ALL, 60_000)
        await until(lambda: any("seconds" in line.message for line in caplog.records))
        await asyncio.sleep(0.02)
    lines = [line for line in caplog.records if "sends seconds" in line.message]
    assert [(line.topic, line.timestamp) for line in lines] == [("seconds", 1_385_053_862)]  # type: ignore[attr-defined]
