"""Faulty disks of nodes: small ones that fill up, and syncs of all processes of a node that fail or are slow."""

from __future__ import annotations

from collections.abc import Iterator
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
def injected(node: NodeHost, injection: str) -> Iterator[None]:
    """Inject a fault into fdatasync and fsync of all processes of a node."""
    with disk_faults.injected(processes_in(node.network.namespace(node.name)), injection):
        yield
