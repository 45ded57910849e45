"""Faulty disks: small ones that fill up, and syncs that fail or are slow.

A small disk is an ext4 file system in a file (a loop device), so that the file system itself is full and the sync is
real. strace injects faults into syncs; it attaches to every process of a node and leaves all other calls unchanged.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import strace
from tests.chaos.machines.hosts import NodeHost
from tests.chaos.machines.leftovers import Registry, processes_in

SMALL_DISK_MIB = 96


def make_small_disk(mounted: Path, registry: Registry) -> None:
    image = mounted.with_suffix(".img")
    mounted.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(SMALL_DISK_MIB << 20)
    registry.note("mount", str(mounted))
    for command in (["mkfs.ext4", "-q", "-F", "-m", "0", image], ["mount", "-o", "loop", image, mounted]):
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def fill(mounted: Path) -> Path:
    """Use up all free space; unlink the returned file to free it."""
    filler = mounted / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return filler


def why_no_injection() -> str | None:
    return None if shutil.which("strace") else "strace is not installed (Debian: strace)"


@contextmanager
def injected(node: NodeHost, injection: str) -> Iterator[None]:
    """Inject a fault into fdatasync and fsync of all processes of a node."""
    with strace.injected(processes_in(node.network.namespace(node.name)), injection):
        yield
