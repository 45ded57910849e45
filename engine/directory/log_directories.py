"""The data directories of a node (Kafka: log dirs): the first, which has all single files, and others for partitions.

Locates partitions and reports missing ones; does not move or make any. Reasons:
docs/decisions/0010-several-data-directories.md.
Invariants:
- with one directory this module reads, writes and rejects nothing;
- a directory with a fault is not touched until the next start;
- a partition that its topic records as made is opened where it is found or not at all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.directory.data_directory import (
    FIRST,
    FORMAT_SEVERAL_DIRECTORIES,
    DataDirectory,
    Identity,
    open_additional_directory,
    open_data_directory,
    read_meta,
    write_meta,
)
from engine.directory.high_watermark_checkpoint import load_high_watermarks
from engine.directory.topics import TopicRecord
from engine.errors import DEAD_DISK, TOO_MANY_FILES, StartRefused, Unreachable
from engine.format import paths
from engine.log.recovery import Checkpoint, LastShutdown
from engine.runtime.disk import Disk

log = logging.getLogger("penstock.engine")

FAULT_HINT = "repair the disk, and restart the node"
_WORST = (LastShutdown.CLEAN, LastShutdown.KILLED, LastShutdown.POWER_LOSS)


@dataclass(frozen=True, slots=True)
class Located:
    """The directory of a partition; `error` is why it cannot be opened."""

    directory: DataDirectory
    error: Unreachable | None = None


class LogDirectories:
    """The opened directories of a node or of one shard process. Calls `on_failed` for one that fails later."""

    def __init__(
        self,
        first: DataDirectory,
        additional: Sequence[DataDirectory] = (),
        on_failed: Callable[[DataDirectory], None] | None = None,
    ) -> None:
        self.first = first
        self.additional = list(additional)
        self.has_failed = False  # one of them, since it was opened
        self._on_failed = on_failed or log_offline

    def __repr__(self) -> str:
        return f"LogDirectories({self.first}, {self.additional})"

    def __iter__(self) -> Iterator[DataDirectory]:
        return iter((self.first, *self.additional))

    @property
    def is_several(self) -> bool:
        """True if there are other directories, or were."""
        return bool(self.additional)

    @property
    def usable(self) -> list[DataDirectory]:
        return [directory for directory in self if directory.fault is None]

    def by_id(self, directory_id: str) -> DataDirectory | None:
        having = [directory for directory in self if directory.directory_id == directory_id]
        return next((directory for directory in having if directory.fault is None), having[0] if having else None)

    def holding(self, path: str) -> DataDirectory:
        """Returns the directory that holds a partition's path."""
        if not self.additional:
            return self.first
        return max(
            (directory for directory in self if path.startswith(directory.path + "/")),
            key=lambda directory: len(directory.path),
        )

    def locate(self, record: TopicRecord, number: int) -> Located:
        """Returns the directory to open a partition in. Asks the disk; the cases are in the order of the decision."""
        if not self.additional:
            return Located(self.first)
        expected = self.by_id(record.directory_ids.get(str(number), FIRST))
        if expected is None:
            return Located(self.first, Unreachable(f"{record.name}/{number}: its data directory is unknown"))
        name, fault = f"{record.name}/{number}", expected.fault
        try:
            having = [directory for directory in self.usable if _has(directory, record, number)]
        except OSError as error:
            if error.errno in TOO_MANY_FILES:
                raise
            return Located(expected, Unreachable(f"{name}: its directory cannot be found: {error}"))
        if len(having) > 1:
            text = f"{name} is in {' and '.join(directory.path for directory in having)}"
            hint = "remove or rename the older copy of the partition's directory, and restart"
            return Located(expected, Unreachable(text, hint=hint))
        if fault is not None:
            return Located(expected, fault)
        if not having:
            text = f"{name}: its directory is in none of the data directories; it was in {expected.path}"
            return Located(expected, Unreachable(text, hint="restore the directory and restart, or delete the topic"))
        return Located(having[0])

    def require_recovery(self, directory: DataDirectory) -> None:
        """Treat a directory with a moved-in partition as stopped like the worst of all directories."""
        directory.last_shutdown = max(
            (LastShutdown.KILLED, *(directory.last_shutdown for directory in self.usable)), key=_WORST.index
        )

    def load_checkpoints(self) -> dict[str, Checkpoint]:
        """Return the checkpoints of all directories; the greater ones for a moved partition, as none ever decreases."""
        merged: dict[str, Checkpoint] = {}
        for directory in self.usable:
            for name, (recovery_point, log_start) in directory.load_checkpoints().items():
                other = merged.get(name, Checkpoint())
                merged[name] = Checkpoint(max(recovery_point, other[0]), max(log_start, other[1]))
        return merged

    def load_high_watermarks(self) -> dict[str, int]:
        """Returns the stored high watermarks of the partitions (engine/directory/high_watermark_checkpoint.py)."""
        merged: dict[str, int] = {}
        for directory in self.usable:
            for name, position in load_high_watermarks(directory.disk, directory.path).items():
                merged[name] = max(position, merged.get(name, 0))
        return merged

    def record_failure(self, directory: DataDirectory, error: OSError, doing: str) -> bool:
        """Takes a directory offline if its disk is broken and there are others. Returns whether it is offline."""
        if self.additional and error.errno in DEAD_DISK:
            self.fail(directory, f"{doing}: {error}")
        return directory.fault is not None

    def fail(self, directory: DataDirectory, reason: str) -> None:
        """Takes a directory offline until the node restarts."""
        self.take_offline(directory.directory_id, _fault(directory.path, reason))

    def take_offline(self, directory_id: str, fault: Unreachable) -> None:
        """Takes a directory offline that this or another process of the node found failing."""
        directory = self.by_id(directory_id)
        if directory is not None and directory.fault is None:
            directory.fault = fault
            self.has_failed = True
            self._on_failed(directory)

    def release_unused(self) -> None:
        """Releases all locks of a refused start, which has opened no log: a clean stop before it still counts."""
        for directory in self:
            directory.release_unused()

    def release(self) -> None:
        """Releases all locks without noting a clean stop."""
        for directory in self:
            directory.release()


