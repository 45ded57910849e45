"""Child processes of the demo: started in a session of their own, ended by the pid they were started with.

A session of its own keeps Ctrl-C in the terminal away from a child, so that the demo alone decides in which order
things end; it also makes the child the leader of a group, which is ended as one. Knows nothing of what a child does.
Invariant: whoever leaves `running` or `run_to_end`, however, leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from loadtests.demo.failure import DemoFailed

END_S = 15.0  # a node drains for at most 10 s (shutdown_deadline_ms)
_TAIL_LINES = 12


class Command(NamedTuple):
    """What to run, under which name to report it, and where. Its errors go to `<name>.log` in the directory.

    So do its temporary files: a JVM that is killed leaves some behind, and the directory does not stay.
    """

    name: str
    arguments: Sequence[str]
    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def environment(self) -> dict[str, str]:
        place = str(self.directory)
        java_options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir='{place}'"
        return {**os.environ, "TMPDIR": place, "SPARK_LOCAL_DIRS": place, "JAVA_TOOL_OPTIONS": java_options}


@contextlib.asynccontextmanager
async def running(command: Command) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command while the block runs; then ask it to end, and insist."""
    with command.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command.arguments,
            cwd=command.directory,
            env=command.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        await asyncio.shield(_end(process))


async def run_to_end(command: Command) -> bytes:
    """What the command printed. Raises DemoFailed, with the end of its log, unless it ends with 0."""
    async with running(command) as process:
        printed, _ = await process.communicate()
        if process.returncode != 0:
            raise failure_of(command, f"ended with {process.returncode}")
        return printed


def failure_of(command: Command, what: str) -> DemoFailed:
    lines = command.log.read_text(errors="replace").strip().splitlines()[-_TAIL_LINES:]
    return DemoFailed("\n  ".join([f"{command.name} {what}", *lines]))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the group, then insist. `wait` is over when nobody holds the pipe any more: then all of them are gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
                return
