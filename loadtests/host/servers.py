"""Starts the processes under test on free loopback ports, and ends them. Each prints its address on its first line.

If a server does not start, or dies, the error has the end of its log.
"""

from __future__ import annotations

import contextlib
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_S = 300.0  # generous, for a busy machine
STOP_S = 20.0
_READY = re.compile(r"is ready on (http://\S+)")
_LOG_TAIL_BYTES = 2000


class ServerFailed(Exception):
    """A server did not start, or exited. The text has the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server process."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def check_alive(self) -> None:
        """Raises ServerFailed with the end of its log."""
        if self.process.poll() is not None:
            raise ServerFailed(f"{self.name} ended with {self.process.returncode}\n{tail(self.log)}")


@contextlib.contextmanager
def penstock(directory: Path, *flags: str, flush_delay_ms: int = 0) -> Iterator[Server]:
    """Runs `penstock serve` with its data below a directory, with a delay of each fdatasync if given."""
    command = Path(sys.executable).with_name("penstock")
    start = [str(command)] if command.exists() else [sys.executable, "-m", "penstock.cli.main"]
    data = directory / "penstock-data"
    if flush_delay_ms:
        start = [sys.executable, "-m", "loadtests.peers.slow_flush", str(flush_delay_ms)]
        data = directory / f"penstock-data-{flush_delay_ms}"
    with _running("penstock", [*start, "serve", "--port", "0", "--data-dir", str(data), *flags], directory) as server:
        yield server


@contextlib.contextmanager
def bare_append(directory: Path) -> Iterator[Server]:
    """Runs the bare function, loadtests/peers/bare_append.py. Its file is `bare_file(directory)`."""
    command = [sys.executable, "-m", "loadtests.peers.bare_append", "--file", str(bare_file(directory))]
    with _running("bare-append", command, directory) as server:
        yield server


def bare_file(directory: Path) -> Path:
    return directory / "bare.log"


@contextlib.contextmanager
def _running(name: str, command: list[str], directory: Path) -> Iterator[Server]:
    log = directory / f"{name}.stderr"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    try:
        yield Server(name, _wait_ready(name, process, log), process, log)
    finally:
        end(process)


def _wait_ready(name: str, process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline().decode() if readable else ""
    match = _READY.search(line)
    if match is None:
        raise ServerFailed(f"{name} did not start within {START_S:.0f} s: {line}\n{tail(log)}")
    return match[1]


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def tail(log: Path) -> str:
    """Returns the end of a log, for an error."""
    return log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
