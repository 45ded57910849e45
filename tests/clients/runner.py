"""Drives a story runner: a process with one client, which takes commands as lines and answers each by its `id`.

A command ends with `done` or `error`; before that come its `record` lines. `stop` ends one that runs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest

from tests.checking.history import History
from tests.clients.runners.jumping.go_clock import jumping_go
from tests.faults.reference import Job, Refused

ROOT = Path(__file__).parents[2]
RUNNERS = Path(__file__).parent / "runners"
JUMPING = RUNNERS / "jumping"
CLOCK_OF_PYTHON = "tests.clients.runners.jumping.sitecustomize"  # which Python imports by itself, from JUMPING
TYPESCRIPT = ROOT / "clients" / "typescript"
BUILD = ROOT / "build" / "clients"
BUILD_S = 300
ORIGIN = "http://localhost:1"  # of the page in tests/clients/runners/browser.py
CLIENT_MODULE = os.environ.get("PENSTOCK_CLIENT", str(TYPESCRIPT / "dist" / "index.js"))
GO_OVERLAY = os.environ.get("PENSTOCK_GO_OVERLAY")  # of tests/clients/mutants.py: other files in place of the client's
ANSWER_S = float(os.environ.get("PENSTOCK_ANSWER_S", "120"))
LANGUAGES = ("python", "typescript", "go")


class RunnerError(Exception):
    """The error of a command, as the client has it."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error))
        self.code: str = error["code"]
        self.error = error


@cache
def command_of(language: str) -> Sequence[str]:
    """Return the command of a runner; builds what it needs. Raises FileNotFoundError without the language's tools."""
    match language:
        case "python" | "python-jumping":
            return [sys.executable, "-m", "tests.clients.runners.runner"]
        case "typescript" | "typescript-jumping" | "deno" | "bun":
            if not Path(CLIENT_MODULE).exists():
                raise FileNotFoundError("make clients-tests builds the TypeScript client")
            jumping = ["node", "--import", str(RUNNERS / "jumping" / "clock.mjs")]
            nodes = {"typescript": ["node"], "typescript-jumping": jumping}
            start = (nodes | {"deno": ["deno", "run", "-A"], "bun": ["bun"]})[language]
            return [*_tool(start[0]), *start[1:], str(RUNNERS / "runner.mjs")]
        case "browser":
            python = Path(os.environ.get("PENSTOCK_BROWSER_PYTHON", ROOT / ".venv-console" / "bin" / "python"))
            if not python.exists():
                raise FileNotFoundError("PENSTOCK_BROWSER_PYTHON has playwright; make console-tests makes one")
            return [str(python), "-m", "tests.clients.runners.browser"]
        case "go" | "go-fast" | "go-jumping":
            if shutil.which("go") is None:
                raise FileNotFoundError("go is not installed")
            return [_built_go(language)]
    raise ValueError(language)


def _built_go(language: str) -> str:
    BUILD.mkdir(parents=True, exist_ok=True)
    options, name = (["-race"] if language == "go" else []), f"runner-{language}"
    if language == "go-jumping":
        options = ["-overlay", str(jumping_go(BUILD / "jumping", GO_OVERLAY))]
    elif GO_OVERLAY:
        options, name = ["-overlay", GO_OVERLAY], f"runner-mutant-{os.getpid()}"
    built = str(BUILD / name)
    subprocess.run(["go", "build", *options, "-o", built, "."], cwd=RUNNERS / "go", check=True, timeout=BUILD_S)
    return built


def _tool(name: str) -> list[str]:
    path = shutil.which(name, path=f"{TYPESCRIPT / 'node_modules' / '.bin'}:{os.environ['PATH']}")
    if path is None:
        raise FileNotFoundError(f"{name} is not installed")
    return [path]


def environment(language: str, url: str, **given: str) -> dict[str, str]:
    clock = {"PYTHONPATH": str(JUMPING)} if language == "python-jumping" else {}
    return {**os.environ, "PENSTOCK_URL": url, "PENSTOCK_CLIENT": CLIENT_MODULE, **clock, **given}


class Runner:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Queue[Any]] = {}
        self._reading = asyncio.create_task(self._read())

    async def begin(self, do: str, **arguments: object) -> int:
        """Send a command and return its id."""
        number = next(self._numbers)
        self._answers[number] = asyncio.Queue()
        self._write({"id": number, "do": do, **arguments})
        return number

    async def records(self, number: int, records: int) -> list[Any]:
        """Wait for this many records of a command."""
        return [await self._next(number, "record") for _ in range(records)]

    def available(self, number: int) -> list[Any]:
        """Return the records of a command that have come."""
        answers = self._answers[number]
        return [answers.get_nowait()["record"] for _ in range(answers.qsize())]

    async def done(self, number: int, records: list[Any] | None = None) -> Any:
        """Wait for the end of a command; adds its records to the list. Raises RunnerError."""
        while True:
            async with asyncio.timeout(ANSWER_S):
                line = await self._answers[number].get()
            if "record" in line and records is not None:
                records.append(line["record"])
            if "error" in line:
                raise RunnerError(line["error"])
            if "done" in line:
                return line["done"]

    async def run(self, do: str, **arguments: object) -> Any:
        return await self.done(await self.begin(do, **arguments))

    def stop(self, number: int) -> None:
        self._write({"do": "stop", "stop": number})

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._reading.cancel()

    def _write(self, command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(command) + b"\n")

    async def _next(self, number: int, kind: str) -> Any:
        async with asyncio.timeout(ANSWER_S):
            line = await self._answers[number].get()
        assert kind in line, line
        return line[kind]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for text in self._process.stdout:
            line = orjson.loads(text)
            self._answers[line["id"]].put_nowait(line)
        for answers in self._answers.values():
            answers.put_nowait({"error": {"code": "the runner has ended"}})


@asynccontextmanager
async def running(language: str, url: str, **given: str) -> AsyncIterator[Runner]:
    """Start a runner. `given` becomes its environment: PENSTOCK_TOKEN, PENSTOCK_ATTEMPT_MS, PENSTOCK_DEADLINE_MS."""
    try:
        command = command_of(language)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=environment(language, url, **given),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=2**24,
    )
    runner = Runner(process)
    try:
        yield runner
    finally:
        await runner.close()


async def produce_job(language: str, job: Job, history: History) -> None:
    """Store the values of a story of tests/faults, each an append of its own."""
    produced = [history.begin(job.name, [value], job.partition, monotonic()) for value in job.values]
    records = [{"value": value, "partition": job.partition} for value in job.values]
    options = {"batchBytes": 200, "lingerMs": 2}
    async with running(language, job.url) as runner:
        try:
            positions = await runner.run("produce", topic=job.topic, records=records, options=options)
        except RunnerError as error:
            raise Refused(f"{job.name}: {error}") from error
    for write, (_, offset) in zip(produced, positions, strict=True):
        write.acknowledge(offset, monotonic())
