"""A partition's `leader-epochs` file: the first offset of each leader epoch, and the current epoch.

Separate from the batches, which carry their epoch too, because retention and rolls may leave no batch. Absent, or
without a row, while the only epoch is 0. Does not know elections: replication starts an epoch.
Invariants: epochs and start offsets both strictly increase; an epoch is durable before any record in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import write_without_room
from engine.log.epochs import EpochStart, assigned, with_epoch
from engine.log.log import Log
from engine.runtime.disk import Disk, read_file

_HEADER = "penstock leader-epochs 1"


def load_epochs(disk: Disk, directory: str) -> list[EpochStart]:
    """Loads the file. Ignores a file in doubt: the batches, if there are any, have the epochs."""
    rows = read_rows(_HEADER, read_file(disk, os.path.join(directory, paths.LEADER_EPOCHS)))
    try:
        starts = [EpochStart(int(epoch), int(start)) for epoch, start in rows or ()]
    except ValueError:
        return []
    increases = all(
        start.epoch < other.epoch and start.start_offset < other.start_offset for start, other in pairwise(starts)
    )
    return starts if increases else []


def can_only_be_0(disk: Disk, directory: str) -> bool:
    """True if there is no file, or one without rows after a truncation: a later epoch would be in it."""
    data = read_file(disk, os.path.join(directory, paths.LEADER_EPOCHS))
    return data is None or read_rows(_HEADER, data) == []


def save_epochs(disk: Disk, directory: str, epochs: list[EpochStart]) -> None:
    """Replaces the file durably. Raises OSError."""
    text = rows_as_text(_HEADER, [f"{epoch} {start}" for epoch, start in epochs])
    write_without_room(disk, os.path.join(directory, paths.LEADER_EPOCHS), text)


def recovered_epochs(disk: Disk, directory: str, seen: list[EpochStart], log_end: int) -> list[EpochStart]:
    """Returns the epochs of a recovered log: the file's and those `seen` in batches.

    Starts beyond the end of the log belonged to lost batches; their epochs are kept, at the end, so that no epoch is
    used twice.
    """
    on_file = load_epochs(disk, directory)
    epochs = merged_epochs(on_file, seen, log_end)
    if epochs and epochs[-1].epoch and epochs != on_file:
        save_epochs(disk, directory, epochs)
    return epochs


def merged_epochs(on_file: list[EpochStart], seen: list[EpochStart], log_end: int) -> list[EpochStart]:
    """Returns the epochs of a file and of batches, limited by the end of the log."""
    epochs = [EpochStart(epoch, min(start, log_end)) for epoch, start in on_file]
    epochs = [
        earlier
        for at, earlier in enumerate(epochs)
        if all(earlier.start_offset < later[1] for later in epochs[at + 1 :])
    ]
    for epoch, start in seen:
        epochs = with_epoch(epochs, epoch, start)
    return epochs


def start_epoch(log: Log, epoch: int) -> None:
    """Starts an epoch as leader: durable first, then used by the next plan. Raises OSError."""
    assert epoch > log.leader_epoch
    record_epoch(log, epoch, log.log_end)
    log.leader_epoch = epoch


def record_epoch(log: Log, epoch: int, start_offset: int) -> None:
    """Notes that records of this epoch begin here, own or fetched: durable first, then known. Raises OSError."""
    epochs = assigned(log.epochs, epoch, start_offset)
    if epochs != log.epochs:
        if not is_in_batches(log.epochs, epochs):
            save_epochs(log.disk, log.directory, epochs)
        log.epochs = epochs


def is_in_batches(batch_epochs: Sequence[EpochStart], epochs: Sequence[EpochStart]) -> bool:
    """True if the batches suffice to know the epochs: a log's first epoch, if it is 0, has no file."""
    return not batch_epochs and [epoch.epoch for epoch in epochs] == [0]
