"""When the watchdog treats a silent process as hung, with a real process and a real link."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.links.link import Answer, handler
from gateway.links.link_client import LinkClient, listen
from node.child_processes import Child
from node.processes.liveness_watchdog import CHECKS, heartbeat, kill_if_silent

SILENT_MS = 1000
Answering = Callable[[Any, bytes], Awaitable[Answer]]
TIMEOUT_S = 60.0


async def never(_: object, __: bytes) -> tuple[None, bytes]:
    await asyncio.Event().wait()
    return None, b""


@asynccontextmanager
async def child_that(
    tmp_path: Path, answers: Callable[[Any, bytes], Awaitable[Answer]]
) -> AsyncIterator[tuple[Child, asyncio.subprocess.Process]]:
    path = str(tmp_path / "socket")
    server, caller = await listen(path, {"heartbeat": handler(object, answers)}), LinkClient(path)
    process = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        yield Child(0, process, await caller.wait_connected_within(TIMEOUT_S), is_ready=True), process
    finally:
        caller.close()
        server.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_one_that_serves_and_is_silent_is_killed(tmp_path):
    async with child_that(tmp_path, never) as (child, process), asyncio.timeout(TIMEOUT_S):
        await kill_if_silent(child, SILENT_MS)
        assert await process.wait() == -signal.SIGKILL


async def test_one_that_answers_is_left_alone(tmp_path):
    answered = 0

    async def counted(arguments: object, payload: bytes) -> tuple[None, bytes]:
        nonlocal answered
        answered += 1
        return await heartbeat(None, payload)

    async with child_that(tmp_path, counted) as (child, process), asyncio.timeout(TIMEOUT_S):
        watch = asyncio.create_task(kill_if_silent(child, SILENT_MS))
        while answered < 2 * CHECKS:
            await asyncio.sleep(0.01)
        assert not watch.done()
        watch.cancel()
        assert process.returncode is None


@pytest.mark.parametrize("lacks", ["is_ready", "link"])
async def test_one_that_has_not_begun_to_serve_may_take_as_long_as_it_takes(tmp_path, lacks):
    async with child_that(tmp_path, never) as (child, process):
        setattr(child, lacks, False if lacks == "is_ready" else None)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await kill_if_silent(child, CHECKS)
        assert process.returncode is None
