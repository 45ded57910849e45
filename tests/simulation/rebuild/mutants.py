"""Planted bugs around an emptied store and its rebuild, which runs must find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from replication.cluster.start_counter import StoredStarts
from replication.rebuild import plan
from replication.rebuild.inventory import LogInventory, NodeInventory
from tests.simulation.rebuild.run import run_rebuild
from tests.simulation.world.node import DATA_DIR
from tests.simulation.world.store_client import StoreClient


def _topics_deleted(self: Any) -> None:
    """Take a topic that is gone for deleted, though nothing has a tombstone of it, and restart."""
    disk = self.node.disk
    for name in list(self.partitions):
        path = f"{DATA_DIR}/topics/{name}"
        for file in disk.listdir(path):
            disk.unlink(f"{path}/{file}")
        disk.rmdir(path)
    self.node.kill()
    self.world.after(0.1, self.node.start)


_starts = plan._starts


def _unmarked(node: NodeInventory) -> StoredStarts:
    return replace(_starts(node), is_rebuilt=False)


_last_epoch = plan._last_epoch


def _oldest(log: LogInventory) -> int:
    """Let the log with the least epoch of its last record be elected."""
    return -_last_epoch(log)


def _whole(leader: LogInventory, other: LogInventory) -> int:
    return min(leader.log_end, other.log_end)


PLANTED: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "a vanished topic counts as deleted": lambda: patch.object(StoreClient, "refuse_emptied_store", _topics_deleted),
    "broker epochs of the lost store count": lambda: patch.object(plan, "_starts", _unmarked),
    "leader epochs begin again": lambda: patch.multiple(plan, EPOCHS_SKIPPED=-1000, EPOCHS_SINCE_S=1 << 40),
    "the log of the oldest epoch is elected": lambda: patch.multiple(plan, _last_epoch=_oldest, common_end=_whole),
}


def found_by_seed(name: str, seeds: range) -> tuple[int, str] | None:
    """Return the first seed whose run finds the planted bug, and the finding; None if no run finds it."""
    with PLANTED[name]():
        for seed in seeds:
            if problems := run_rebuild(seed).problems:
                return seed, problems[0]
    return None
