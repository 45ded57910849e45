"""Shipping when calls fail, answers are lost, the process crashes, or two leaders ship at once."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest

from engine.errors import EngineError
from engine.tiering.manifest.chain import load_newest
from engine.tiering.shipping.local_log import LocalLog
from engine.tiering.store.file_store import FileStore
from engine.tiering.store.store import ObjectStore
from gateway.links.link import Busy, LinkLost
from tests.engine.tiering.making import PREFIX, local_log
from tests.engine.tiering.shipping_scene import (
    WIDTH,
    Source,
    check_reported,
    check_store,
    iter_ids,
    newest,
    sealed,
    ship_through,
)
from tests.engine.tiering.stores import FAILS, LOSES, Watched
from tests.waiting import until

T = TypeVar("T")

# Faults at every call


@pytest.mark.parametrize("fault", [FAILS, LOSES])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_fault_at_any_call_neither_loses_nor_doubles(file_store, tmp_path, make, fault, restarts):
    """Call k fails, or succeeds with its answer lost; then the process continues or is restarted (F23, F25)."""
    segments = sealed(tmp_path, 3)
    counted = Watched(file_store)
    await make(counted, Source(local_log(segments))).ship_once()
    calls = len(counted.calls)
    assert calls > 20
    for k in range(calls):
        store = Watched(FileStore(f"{tmp_path}/store-{k}", new_id=iter_ids()))
        store.decide = lambda number, method, key, k=k: fault if number == k else None  # type: ignore[misc]
        source = Source(local_log(segments))
        shipper = make(store, source)
        if restarts:
            try:
                await shipper.ship_once()
            except EngineError:
                check_reported(store, source)
                shipper = make(store, source)
        await ship_through(shipper)
        check_store(store, segments)
        check_reported(store, source)


async def test_a_failure_of_any_kind_is_reported_and_tried_again(file_store, tmp_path, make, caplog):
    """Before the fix an exception other than EngineError and OSError ended shipping silently."""
    segments, kinds = sealed(tmp_path, 2), [KeyError, OSError, KeyError]
    source = Source(local_log(segments))
    local, seen = source.local_log, []

    async def fails_at_first(above: int) -> LocalLog:
        seen.append(shipper.statistics())
        if kinds:
            raise kinds.pop(0)("planted")
        return await local(above)

    source.local_log = fails_at_first  # type: ignore[method-assign]
    shipper = make(file_store, source)
    shipping = asyncio.ensure_future(shipper.run())
    await until(lambda: shipper.statistics().shipped_segments >= 2)
    shipping.cancel()
    check_store(file_store, segments)
    errors = [one.last_error for one in seen[1:4]]
    assert errors == ["KeyError: 'planted'", "OSError: planted", "KeyError: 'planted'"]
    assert [one.state for one in seen[1:4]] == ["backing off"] * 3
    messages = [record.message for record in caplog.records]
    assert messages.count("background task failed") == 2
    assert messages.count("shipping a partition failed and is retried") == 3


class Crash(BaseException):
    """The process has crashed."""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_leaves_a_store_that_the_next_start_completes(file_store, tmp_path, make, when):
    segments = sealed(tmp_path, 2)
    counted = Watched(file_store)
    await make(counted, Source(local_log(segments))).ship_once()
    for k in range(len(counted.calls)):
        inner = FileStore(f"{tmp_path}/store-{k}", new_id=iter_ids())
        crashing = Crashing(inner, k, when)
        source = Source(local_log(segments))
        with pytest.raises(Crash):
            await make(crashing, source).ship_once()
        before = load_newest(inner, PREFIX)
        assert all(end <= (before.end_offset if before else 0) for end in source.reported)
        await make(inner, source, writer="after the crash").ship_once()
        check_store(inner, segments)


class Crashing(Watched):
    def __init__(self, inner: ObjectStore, k: int, when: str) -> None:
        super().__init__(inner)
        self._k, self._when = k, when

    def relay(self, method: str, key: str, do: Callable[[], T]) -> T:
        is_now = len(self.calls) == self._k
        if is_now and self._when == "before":
            raise Crash
        try:
            return super().relay(method, key, do)
        finally:
            if is_now:
                raise Crash


async def test_a_cancel_at_any_moment_is_harmless(file_store, tmp_path, make):
    segments = sealed(tmp_path, 3)
    for steps in range(0, 60, 3):
        store = FileStore(f"{tmp_path}/store-{steps}", new_id=iter_ids())
        source = Source(local_log(segments))
        shipper = make(store, source)
        running = asyncio.ensure_future(shipper.ship_once())
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await ship_through(shipper)
        check_store(store, segments)
        assert source.reported[-1] == 3 * WIDTH


async def test_a_random_storm_of_faults_ends_with_everything_shipped_once(file_store, tmp_path, make):
    segments = sealed(tmp_path, 6)
    for seed in range(15):
        random = Random(seed)
        store = Watched(FileStore(f"{tmp_path}/storm-{seed}", new_id=iter_ids()))
        store.decide = lambda number, method, key, random=random: random.choice([FAILS, LOSES] + [None] * 12)  # type: ignore[misc]
        source = Source(local_log(segments))
        await ship_through(make(store, source), attempts=500)
        store.decide = lambda number, method, key: None
        check_store(store, segments)
        check_reported(store, source)


# Several leaders


async def test_a_zombie_leader_is_fenced_and_stops(file_store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    old_source = Source(local_log(segments[:1]))
    old = make(file_store, old_source, epoch=1, writer="old")
    await old.ship_once()
    await make(file_store, Source(local_log(segments[:2])), epoch=2, writer="new").ship_once()
    old_source.local = local_log(segments)
    running = asyncio.ensure_future(old.run())
    await until(lambda: old.statistics().state == "fenced")
    running.cancel()
    assert "leader epoch 1 is over" in str(old.statistics().last_error)
    assert old_source.reported == [0, WIDTH]
    check_store(file_store, segments[:2])


async def test_two_leaders_that_ship_in_parallel_leave_one_log(store, tmp_path, make):
    """F24: both upload the same segments; the manifest accepts each range once, and the older leader ends fenced."""
    segments = sealed(tmp_path, 8)
    sources = {epoch: Source(local_log(segments)) for epoch in (1, 2)}
    shippers = {epoch: make(store, source, epoch=epoch, writer=f"leader {epoch}") for epoch, source in sources.items()}
    running = {epoch: asyncio.ensure_future(shipper.run()) for epoch, shipper in shippers.items()}
    await until(lambda: sources[2].reported and sources[2].reported[-1] >= 8 * WIDTH)
    for task in running.values():
        task.cancel()
    await asyncio.gather(*running.values(), return_exceptions=True)
    check_store(store, segments)
    assert newest(store).leader_epoch == 2
    for source in sources.values():
        assert source.reported == sorted(source.reported)


@pytest.mark.parametrize("error", [Busy("it starts"), LinkLost("it ended")])
async def test_a_process_that_starts_or_stops_logs_nothing_for_each_partition(
    file_store, tmp_path, make, caplog, error
):
    source = Source(local_log(sealed(tmp_path, 1)))
    local, left = source.local_log, [error]

    async def fails_once(above: int) -> LocalLog:
        if left:
            raise left.pop()
        return await local(above)

    source.local_log = fails_once  # type: ignore[method-assign]
    shipper = make(file_store, source)
    shipping = asyncio.ensure_future(shipper.run())
    await until(lambda: shipper.statistics().shipped_segments >= 1)
    shipping.cancel()
    assert not left
    assert caplog.messages == []
