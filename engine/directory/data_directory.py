"""A node's data directory: its owner, how the last run ended, and how far each partition was fsynced.

Does not know topics or segments, nor which directories a node has (engine/directory/log_directories.py). Files:
engine/format/paths.py; formats: engine/format/FORMAT.md.
Invariants:
- one process at a time (a lock on `lock`);
- a directory belongs to one cluster and node permanently (`meta`);
- `running` exists from before the first write until after the last fsync of a clean stop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson

from engine.directory.high_watermark_checkpoint import merge_high_watermarks
from engine.directory.running_file import is_same_boot, write_running
from engine.errors import NO_SPACE, StartRefused, Unreachable
from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import fill_spares, remove_claimed, write_without_room
from engine.log.recovery import Checkpoint, LastShutdown
from engine.runtime.disk import Disk, read_file, write_atomically

FORMAT_VERSION = 3
FORMAT_SHARED_KEYS = 3  # of the first directory of a standalone node: its batches may have the keys of several requests
FORMAT_SEVERAL_DIRECTORIES = 2
FORMAT_ONE_DIRECTORY = 1  # of the only directory of a node
FIRST = ""  # the id of a node's first directory; the other ones have random ids
_META_FIELDS = {"format": int, "cluster_id": str, "node_id": int}
_POINTS_HEADER = "penstock recovery-points 2"
_POINTS_HEADER_1 = "penstock recovery-points 1"  # without a checksum


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a directory."""

    cluster_id: str
    node_id: int


