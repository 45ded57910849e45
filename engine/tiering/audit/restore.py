"""Restores the logs of partitions from the store into files of a data directory. Blocking.

A restored log has the segments of the newest manifest byte for byte, at their offsets, and an empty active segment
behind them. Each object is checked against the manifest while it is written. With `until_ms` the log ends before the
first batch with a record at or after that time. A call after an interruption keeps the files that are whole.

The store has sealed segments only: a restored log lacks the records of the segment that was active. Compacted topics
and the positions of consumer groups are never tiered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from crc32c import crc32c

from engine.errors import Corrupt
from engine.format import paths
from engine.format.batch import read_header, walk
from engine.format.checksum import PIECE_BYTES
from engine.log.epochs import EpochStart
from engine.log.leader_epochs import save_epochs
from engine.log.recovery import Checkpoint
from engine.producers.snapshots import State, encode_state
from engine.runtime.disk import Disk, read_file, write_atomically, write_fully
from engine.tiering.audit.inventory import StoredPartition
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.store.store import ObjectStore, read_in_pieces


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """A restored log, from `log_start` to before `end_offset`. `is_cut`: the store has later records."""

    partition: StoredPartition
    log_start: int
    end_offset: int
    segments: int
    size_bytes: int
    is_cut: bool

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(recovery_point=self.end_offset, log_start=self.log_start)


def restore_partition(
    store: ObjectStore,
    disk: Disk,
    partition: StoredPartition,
    directory: str,
    *,
    until_ms: int | None = None,
    on_restored: Callable[[int], None] = lambda _: None,
) -> RestoredPartition:
    """Writes the log of a partition into a directory, durably. Calls `on_restored` with the bytes of each segment.

    Raises Corrupt if the store has no manifest that can be read or a damaged segment, NoSuchObject if a segment is
    missing, StoreUnavailable, OSError.
    """
    disk.mkdir(directory)
    manifest = load_newest(store, partition.prefix)
    if manifest is None:
        raise Corrupt(f"{partition.prefix} has segments and no manifest", hint="run penstock tier repair first")
    entries: list[ManifestEntry] = []
    end_offset, size_bytes, is_cut = manifest.log_start, 0, False
    for entry in iter_entries(store, manifest):
        path = f"{directory}/{paths.segment_file(entry.base_offset, paths.LOG)}"
        is_cut = until_ms is not None and entry.max_timestamp_ms >= until_ms
        if is_cut and until_ms is not None and entry.min_timestamp_ms >= until_ms:
            break
        _download(store, disk, entry, path)
        end_offset, kept_bytes = entry.end_offset, entry.size_bytes
        if is_cut and until_ms is not None:
            end_offset, kept_bytes = _cut(disk, path, entry, until_ms)
        on_restored(kept_bytes)
        if kept_bytes:
            _set_age(store, disk, entry, path)
            entries.append(entry)
            size_bytes += kept_bytes
        if is_cut:
            break
    log_start = min(manifest.log_start, end_offset)
    # A producer's only records may have been in the segment that was active: an unknown one may begin anywhere.
    write_atomically(disk, f"{directory}/{paths.segment_file(0, paths.SNAPSHOT)}", encode_state(State(0)))
    _save_epochs(disk, directory, entries, end_offset, manifest.leader_epoch + 1)
    _make_active(disk, directory, end_offset)
    _remove_others(disk, directory, {entry.base_offset for entry in entries} | {end_offset})
    disk.fsync_dir(directory)
    return RestoredPartition(partition, log_start, end_offset, len(entries), size_bytes, is_cut)


def _download(store: ObjectStore, disk: Disk, entry: ManifestEntry, path: str) -> None:
    if _has(disk, path, entry):
        return
    temporary = path + paths.TEMPORARY
    handle = disk.open(temporary, create=True, writable=True)
    try:
        disk.truncate(handle, 0)
        position = seen = 0
        for piece in read_in_pieces(store, entry.key, entry.size_bytes):
            if not position and read_header(piece).base_offset != entry.base_offset:
                raise Corrupt(f"{entry.key} begins with a batch of another offset: the topic was compacted")
            write_fully(disk, handle, piece, position)
            position, seen = position + len(piece), crc32c(piece, seen)
        if (position, seen) != (entry.size_bytes, entry.crc32c):
            raise Corrupt(f"{entry.key} is not as its manifest says", hint="run penstock tier verify --deep")
        disk.fdatasync(handle)
    except BaseException:
        disk.close(handle)
        with suppress(OSError):
            disk.unlink(temporary)
        raise
    disk.close(handle)
    disk.rename(temporary, path)


def _set_age(store: ObjectStore, disk: Disk, entry: ManifestEntry, path: str) -> None:
    """Retention counts the age of a segment from its last append; a version before did not store it."""
    known_ms = entry.stored_ms if entry.arrived_ms is None else entry.arrived_ms
    info = store.head(entry.key) if known_ms is None else None
    disk.set_modified(path, known_ms or (info.modified_ms if info is not None else entry.max_timestamp_ms))


def _has(disk: Disk, path: str, entry: ManifestEntry) -> bool:
    """True if an earlier call has written the file."""
    stat = disk.stat(path)
    if stat is None or stat.size_bytes != entry.size_bytes:
        return False
    seen = 0
    handle = disk.open(path)
    try:
        for position in range(0, entry.size_bytes, PIECE_BYTES):
            seen = crc32c(disk.pread(handle, min(PIECE_BYTES, entry.size_bytes - position), position), seen)
    finally:
        disk.close(handle)
    return seen == entry.crc32c


def _cut(disk: Disk, path: str, entry: ManifestEntry, until_ms: int) -> tuple[int, int]:
    """Truncates a segment before its first batch that reaches the time. Returns the end offset and the bytes left."""
    data = read_file(disk, path) or b""
    end_offset, kept_bytes = entry.base_offset, 0
    for position, header in walk(data):
        if header.max_timestamp >= until_ms:
            break
        end_offset, kept_bytes = header.next_offset, position + header.size_bytes
    if not kept_bytes:
        disk.unlink(path)
        return end_offset, 0
    handle = disk.open(path, writable=True)
    try:
        disk.truncate(handle, kept_bytes)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    return end_offset, kept_bytes


def _save_epochs(
    disk: Disk, directory: str, entries: Iterable[ManifestEntry], end_offset: int, next_epoch: int
) -> None:
    """Saves the epochs of the records, and a next one: in the store it fences the node that is restored."""
    epochs: list[EpochStart] = []
    for entry in entries:
        for epoch, start in entry.leader_epochs:
            if start < end_offset and (not epochs or epoch > epochs[-1].epoch):
                epochs.append(EpochStart(epoch, start))
    save_epochs(disk, directory, [*epochs, EpochStart(next_epoch, end_offset)])


def _make_active(disk: Disk, directory: str, end_offset: int) -> None:
    path = f"{directory}/{paths.segment_file(end_offset, paths.LOG)}"
    disk.close(disk.open(path, create=True, writable=True))


def _remove_others(disk: Disk, directory: str, base_offsets: set[int]) -> None:
    """Removes what an interrupted call for another time has left."""
    for name in disk.listdir(directory):
        if (base_offset := paths.base_offset_of(name)) is not None and base_offset not in base_offsets:
            disk.unlink(f"{directory}/{name}")
