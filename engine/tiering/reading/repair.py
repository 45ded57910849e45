"""Restores a damaged segment file from the objects of the store. Blocking; changes only its own file.

The copy is byte for byte the sealed file, or there is none: objects are checked against the checksums of the manifest,
and the whole against the segment's checksum file, or, without one, every batch's own. It is stored beside the segment
under a name that the next start removes; the partition's owner puts it in place (engine/cleaning/quarantine.py).
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from engine.cleaning.segment_check import SealedFile, find_damage
from engine.errors import Corrupt
from engine.format.batch import walk
from engine.format.checksum import PIECE_BYTES, at_once, checksum_of, load_checksum
from engine.runtime.disk import Disk, write_fully
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.store.store import MULTIPART_BYTES_MIN, ObjectStore, read_in_pieces


def restore_segment(store: ObjectStore, disk: Disk, prefix: str, file: SealedFile) -> str | None:
    """Returns the path of a good copy; None unless the store has the end of the segment, from one of its batches on.

    Raises Corrupt if the result is not the segment, StoreUnavailable, OSError.
    """
    parts = _parts_of(store, prefix, file)
    if not parts:
        return None
    checksum = load_checksum(disk, file.path)
    size_bytes = checksum.size_bytes if checksum is not None else file.size_bytes
    path = file.path + ".tmp"
    try:
        _assemble(store, disk, file, parts, size_bytes - sum(part.size_bytes for part in parts), path)
        seen = checksum_of(disk, path)
        copy = SealedFile(path, file.base_offset, file.end_offset, seen.size_bytes)
        if seen != checksum if checksum is not None else find_damage(disk, copy, at_once):
            raise Corrupt(f"{file.path}: the store's segment has other offsets", hint="restore it from a replica")
    except BaseException:
        with suppress(OSError):
            disk.unlink(path)
        raise
    return path


class _Part(NamedTuple):
    """Bytes `start` to before `end` of an object. A merged object has several segments."""

    entry: ManifestEntry
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


def _parts_of(store: ObjectStore, prefix: str, file: SealedFile) -> list[_Part]:
    """Returns the parts of objects from within the segment to its end; none if the batches do not begin there."""
    manifest = load_newest(store, prefix)
    parts: list[_Part] = []
    end_offset = -1
    for entry in iter_entries(store, manifest, file.base_offset) if manifest is not None else ():
        if entry.base_offset >= file.end_offset:
            break
        is_inside = file.base_offset <= entry.base_offset and entry.end_offset <= file.end_offset
        part = _Part(entry, 0, entry.size_bytes) if is_inside else _clipped(store, entry, file)
        if part is None:
            return []
        parts.append(part)
        end_offset = min(entry.end_offset, file.end_offset)
    return parts if end_offset == file.end_offset else []


def _clipped(store: ObjectStore, entry: ManifestEntry, file: SealedFile) -> _Part | None:
    """Returns the part of an object that is in the segment; None if the object has no batch that begins there."""
    if entry.size_bytes > MULTIPART_BYTES_MIN:  # no merge makes it: another replica has sealed it at other offsets
        return None
    data = store.get(entry.key)
    if crc32c(data) != entry.crc32c:
        raise Corrupt(f"object {entry.key} does not have the checksum in the manifest")
    places = {entry.base_offset: 0} | {header.next_offset: at + header.size_bytes for at, header in walk(data)}
    start = places.get(max(file.base_offset, entry.base_offset))
    end = places.get(min(file.end_offset, entry.end_offset))
    return None if start is None or end is None else _Part(entry, start, end)


def _assemble(store: ObjectStore, disk: Disk, file: SealedFile, parts: list[_Part], head_bytes: int, path: str) -> None:
    """Takes the head, deleted before the segment was shipped, from the file itself."""
    handle = disk.open(path, create=True, writable=True)
    try:
        disk.truncate(handle, 0)
        position = _copy_head(disk, file.path, head_bytes, handle)
        for part in parts:
            entry, seen = part.entry, 0
            is_whole = part.size_bytes == entry.size_bytes
            some = read_in_pieces(store, entry.key, entry.size_bytes)
            for piece in some if is_whole else [store.get(entry.key, part.start, part.end)]:
                write_fully(disk, handle, piece, position)
                seen = crc32c(piece, seen)
                position += len(piece)
            if is_whole and seen != entry.crc32c:
                raise Corrupt(f"object {entry.key} does not have the checksum in the manifest")
        disk.fdatasync(handle)
        if (stat := disk.stat(file.path)) is not None:  # retention counts a segment's age from its last append
            disk.set_modified(path, stat.modified_ms)
    finally:
        disk.close(handle)


def _copy_head(disk: Disk, source: str, head_bytes: int, handle: int) -> int:
    if head_bytes <= 0:
        return 0
    position = 0
    from_handle = disk.open(source)
    try:
        while position < head_bytes:
            piece = disk.pread(from_handle, min(PIECE_BYTES, head_bytes - position), position)
            if not piece:
                raise Corrupt(f"{source}: it ends before the first offset in the store")
            write_fully(disk, handle, piece, position)
            position += len(piece)
    finally:
        disk.close(from_handle)
    return position
