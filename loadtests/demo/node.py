"""The demo's own node: `penstock serve` on a free port of the loopback, with its data in a directory that will go."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path

from loadtests.demo.processes import Command, failure_of, running

START_S = 60.0
_READY = re.compile(rb"is ready on (\S+)")


def penstock(*arguments: str) -> list[str]:
    """The command of the environment that the demo runs in."""
    return [str(Path(sysconfig.get_path("scripts"), "penstock")), *arguments]


@contextlib.asynccontextmanager
async def running_node(directory: Path) -> AsyncIterator[str]:
    """The URL of a node that runs while the block runs. Raises DemoFailed when it does not start."""
    data = str(directory / "data")
    command = Command("penstock-serve", penstock("serve", "--port", "0", "--data-dir", data), directory)
    async with running(command) as process:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                found = _READY.search(await process.stdout.readline())
        except TimeoutError:
            found = None
        if found is None:
            raise failure_of(command, "did not start")
        yield found[1].decode()
