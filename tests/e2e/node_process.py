"""`penstock serve` as a real process: started, queried, stopped, killed. The starting code always ends it.

This file does not know HTTP. A node picks a free port itself and prints its URL when it is ready.
"""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from loadtests.cluster.nodes import kill_all

ROOT = Path(__file__).parents[2]
READY = re.compile(r"penstock is ready on (?P<url>\S+?://(?:\[\S+?\]|[^:/]+):(?P<port>\d+))")
START_S = 300  # generous: the machine may be busy with other tests
STOP_S = 100


class NodeProcess:
    """A running node. `errors` is its stderr so far: log lines, one JSON object each."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output
        self.url, self.port = self._wait_until_ready()

    def __repr__(self) -> str:
        return f"NodeProcess({self.url}, pid={self._process.pid})"

    @property
    def errors(self) -> str:
        return self._output.with_suffix(".err").read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin_stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Send the signal without waiting for its effect."""
        self._process.send_signal(signal_number)

    def exit_code(self) -> int:
        """Return the exit code; waits for the end."""
        return self._process.wait(STOP_S)

    def stop(self) -> int:
        self.begin_stop()
        return self.exit_code()

    def kill(self) -> None:
        """Kill as in a crash, without a clean stop. Its shards end later by themselves."""
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """Kill all its processes, as a machine failure does: nothing writes into its directory afterwards."""
        kill_all(self._process)

    def _wait_until_ready(self) -> tuple[str, int]:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            ready = READY.search(self._output.read_text())
            if ready:
                return ready["url"], int(ready["port"])
            assert self._process.poll() is None, f"the node ended at its start: {self.errors}"
            time.sleep(0.02)
        raise AssertionError(f"the node is not ready after {START_S} s: {self.errors}")


@contextmanager
def running_process(
    directory: Path, *, environment: dict[str, str] | None = None, files_max: int | None = None, **settings: object
) -> Iterator[NodeProcess]:
    """Run a node with its data in `directory`/data; it ends at the latest with the context."""
    directory.mkdir(parents=True, exist_ok=True)
    output = directory / f"node-{time.monotonic_ns()}.out"
    command = serve_command({"port": 0, "data_dir": directory / "data", **settings})
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=ROOT,
            env=environment,
            preexec_fn=None if files_max is None else partial(limit_files, files_max),
        )
    try:
        yield NodeProcess(process, output)
    finally:
        process.kill()
        process.wait()


def limit_files(files_max: int) -> None:
    """Limit the open files of this process and its children, permanently."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))


def refused_start(*flags: str, **settings: object) -> tuple[int, str, str]:
    """Start a node that should fail at once; return exit code, stdout, stderr."""
    command = [*serve_command(settings), *flags]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S, cwd=ROOT)
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def serve_command(settings: dict[str, object]) -> list[str]:
    flags = []
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        for one in value if isinstance(value, list) else [] if value is True else [value]:
            flags += [flag, str(one)]
    return [sys.executable, "-m", "penstock.cli.main", "serve", *flags]
