"""Background tasks: every failure is reported, and those that must run are restarted."""

import asyncio
import gc
import itertools
import logging

import pytest

from engine.errors import StorageFull
from engine.runtime import tasks as background
from engine.runtime.tasks import BackgroundTasks, failures, in_background, keep_running, start_task
from tests.virtual_time import run_in_virtual_time


@pytest.fixture(autouse=True)
def no_failures_yet():
    failures.clear()


def logged(caplog):
    return [(record.doing, record.reason) for record in caplog.records if record.name == "penstock.background"]


async def fail(error):
    raise error


async def test_an_exception_that_ends_a_task_is_logged_counted_and_reported(caplog):
    reported = []
    task = in_background(fail(KeyError("x")), "testing", lambda: reported.append(1), of="t/0")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert logged(caplog) == [("testing", "KeyError('x')")]
    assert caplog.records[0].of == "t/0"
    assert caplog.records[0].exc_info
    assert failures == {"testing": 1}
    assert reported == [1]


async def test_a_cancel_is_no_failure_but_a_cancellation_from_within_is(caplog):
    task = in_background(asyncio.Event().wait(), "waiting")  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert failures.total() == 0
    task = in_background(fail(asyncio.CancelledError()), "testing")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert failures == {"testing": 1}


async def test_a_task_that_nobody_holds_runs_to_its_end():
    """The event loop itself holds tasks by weak references only."""
    ended = asyncio.Event()

    async def work():
        await asyncio.get_running_loop().create_future()  # a future and its task that refer only to each other

    def begin():
        in_background(work(), "testing").add_done_callback(lambda _: ended.set())

    begun_before = set(background._running)  # tasks of loops that were closed stay in it: none of their callbacks ran
    begin()
    await asyncio.sleep(0)
    gc.collect()
    (task,) = background._running - begun_before
    task.cancel()
    await ended.wait()
    assert task not in background._running


def test_a_kept_task_starts_again_after_pauses_that_grow_and_returns_when_its_work_does(caplog):
    began = []

    async def story():
        loop = asyncio.get_running_loop()

        async def work():
            began.append(round(loop.time(), 3))
            if len(began) < 12:
                raise RuntimeError(str(len(began)))

        await keep_running(work, "testing")

    run_in_virtual_time(story())
    pauses = [round(b - a, 3) for a, b in itertools.pairwise(began)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert failures == {"testing": 11}
    assert caplog.records[3].restart_in_s == 0.8


def test_a_kept_task_that_was_steady_starts_again_soon():
    began = []

    async def story():
        loop = asyncio.get_running_loop()

        async def work():
            began.append(loop.time())
            if len(began) == 6:
                return
            await asyncio.sleep(0 if len(began) < 5 else background.STEADY_S)
            raise RuntimeError

        await keep_running(work, "testing")

    run_in_virtual_time(story())
    assert began[5] - began[4] == pytest.approx(background.STEADY_S + background.RESTART_S)


async def test_a_kept_task_is_ended_by_a_cancel_only():
    runs = 0

    async def work():
        nonlocal runs
        runs += 1
        if runs == 1:
            raise asyncio.CancelledError  # from a future that other code cancelled
        await asyncio.Event().wait()

    background.RESTART_S, before = 0.0, background.RESTART_S
    try:
        task = keep_running(work, "testing")
        while runs < 2:
            await asyncio.sleep(0)
    finally:
        background.RESTART_S = before
    task.cancel()
    await asyncio.wait([task])
    assert runs == 2
    assert failures == {"testing": 1}


async def test_what_its_creator_awaits_raises_there_and_is_not_logged(caplog):
    with pytest.raises(KeyError):
        await start_task(fail(KeyError("x")))
    with pytest.raises(StorageFull):
        await BackgroundTasks().finish(fail(StorageFull("full")), "testing")
    assert logged(caplog) == []
    assert failures.total() == 0


async def test_work_continues_when_its_wait_is_cancelled_and_its_failure_is_logged_then(caplog):
    tasks, go = BackgroundTasks(), asyncio.Event()

    async def work():
        await go.wait()
        raise StorageFull("full")

    waiting = asyncio.ensure_future(tasks.finish(work(), "testing"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    go.set()
    await tasks.wait_ended()
    await asyncio.sleep(0)
    assert failures == {"testing": 1}
    assert caplog.records[0].levelno == logging.ERROR
    assert not caplog.records[0].exc_info  # of an expected kind


async def test_an_owner_cancels_its_tasks():
    tasks = BackgroundTasks()
    one = tasks.start(asyncio.sleep(3600), "testing")
    two = tasks.keep(lambda: asyncio.sleep(3600), "testing")
    await asyncio.sleep(0)
    tasks.cancel()
    await tasks.wait_ended()
    assert one.cancelled()
    assert two.cancelled()
    assert failures.total() == 0
