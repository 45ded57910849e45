"""What a harness has made on this machine, so that it goes again: namespaces, mounts, whoever still runs in them.

A harness writes down what it makes before it makes it, in a file named after its process, and holds a lock on that file
for as long as it lives. So whoever gets the lock knows that the harness is dead, however it died, and removes
what the file names. Nothing is removed by a pattern: only what such a file names, and processes in its namespaces.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

REGISTRY = Path("/run/penstock-chaos")
SHARDS_LEFT_S = 10.0  # how long killed processes may take to be gone
MAKERS = ("namespace", "mount", "directory")


class Registry:
    """The file of this harness. Entries are removed newest first: who runs in a mount goes before the mount."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, kind: str, name: str) -> None:
        assert kind in MAKERS, kind
        assert "\n" not in name
        self._file.write(f"{kind} {name}\n")
        self._file.flush()

    def remove_all(self) -> None:
        _remove(Path(self._file.name).read_text())


@contextmanager
def registry(directory: Path = REGISTRY) -> Iterator[Registry]:
    """First clears away what dead harnesses have left; in the end what this one has made."""
    directory.mkdir(parents=True, exist_ok=True)
    remove_of_the_dead(directory)
    path = directory / str(os.getpid())
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        own = Registry(file)
        try:
            yield own
        finally:
            own.remove_all()
            path.unlink()


def remove_of_the_dead(directory: Path = REGISTRY) -> list[str]:
    """The harnesses that were cleared up after."""
    cleared = []
    for path in sorted(directory.iterdir()):
        with suppress(BlockingIOError, FileNotFoundError), path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(file.read())
            path.unlink()
            cleared.append(path.name)
    return cleared


def processes_in(namespace: str) -> list[int]:
    asked = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(pid) for pid in asked.stdout.split() if int(pid) != os.getpid()]


def _remove(entries: str) -> None:
    """Each entry may be there, half there, or never have been made. Processes first: they hold everything else."""
    made = [line.split(" ", 1) for line in reversed(entries.splitlines())]
    namespaces = [name for kind, name in made if kind == "namespace"]
    _kill_all(namespaces)
    for kind, name in made:
        if kind == "namespace":
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        elif kind == "mount":
            subprocess.run(["umount", "-l", name], capture_output=True, check=False)
        else:
            shutil.rmtree(name, ignore_errors=True)


def _kill_all(namespaces: list[str]) -> None:
    deadline = time.monotonic() + SHARDS_LEFT_S
    while alive := [pid for name in namespaces for pid in processes_in(name)]:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
