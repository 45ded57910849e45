"""Starts servers on loopback ports, waits until they answer, and ends them: only processes that were started here."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtests.host.servers import end, tail

HOST = "127.0.0.1"
START_S = 120.0  # a JVM on a busy machine
CALL_S = 30.0
_POLL_S = 0.05


class PeerFailed(Exception):
    """A server did not start, ended, or answered with an error. The text has the end of its log or its answer."""


def free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def connect(port: int) -> socket.socket:
    """Returns a blocking connection whose calls time out."""
    connection = socket.create_connection((HOST, port), timeout=CALL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


@contextlib.contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a server until the end of the block. Raises PeerFailed if it does not listen."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        _wait_listening(process, port, log)
        yield process
    finally:
        end(process)


def _wait_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PeerFailed(f"{process.args!r} ended with {process.returncode}\n{tail(log)}")
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(_POLL_S)
    raise PeerFailed(f"{process.args!r} did not listen within {START_S:.0f} s\n{tail(log)}")
