"""Records what a harness creates on this machine, so that it is removed: namespaces, mounts, and the processes in them.

A harness records each thing before it creates it, in a file named after its process. It holds a lock on that file while
it lives. A process that gets the lock thus knows that the harness is dead, and removes what the file names. Nothing is
removed by a pattern: only what such a file names, and processes in its namespaces.
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
SHARDS_LEFT_S = 10.0  # how long killed processes may take to end
MAKERS = ("namespace", "mount", "directory")


class Registry:
    """The file of this harness. Entries are removed newest first: a process in a mount before the mount."""

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
    """Return the registry. Removes the leftovers of dead harnesses first, and at the end what this harness has
    created.
    """
    directory.mkdir(parents=True, exist_ok=True)
    remove_of_the_dead(directory)
    path = directory / str(os.getpid())
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        entries = Registry(file)
        try:
            yield entries
        finally:
            entries.remove_all()
            path.unlink()


def remove_of_the_dead(directory: Path = REGISTRY) -> list[str]:
    """Remove the leftovers of dead harnesses; return their names."""
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
    """Remove the entries; each may exist, exist in part, or never have been created. Processes first, since they hold
    the rest.
    """
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
