"""Nodes of a cluster on this machine: `penstock serve` processes that differ in number, rack and directory."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_S = 300.0  # generous, for a busy machine
STOP_S = 100.0
RACKS = "abcdefghi"
_READY = re.compile(r"is ready on (\S+)")


class NodeFailed(Exception):
    """A node did not start. The text is its log."""


def command_module(source: Path) -> str:
    """Returns the module of the command in a checkout: `cli.main` before the package `penstock` existed."""
    return "penstock.cli.main" if (source / "penstock" / "cli").is_dir() else "cli.main"


class ClusterNode:
    """One node as a process. `settings` are flags by name; True is a switch, a list repeats its flag. A stopped or
    killed node can be started again, also with other `settings`, or other code: `source` is its checkout.
    """

    def __init__(
        self,
        node_id: int,
        directory: Path,
        coordination: str,
        settings: Mapping[str, object],
        source: Path = ROOT,
    ) -> None:
        self.node_id = node_id
        self.source = source
        self.data = directory / f"node-{node_id}"
        self.rack = RACKS[(node_id - 1) % len(RACKS)]
        self.url = ""
        self._output = directory / f"node-{node_id}.out"
        self.settings: dict[str, object] = {
            "node-id": node_id,
            "rack": self.rack,
            "coordination": coordination,
            "data-dir": self.data,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"ClusterNode({self.node_id}, {self.url})"

    @property
    def _flags(self) -> list[str]:
        return [text for name, value in self.settings.items() for text in _flag(name, value)]

    @property
    def command(self) -> str:
        """The command line as a user types it."""
        return shlex.join([penstock(), "serve", *self._flags])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def errors(self) -> str:
        return self._output.with_suffix(".err").read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin_start(self) -> None:
        """Starts without waiting, in its own session: Ctrl-C reaches only its parent, which stops nodes in turn."""
        with self._output.open("wb") as out, self._output.with_suffix(".err").open("ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", command_module(self.source), "serve", *self._flags],
                cwd=self.source,
                env={**os.environ, "PYTHONPATH": str(self.source)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def wait_until_ready(self) -> str:
        """Returns the URL. Raises NodeFailed."""
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            ready = _READY.search(self._output.read_text())
            if ready:
                self.url = ready[1]
                return self.url
            time.sleep(0.02)
        raise NodeFailed(f"node {self.node_id} did not start: {self.errors.strip()[-2000:]}")

    def begin_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Sends SIGTERM; returns the exit code."""
        assert self._process is not None
        self.begin_stop()
        return self._process.wait(STOP_S)

    def wait_until_ended(self) -> int:
        """Returns the exit code of a node that ends by itself."""
        assert self._process is not None
        return self._process.wait(STOP_S)

    def kill(self) -> None:
        """Kills the supervisor and its processes at once, as a machine crash would; the page cache survives."""
        if self._process is not None:
            kill_all(self._process)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the supervisor and all its processes: SIGSTOP pauses a node, SIGCONT resumes it."""
        assert self._process is not None
        for pid in (self._process.pid, *_children(self._process.pid)):
            _send(pid, number)


def kill_all(supervisor: subprocess.Popen[bytes]) -> None:
    """Kills a node's processes at once, and returns when the last has ended: until then its files may change."""
    if supervisor.poll() is not None:
        return
    _send(supervisor.pid, signal.SIGSTOP)  # otherwise it would restart its processes
    pids = _children(supervisor.pid)
    for pid in (*pids, supervisor.pid):
        _send(pid, signal.SIGKILL)
    supervisor.wait()
    deadline = time.monotonic() + STOP_S
    while any(map(_is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _flag(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, list):
        return [text for item in value for text in (flag, str(item))]
    return [flag] if value is True else [flag, str(value)]


def penstock() -> str:
    """Returns the command beside this interpreter, relative to this directory."""
    command = Path(sys.executable).with_name("penstock")
    return str(command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command)


def port_or_free(port: int) -> int:
    """Returns the port if it is free, else 0: the node chooses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
