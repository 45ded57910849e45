"""A redis-server with an append-only file, and its streams. The file is written before each answer; whether it is also
synced is switched while the server runs.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtests.peers.processes import HOST, PeerFailed, connect, free_port, running
from loadtests.peers.redis_wires import command

OPTIONS = ["--appendonly", "yes", "--appendfsync", "no", "--save", "", "--auto-aof-rewrite-percentage", "0"]
APPENDFSYNC = {False: b"no", True: b"always"}


@contextlib.contextmanager
def redis(program: Path, directory: Path) -> Iterator[RedisServer]:
    """Runs a server with its data below a directory. Raises PeerFailed."""
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    port = free_port()
    start = [str(program), "--port", str(port), "--bind", HOST, "--dir", str(data), *OPTIONS]
    with running(start, port, directory / "redis.log") as process:
        yield RedisServer(process.pid, port)


def redis_version(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.partition("v=")[2].split()[0]


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running server."""

    pid: int
    port: int

    def set_fsync(self, *, is_fsync: bool) -> None:
        """Raises PeerFailed."""
        self._call(b"CONFIG", b"SET", b"appendfsync", APPENDFSYNC[is_fsync])

    def delete(self, stream: str) -> None:
        """Raises PeerFailed."""
        self._call(b"DEL", stream.encode())

    def entries(self, stream: str) -> int:
        """Raises PeerFailed."""
        return int(self._call(b"XLEN", stream.encode()).removeprefix(b":"))

    def _call(self, *words: bytes) -> bytes:
        """Sends one command whose reply is one line. Raises PeerFailed."""
        with connect(self.port) as connection:
            connection.sendall(command(*words))
            line = connection.makefile("rb").readline()
        if not line or line.startswith(b"-"):
            raise PeerFailed(f"{words!r}: {line!r}")
        return line.strip()
