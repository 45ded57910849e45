"""A real node for the tests of a user's own project. Needs the distribution `penstock-server`.

pytest_plugins = ["penstock.testing.plugin"]  # in conftest.py

def test_rides_are_counted(penstock_client: Client, penstock_prefix: str) -> None:
    count_rides(penstock_client, to=f"{penstock_prefix}counts")  # the program under test
    [record] = wait_for_records(penstock_client, f"{penstock_prefix}counts")
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.cli.failures import Failure
from penstock.cli.server_commands import find_server
from penstock.testing.waiting import wait_for_records

__all__ = ["running_node", "wait_for_records"]

_READY = re.compile(r"penstock is ready on (\S+)")
_MEMORY = "/dev/shm"  # noqa: S108 # on Linux a file system in memory: no fsync waits for a disk
_STOP_S = 30


@contextmanager
def running_node(*, start_timeout_ms: int = 60_000, **settings: str | int) -> Iterator[str]:
    """Runs a node without data on a free port of 127.0.0.1, yields its URL, and stops it at the end.

    `settings` are those of `penstock serve` by name, such as `default_partitions=4`. The data is removed afterwards.
    Raises ModuleNotFoundError without penstock-server, RuntimeError with the node's output if it does not start.
    """
    try:
        find_server("penstock.testing")
    except Failure as error:
        raise ModuleNotFoundError(error.message) from None
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=_MEMORY if os.path.isdir(_MEMORY) else None) as directory:
        given = {"port": 0, "data_dir": str(Path(directory, "data")), **settings}
        flags = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, "-P", "-m", "penstock.cli.main", "serve", *flags]
        output = Path(directory, "output")
        with (
            output.open("wb") as out,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT) as process,
        ):
            try:
                yield _url_of(process, output, start_timeout_ms)
                process.terminate()
                process.wait(_STOP_S)
            finally:
                process.kill()


def _url_of(process: subprocess.Popen[bytes], output: Path, timeout_ms: int) -> str:
    deadline = time.monotonic() + timeout_ms / 1000
    while process.poll() is None and time.monotonic() < deadline:
        if ready := _READY.search(output.read_text()):
            return ready[1]
        time.sleep(0.01)
    raise RuntimeError(f"the node did not start: {output.read_text().strip()}")
