"""Child processes of the demo: the node, the ingest job, Spark's report.

Each child starts in its own session. Ctrl-C in the terminal does not reach it, so the demo controls the order in which
processes end. The child leads a process group, and signals go to the group. Invariant: `running`, `running_node` and
`run_to_end` leave no process behind, also after an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sysconfig
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from loadtests.demo import DemoFailed
from loadtests.demo.flights import EVENT_TIME

START_S = 300.0  # generous, for a busy machine
END_S = 60.0  # a node drains for at most 10 s (shutdown_timeout_ms)
_TAIL_LINES = 12
_READY = re.compile(rb"is ready on (\S+)")

# One task, so that an hour's fifty flights make one file, not one for each task. Creating the small files is nearly all
# of the work: three tasks on two cores take twice as long, and so does reading the table.
_ONE_TASK = ("--master", "local[1]", "--task-bytes", str(1 << 28))


class Command(NamedTuple):
    """A command, its name and its directory. Its errors go to `<name>.log` in the directory.

    Its temporary files are there too: a killed JVM leaves some behind, and the directory is removed.
    """

    name: str
    arguments: Sequence[str]
    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def environment(self) -> dict[str, str]:
        scratch = str(self.directory)
        java_options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir='{scratch}'"
        return {**os.environ, "TMPDIR": scratch, "SPARK_LOCAL_DIRS": scratch, "JAVA_TOOL_OPTIONS": java_options}


@contextlib.asynccontextmanager
async def running(command: Command) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a command during the block; then stops it with SIGTERM, and SIGKILL after a timeout."""
    with command.log.open("wb") as log:
        start = asyncio.create_subprocess_exec(
            *command.arguments,
            cwd=command.directory,
            env=command.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        starting = asyncio.ensure_future(start)
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:  # the child runs before its start is reported
            await _end(await starting)
            raise
    try:
        yield process
    finally:
        await asyncio.shield(_end(process))


async def run_to_end(command: Command) -> bytes:
    """Returns the output of the command. Raises DemoFailed with the end of its log unless it exits with 0."""
    async with running(command) as process:
        printed, _ = await process.communicate()
        if process.returncode != 0:
            raise failure_of(command, f"ended with {process.returncode}")
        return printed


def failure_of(command: Command, what: str) -> DemoFailed:
    lines = command.log.read_text(errors="replace").strip().splitlines()[-_TAIL_LINES:]
    return DemoFailed("\n  ".join([f"{command.name} {what}", *lines]))


def penstock(*arguments: str) -> list[str]:
    """Returns the command line of `penstock` in this environment."""
    return [str(Path(sysconfig.get_path("scripts"), "penstock")), *arguments]


@contextlib.asynccontextmanager
async def running_node(directory: Path) -> AsyncIterator[str]:
    """Runs a node during the block; yields its URL. Raises DemoFailed if it does not start."""
    data = str(directory / "data")
    command = Command("penstock-serve", penstock("serve", "--port", "0", "--data-dir", data), directory)
    async with running(command) as process:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                ready = _READY.search(await process.stdout.readline())
        except TimeoutError:
            ready = None
        if ready is None:
            raise failure_of(command, "did not start")
        yield ready[1].decode()


class Ingested(NamedTuple):
    """The report of the command; `seconds` includes the start of Spark."""

    rows: int
    dead_letters: int
    files: int
    seconds: float


async def ingest(store: str, topic: str, output: Path, directory: Path) -> Ingested:
    """Runs the job once. Raises DemoFailed."""
    arguments = ["--store", store, "--topics", topic, "--output", output.as_uri(), "--event-time", EVENT_TIME, "--json"]
    started = time.perf_counter()
    printed = await run_to_end(Command("penstock-ingest", penstock("ingest", "run", *arguments, *_ONE_TASK), directory))
    document = orjson.loads(printed)
    return Ingested(document["rows"], document["dead_letters"], document["files"], time.perf_counter() - started)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Sends SIGTERM to the process group; when its leader has ended, or is late, kills what is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