def log_offline(directory: DataDirectory) -> None:
    """Log the fault of a directory that cannot be used, in one line."""
    log.error("a data directory is offline", extra={"directory": directory.path, "reason": str(directory.fault)})


def open_data_directories(
    disk: Disk,
    data_dirs: Sequence[str],
    *,
    node_id: int,
    cluster_id: str | None,
    boot_id: str,
    new_id: Callable[[], str],
) -> LogDirectories:
    """Locks and identifies all directories of a node. Raises StartRefused only for the first; the others get faults."""
    first = open_data_directory(
        disk, data_dirs[0], node_id=node_id, cluster_id=cluster_id, boot_id=boot_id, new_id=new_id
    )
    opened: list[DataDirectory] = []
    try:
        known_paths = _known_directories(disk, first)
        for path in data_dirs[1:]:
            opened.append(_open_directory(disk, path, first.identity, known_paths, opened, boot_id, new_id))
        _record_directories(disk, first, known_paths, opened)
    except BaseException:
        for directory in (first, *opened):
            directory.release_unused()
        raise
    for directory in opened:
        if directory.fault is not None:
            log_offline(directory)
    return LogDirectories(first, opened)


def _known_directories(disk: Disk, first: DataDirectory) -> dict[str, str]:
    """Returns the other directories that this node has had: id and path."""
    try:
        return {str(row["directory_id"]): str(row["path"]) for row in read_meta(disk, first.path).get("further", ())}
    except (KeyError, TypeError):
        raise StartRefused(f"{first.file(paths.META)} is damaged", hint="restore it from a backup") from None


def _open_directory(
    disk: Disk,
    path: str,
    identity: Identity,
    known_paths: Mapping[str, str],
    others: Sequence[DataDirectory],
    boot_id: str,
    new_id: Callable[[], str],
) -> DataDirectory:
    """Returns one of the other directories, opened, or with its fault."""
    known_id = next((directory_id for directory_id, known_path in known_paths.items() if known_path == path), None)
    try:
        if known_id is not None and disk.stat(os.path.join(path, paths.META)) is None:
            raise StartRefused(
                f"{path} is empty or missing, and it held partitions of this node",
                hint="mount its disk; a new disk needs another path",
            )
        directory = open_additional_directory(disk, path, identity, boot_id=boot_id, new_id=new_id)
    except (StartRefused, OSError) as error:
        return _unusable(disk, path, identity, known_id or f"?{path}", str(error))
    twin = next(
        (other for other in others if other.directory_id == directory.directory_id and other.fault is None), None
    )
    if twin is not None:
        directory.release()
        return _unusable(disk, path, identity, directory.directory_id, f"it is a copy of {twin.path}")
    return directory


def _record_directories(
    disk: Disk, first: DataDirectory, known_paths: Mapping[str, str], opened: list[DataDirectory]
) -> None:
    """Write down which directories there are, before a partition is made in one; report missing directories."""
    having = {directory.directory_id: directory.path for directory in opened if directory.fault is None}
    if (now := {**known_paths, **having}) != known_paths:
        rows = [{"directory_id": directory_id, "path": path} for directory_id, path in now.items()]
        fields = {"cluster_id": first.identity.cluster_id, "node_id": first.identity.node_id}
        number = max(FORMAT_SEVERAL_DIRECTORIES, read_meta(disk, first.path)["format"])
        write_meta(disk, first.path, {"format": number, **fields, "further": rows})
    given = {directory.directory_id for directory in opened}
    for directory_id, path in known_paths.items():
        if directory_id not in given:
            reason = "it was a data directory of this node, and no --data-dir names it"
            opened.append(_unusable(disk, path, first.identity, directory_id, reason))


def _unusable(disk: Disk, path: str, identity: Identity, directory_id: str, reason: str) -> DataDirectory:
    fault = _fault(path, reason)
    return DataDirectory(
        disk, path, identity, last_shutdown=LastShutdown.POWER_LOSS, directory_id=directory_id, fault=fault
    )


def _fault(path: str, reason: str) -> Unreachable:
    return Unreachable(f"the data directory {path} is offline: {reason}", hint=FAULT_HINT)


def _has(directory: DataDirectory, record: TopicRecord, number: int) -> bool:
    path = paths.partition_dir(directory.path, record.name, record.topic_id, number)
    return directory.disk.stat(path) is not None
