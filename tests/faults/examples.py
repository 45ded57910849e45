"""The producers of docs/examples/ as processes: built if necessary, fed with lines; their output is the evidence.

A producer prints `stored lines 1-20 at 140` for each batch, and exits with 0 when all are stored. They are in the
guide's directory, not in openapi/examples/, which has single requests in the order of a story, not programs.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from time import monotonic

import orjson
import pytest

from tests.checking.history import History
from tests.faults.reference import Job, Refused

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
BUILD = ROOT / "build" / "examples"
STORED = re.compile(r"stored lines (\d+)-(\d+)(?: at (\d+))?")
BUILD_S = 300


def bash() -> Sequence[str]:
    _need("bash", "curl")
    return ["bash", str(EXAMPLES / "produce.sh")]


def node() -> Sequence[str]:
    _need("node")
    return ["node", str(EXAMPLES / "produce.mjs")]


def go() -> Sequence[str]:
    _need("go")
    produce = str(BUILD / "produce-go")
    _build(["go", "build", "-o", produce, "."], EXAMPLES / "go", GOTOOLCHAIN="local")
    return [produce]


def java() -> Sequence[str]:
    _need("java", "javac")
    _build(["javac", "-d", str(BUILD / "java"), "Produce.java"], EXAMPLES / "java")
    return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", str(BUILD / "java"), "Produce"]


def rust() -> Sequence[str]:
    """Build the Rust example. Its one library comes from crates.io; without a network or a local copy the test is
    skipped.
    """
    _need("cargo")
    target = {"CARGO_TARGET_DIR": str(BUILD / "rust")}
    fetched = _run(["cargo", "fetch", "--locked", "--quiet"], EXAMPLES / "rust", target)
    if fetched.returncode:
        pytest.skip(f"cargo cannot fetch ureq: {fetched.stderr[-300:].decode()}")
    _build(["cargo", "build", "--release", "--locked", "--quiet"], EXAMPLES / "rust", **target)
    return [str(BUILD / "rust" / "release" / "produce")]


LANGUAGES: dict[str, Callable[[], Sequence[str]]] = {"bash": bash, "node": node, "go": go, "java": java, "rust": rust}


@cache
def command_of(language: str) -> Sequence[str]:
    """Return the example's command; builds it if necessary. Skips the test when its tools are missing."""
    return LANGUAGES[language]()


def is_there(language: str) -> bool:
    try:
        command_of(language)
    except pytest.skip.Exception:
        return False
    return True


async def run_example(language: str, job: Job, history: History) -> None:
    """Feed the lines, and record each batch as it is printed. All batches count as sent at the start of the process."""
    process = await asyncio.create_subprocess_exec(
        *command_of(language),
        *(job.url, job.topic, str(job.partition)),
        env={**os.environ, "BATCH_LINES": str(job.batch_lines)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    unanswered = {batch[0]: history.begin(job.name, batch, job.partition, monotonic()) for batch in job.batches}
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"".join(orjson.dumps(value) + b"\n" for value in job.values))
        process.stdin.close()
        async for line in process.stdout:
            first, base_offset = _outcome(line.decode(), job)
            unanswered.pop(first).acknowledge(base_offset, monotonic())
        errors = await process.stderr.read()
        if await process.wait() != 0 or unanswered:
            raise Refused(f"{job.name} ended with {process.returncode}: {errors.decode()}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _outcome(line: str, job: Job) -> tuple[str, int | None]:
    match = STORED.fullmatch(line.strip())
    assert match is not None, f"{job.name} printed {line!r}"
    offset = match[3]
    return job.values[int(match[1]) - 1], None if offset is None else int(offset)


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def _build(command: Sequence[str], directory: Path, **environment: str) -> None:
    built = _run(command, directory, environment)
    assert built.returncode == 0, built.stderr.decode()


def _run(command: Sequence[str], directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command, cwd=directory, env={**os.environ, **environment}, capture_output=True, timeout=BUILD_S, check=False
    )
