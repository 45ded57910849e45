"""Restores a damaged segment file from the objects of the store. Blocking; changes only its own file.

The copy is byte for byte the sealed file, or there is none: objects are checked against the checksums of the manifest,
and the whole against the segment's checksum file, or, without one, every batch's own. It is stored beside the segment
under a name that the next start removes; the partition's owner puts it in place (engine/cleaning/quarantine.py).
"""

from __future__ import annotations

from contextlib import suppress

from crc32c import crc32c

from engine.cleaning.segment_check import SealedFile, find_damage
from engine.errors import Corrupt
from engine.format.checksum import PIECE_BYTES, at_once, checksum_of, load_checksum
from engine.runtime.disk import Disk, write_fully
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.store.store import ObjectStore, read_in_pieces


def restore_segment(store: ObjectStore, disk: Disk, prefix: str, file: SealedFile) -> str | None:
    """Return the path of a good copy; None unless the store has the end of the segment, from one of its batches on.

    Raises Corrupt if the result is not the segment, StoreUnavailable, OSError.
    """
    entries = _entries_of(store, prefix, file)
    if not entries:
        return None
    known = load_checksum(disk, file.path)
    size_bytes = known.size_bytes if known is not None else file.size_bytes
    path = file.path + ".tmp"
    try:
        _assemble(store, disk, file, entries, size_bytes - sum(entry.size_bytes for entry in entries), path)
        seen = checksum_of(disk, path)
        copy = SealedFile(path, file.base_offset, file.end_offset, seen.size_bytes)
        if seen != known if known is not None else find_damage(disk, copy, at_once):
            raise Corrupt(f"{file.path}: the store's segment has other offsets", hint="restore it from a replica")
    except BaseException:
        with suppress(OSError):
            disk.unlink(path)
        raise
    return path


def _entries_of(store: ObjectStore, prefix: str, file: SealedFile) -> list[ManifestEntry]:
    """Returns the objects from within the segment to its end; none if object boundaries differ."""
    manifest = load_newest(store, prefix)
    found: list[ManifestEntry] = []
    for entry in iter_entries(store, manifest, file.base_offset) if manifest is not None else ():
        if entry.base_offset >= file.end_offset:
            break
        found.append(entry)
    is_whole = bool(found) and found[0].base_offset >= file.base_offset and found[-1].end_offset == file.end_offset
    return found if is_whole else []


def _assemble(
    store: ObjectStore, disk: Disk, file: SealedFile, entries: list[ManifestEntry], head_bytes: int, path: str
) -> None:
    """Takes the head, deleted before the segment was shipped, from the file itself."""
    handle = disk.open(path, create=True, writable=True)
    try:
        disk.truncate(handle, 0)
        position = _copy_head(disk, file.path, head_bytes, handle)
        for entry in entries:
            seen = 0
            for piece in read_in_pieces(store, entry.key, entry.size_bytes):
                write_fully(disk, handle, piece, position)
                seen = crc32c(piece, seen)
                position += len(piece)
            if seen != entry.crc32c:
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
