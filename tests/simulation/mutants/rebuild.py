"""Planted bugs around an emptied store and its rebuild, which runs must find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from replication.cluster.start_counter import StoredStarts
from replication.rebuild import plan
from replication.rebuild.inventory import LogInventory, NodeInventory
from tests.checking.mutants import Mutant, patched
from tests.simulation.rebuild.run import rebuild_options, run_rebuild
from tests.simulation.run import findings_of
from tests.simulation.world.node import DATA_DIR
from tests.simulation.world.store_client import StoreClient


def _delete_topics(self: Any) -> None:
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


IN_RUNS = findings_of(run_rebuild, rebuild_options)
MUTANTS = {
    "a vanished topic counts as deleted": Mutant(
        patched(StoreClient, "refuse_emptied_store", _delete_topics), IN_RUNS, first_seed=2
    ),
    "broker epochs of the lost store count": Mutant(patched(plan, "_starts", _unmarked), IN_RUNS, first_seed=13),
    "leader epochs begin again": Mutant(
        lambda: patch.multiple(plan, EPOCHS_SKIPPED=-1000, EPOCHS_SINCE_S=1 << 40), IN_RUNS
    ),
    "the log of the oldest epoch is elected": Mutant(
        lambda: patch.multiple(plan, _last_epoch=_oldest, common_end=_whole), IN_RUNS, first_seed=3
    ),
}