class DataDirectory:
    """An opened data directory: locked as a whole, or the part of one shard process under a supervisor.

    A part has its own checkpoint file, so that no two processes write one file; the next start reads them all.
    A directory that could not be opened has a `fault` and no lock.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        identity: Identity,
        *,
        last_shutdown: LastShutdown,
        lock_handle: int | None = None,
        part: int | None = None,
        boot_id: str | None = None,
        directory_id: str = FIRST,
        fault: Unreachable | None = None,
    ) -> None:
        self.disk = disk
        self.path = path
        self.identity = identity
        self.last_shutdown = last_shutdown
        self.lock_handle = lock_handle
        self.part = part
        self.boot_id = boot_id
        self.directory_id = directory_id
        self.fault = fault  # why it is offline; a directory with a fault is not touched any more
        self._saved: dict[str, Checkpoint] | None = None
        self._writing = threading.Lock()

    def __repr__(self) -> str:
        return f"DataDirectory({self.path}, {self.identity}, last_shutdown={self.last_shutdown.name})"

    @property
    def was_clean(self) -> bool:
        return self.last_shutdown is LastShutdown.CLEAN

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def load_checkpoints(self) -> dict[str, Checkpoint]:
        """Returns the checkpoints by `<topic id>/<partition>`. Ignores a file in doubt: then everything is scanned."""
        checkpoints = self._read_points(paths.RECOVERY_POINTS)
        for name in self._part_files():
            checkpoints |= self._read_points(name)
        return checkpoints

    def merge_checkpoints(self) -> None:
        """Merges the files of all parts of an earlier run, since partitions may belong to other shards now."""
        parts = self._part_files()
        if parts:
            self.save_checkpoints(self.load_checkpoints())
            for name in parts:
                self.disk.unlink(self.file(name))
            self.disk.fsync_dir(self.path)

    def _part_files(self) -> list[str]:
        return [name for name in self.disk.listdir(self.path) if paths.is_part_of_recovery_points(name)]

    def _read_points(self, name: str) -> dict[str, Checkpoint]:
        try:
            data = read_file(self.disk, self.file(name))
        except OSError as error:
            text = f"{self.file(name)} cannot be read: {(error.strerror or str(error)).lower()}"
            raise StartRefused(
                text, hint="restore it, or remove it: each log then starts at its first segment on disk"
            ) from error
        rows = read_rows(_POINTS_HEADER, data)
        if rows is None:
            rows = read_rows(_POINTS_HEADER_1, data, has_checksum=False)
        try:
            return {name: Checkpoint(int(point), int(start)) for name, point, start in rows or ()}
        except ValueError:
            return {}

    def save_checkpoints(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Writes the points durably; the positions must be fsynced already."""
        with self._writing:
            self._save(checkpoints)

    def drop_recovery_points(self, names: Collection[str]) -> None:
        """Drops the points of partitions that begin again: a point of an earlier log does not apply to a new one."""
        self._filter_recovery_points(lambda name: name not in names)

    def retain_recovery_points(self, is_kept: Callable[[str], bool]) -> None:
        """Keep only these points. Points of deleted partitions would otherwise stay in the merged files permanently."""
        self._filter_recovery_points(is_kept)

    def _filter_recovery_points(self, is_left: Callable[[str], bool]) -> None:
        with self._writing:
            having = self._read_points(paths.recovery_points_file(self.part))
            left = {name: checkpoint for name, checkpoint in having.items() if is_left(name)}
            if left != having:
                self._save(left)

    def _save(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        if self._saved == checkpoints:
            return
        rows = [f"{name} {c.recovery_point} {c.log_start}" for name, c in sorted(checkpoints.items())]
        text = rows_as_text(_POINTS_HEADER, rows)
        write_without_room(self.disk, self.file(paths.recovery_points_file(self.part)), text)
        self._saved = dict(checkpoints)

    def fill_spares(self) -> bool:
        """Makes the missing spare files. Returns False if the disk has no room for them. Raises OSError."""
        return fill_spares(self.disk, self.path, self.part)

    def mark_recovered(self) -> None:
        """Notes that every partition has been recovered: after a kill from now on, a hole is not from a power loss."""
        if self.last_shutdown is LastShutdown.POWER_LOSS and self.boot_id is not None:
            write_running(self.disk, self.path, self.boot_id, is_recovered=True)

    def close_clean(self) -> None:
        """Notes a clean stop: the next start trusts the files. A part leaves this to its supervisor."""
        if self.part is None:
            self.disk.unlink(self.file(paths.RUNNING))
            self.disk.fsync_dir(self.path)
        self.release()

    def release_unused(self) -> None:
        """Releases the lock of a refused start, which has opened no log: a clean stop before it still counts."""
        if self.was_clean and self.part is None and self.fault is None and self.lock_handle is not None:
            with suppress(OSError):
                self.disk.unlink(self.file(paths.RUNNING))
        self.release()

    def release(self) -> None:
        """Releases the lock without noting a clean stop."""
        lock_handle, self.lock_handle = self.lock_handle, None
        if lock_handle is not None:
            self.disk.close(lock_handle)


def open_data_directory(
    disk: Disk, path: str, *, node_id: int, cluster_id: str | None, boot_id: str, new_id: Callable[[], str]
) -> DataDirectory:
    """Locks and identifies a data directory; makes a new one.

    Raises StartRefused if another process holds it, if it belongs to another cluster or node, if its format is newer,
    or if it is not the first directory of its node.
    """
    lock_handle = _lock(disk, path)
    with _release_on_error(disk, lock_handle):
        with _start_errors(path, paths.META):
            identity = _identify(disk, path, node_id, cluster_id, new_id)
        return _open_locked(disk, path, identity, FIRST, lock_handle, boot_id)


def open_additional_directory(
    disk: Disk, path: str, identity: Identity, *, boot_id: str, new_id: Callable[[], str]
) -> DataDirectory:
    """Locks and identifies a directory besides the first one; makes a new one. Raises StartRefused, OSError."""
    lock_handle = _lock(disk, path)
    with _release_on_error(disk, lock_handle):
        with _start_errors(path, paths.META):
            directory_id = _identify_additional(disk, path, identity, new_id)
        return _open_locked(disk, path, identity, directory_id, lock_handle, boot_id)


def _lock(disk: Disk, path: str) -> int:
    try:
        _create_durably(disk, path)
        lock = os.path.join(path, paths.LOCK)
        if disk.stat(lock) is None and disk.stat(os.path.join(path, paths.META)) is None:
            _check_empty(disk, path)  # before the lock is made: a directory of others gets no file of ours
        return disk.lock(lock)
    except BlockingIOError:
        raise StartRefused(
            f"the data directory {path} is in use by another process", hint="stop it, or give --data-dir another path"
        ) from None
    except OSError as error:
        hint = "free space on its disk" if error.errno in NO_SPACE else "check the path and its owner"
        raise StartRefused(f"the data directory {path} cannot be used: {error.strerror}", hint=hint) from None


@contextmanager
def _release_on_error(disk: Disk, lock_handle: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        disk.close(lock_handle)
        raise


@contextmanager
def _start_errors(path: str, doing: str) -> Iterator[None]:
    """Map disk errors of a start to StartRefused with a hint."""
    try:
        yield
    except OSError as error:
        text = f"the data directory {path} cannot be used: {doing}: {(error.strerror or str(error)).lower()}"
        hint = "free at least 1 MiB on its disk" if error.errno in NO_SPACE else "check its owner"
        raise StartRefused(text, hint=hint) from error


def _open_locked(
    disk: Disk, path: str, identity: Identity, directory_id: str, lock_handle: int, boot_id: str
) -> DataDirectory:
    with _start_errors(path, f"writing {paths.RUNNING}"):
        last_shutdown = _last_shutdown(disk, path, boot_id)
        write_running(disk, path, boot_id, is_recovered=last_shutdown is not LastShutdown.POWER_LOSS)
    directory = DataDirectory(
        disk,
        path,
        identity,
        last_shutdown=last_shutdown,
        lock_handle=lock_handle,
        boot_id=boot_id,
        directory_id=directory_id,
    )
    with _start_errors(path, "merging the recovery points of its shards"):
        remove_claimed(disk, path)
        directory.merge_checkpoints()
        merge_high_watermarks(disk, path)
    return directory


def _last_shutdown(disk: Disk, path: str, boot_id: str) -> LastShutdown:
    """A power loss counts until its recovery is finished: a kill in between must not turn its holes into corruption."""
    same_boot = is_same_boot(disk, path, boot_id)
    if same_boot is None:
        return LastShutdown.CLEAN
    return LastShutdown.KILLED if same_boot else LastShutdown.POWER_LOSS


def _create_durably(disk: Disk, path: str) -> None:
    """Makes the directory and fsyncs each parent of a new one, so that a power loss cannot remove it.

    Fsyncs its own parent even when the directory exists, since an earlier first start may have been interrupted.
    """
    if disk.stat(os.path.join(path, paths.META)) is not None:
        return
    parents = [os.path.dirname(path)]
    while disk.stat(parents[-1]) is None:
        parents.append(os.path.dirname(parents[-1]))
    disk.mkdir(path)
    for parent in parents:
        disk.fsync_dir(parent)


def _identify(disk: Disk, path: str, node_id: int, cluster_id: str | None, new_id: Callable[[], str]) -> Identity:
    file = os.path.join(path, paths.META)
    data = read_file(disk, file)
    if data is None:
        _check_empty(disk, path)
        identity = Identity(cluster_id or new_id(), node_id)
        fields = {"format": FORMAT_ONE_DIRECTORY, "cluster_id": identity.cluster_id, "node_id": node_id}
        write_meta(disk, path, fields)
        return identity
    meta = _parsed(path, file, data)
    if "directory_id" in meta:
        raise StartRefused(
            f"{path} is a further data directory of cluster {meta['cluster_id']}, node {meta['node_id']}",
            hint="give --data-dir that node's first directory before this one",
        )
    _check_owner(path, meta, node_id, cluster_id)
    return Identity(meta["cluster_id"], node_id)


def _identify_additional(disk: Disk, path: str, identity: Identity, new_id: Callable[[], str]) -> str:
    """Returns the id of a directory besides the first; draws one for a new directory."""
    file = os.path.join(path, paths.META)
    data = read_file(disk, file)
    if data is None:
        _check_empty(disk, path)
        number = FORMAT_SEVERAL_DIRECTORIES
        fields = {"format": number, "cluster_id": identity.cluster_id, "node_id": identity.node_id}
        directory_id = new_id()
        write_meta(disk, path, {**fields, "directory_id": directory_id})
        return directory_id
    meta = _parsed(path, file, data)
    _check_owner(path, meta, identity.node_id, identity.cluster_id)
    if "directory_id" not in meta:
        raise StartRefused(
            f"{path} was the first or only data directory of a node",
            hint="give it as the first --data-dir, or use another path",
        )
    return str(meta["directory_id"])


def read_meta(disk: Disk, path: str) -> dict[str, Any]:
    """Returns the fields of `meta` of an open directory. Raises StartRefused."""
    file = os.path.join(path, paths.META)
    return _parsed(path, file, read_file(disk, file) or b"")


def require_format(directory: DataDirectory, number: int) -> None:
    """Raises the format of an open directory, before anything is written that versions with a lower one do not read.

    Raises StartRefused.
    """
    with _start_errors(directory.path, paths.META):
        fields = read_meta(directory.disk, directory.path)
        if fields["format"] < number:
            write_meta(directory.disk, directory.path, {**fields, "format": number})


def write_meta(disk: Disk, path: str, fields: Mapping[str, Any]) -> None:
    data = orjson.dumps(fields, option=orjson.OPT_INDENT_2)
    write_atomically(disk, os.path.join(path, paths.META), data)


def known_cluster_id(disk: Disk, path: str) -> str:
    """Returns the cluster id of a directory that is not open; empty without one. Raises StartRefused."""
    try:
        if disk.stat(os.path.join(path, paths.META)) is None:
            return ""
    except OSError:
        return ""  # the later open reports the error
    return str(read_meta(disk, path)["cluster_id"])


def _check_empty(disk: Disk, path: str) -> None:
    own_files = (paths.LOCK, paths.META + ".tmp")  # an interrupted first start may leave these
    strangers = [name for name in disk.listdir(path) if name not in own_files]
    if strangers:
        raise StartRefused(
            f"{path} holds other files ({strangers[0]}) and no penstock data", hint="give --data-dir an empty path"
        )


def _check_owner(path: str, meta: Mapping[str, Any], node_id: int, cluster_id: str | None) -> None:
    if cluster_id not in (None, meta["cluster_id"]):
        raise StartRefused(
            f"{path} belongs to cluster {meta['cluster_id']}, not {cluster_id}",
            hint="give --data-dir another path or the right --cluster-id",
        )
    if meta["node_id"] != node_id:
        raise StartRefused(
            f"{path} belongs to node {meta['node_id']}, not {node_id}", hint=f"start with --node-id {meta['node_id']}"
        )


def _parsed(path: str, file: str, data: bytes) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = orjson.loads(data)
        is_true = all(isinstance(meta[name], kind) for name, kind in _META_FIELDS.items())
    except (orjson.JSONDecodeError, KeyError, TypeError):
        is_true = False
    if not is_true:
        raise StartRefused(f"{file} is damaged", hint="restore it from a backup; it names the cluster and node")
    if meta["format"] > FORMAT_VERSION:
        raise StartRefused(
            f"{path} has data format {meta['format']}, this version knows {FORMAT_VERSION}",
            hint="use the newer version of penstock",
        )
    return meta
