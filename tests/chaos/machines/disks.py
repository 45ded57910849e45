"""Faulty disks of nodes: small ones that fill up, syncs that fail or are slow, and files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import disk_faults
from tests.chaos.machines.hosts import NodeHost
from tests.chaos.machines.leftovers import Registry, processes_in

SMALL_DISK_MIB = 96


def make_small_disk(mounted: Path, registry: Registry) -> None:
    registry.note("mount", str(mounted))
    disk_faults.make_ext4(mounted, SMALL_DISK_MIB)


@contextmanager
def inject(node: NodeHost, injection: str) -> Iterator[None]:
    """Inject a fault into fdatasync and fsync of all processes of a node."""
    with disk_faults.injected(processes_in(node.network.namespace(node.name)), injection):
        yield


@contextmanager
def unreadable(node: NodeHost, files: Sequence[Path]) -> Iterator[None]:
    """Make reads of files fail with EIO in all processes of a node."""
    options = ("-o", "/dev/null", *(word for file in files for word in ("-P", str(file))))
    processes = processes_in(node.network.namespace(node.name))
    with disk_faults.injected(processes, "error=EIO", disk_faults.READS, options):
        yield
