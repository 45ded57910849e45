"""Replaces neighbouring sealed segments by one file: a crash at any operation leaves the old log or the new one.

A new file is whole and durable beside them, as `<base>.compacted.tmp`, before the swap file is; the swap file names the
segments, and the size and the checksum of the new file. A leader's copy of a damaged segment is `<base>.repaired.tmp`:
a round of compaction may be writing a file of the other name. From then on the swap is completed, now or at the next
start: the first segment's derived files go, the new file takes its name, the other segments go, and the swap file last.
Kafka's LogLoader does the same with `.swap` and `.cleaned` files.
Invariant: while an old file may be gone, the swap file is there, and so is the new file, under one of its two names.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from engine.format import paths
from engine.format.checksum import Checksum, checksum_of
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import write_without_room
from engine.runtime.disk import Disk, FileKind, read_file

_HEADER = "penstock swap 1"
_KINDS = {paths.COMPACTED: "", paths.REPAIRED: "repaired"}  # as the swap file names them

log = logging.getLogger("penstock.engine")


class Swap(NamedTuple):
    """A new file for the segment at `base_offset`, which also replaces the segments at the other bases."""

    base_offset: int
    also_replaced: tuple[int, ...]
    file: Checksum
    modified_ms: int  # of the last segment that is replaced: age counts from the last append
    suffix: str = paths.COMPACTED  # of the new file before the swap, or REPAIRED


def new_file_path(directory: str, base_offset: int, suffix: str = paths.COMPACTED) -> str:
    """Returns the path of the new file before the swap."""
    return f"{directory}/{paths.segment_file(base_offset, suffix)}{paths.TEMPORARY}"


def begin_swap(disk: Disk, directory: str, swap: Swap) -> None:
    """Records the swap durably; the new file is durable. Raises OSError: nothing is replaced."""
    path = _new_file(directory, swap)
    disk.set_modified(path, swap.modified_ms)
    disk.fsync_dir(directory)
    kind = _KINDS[swap.suffix]
    first = f"{swap.file.size_bytes} {swap.file.crc32c:08x} {swap.modified_ms}{kind and ' '}{kind}"
    rows = [first, *map(str, swap.also_replaced)]
    write_without_room(disk, _swap_path(directory, swap.base_offset), rows_as_text(_HEADER, rows))


def put_in_place(disk: Disk, directory: str, swap: Swap) -> None:
    """Gives the new file its name. Raises OSError: the old file has the name."""
    target = f"{directory}/{paths.segment_file(swap.base_offset, paths.LOG)}"
    new = _new_file(directory, swap)
    for suffix in paths.DERIVED_SUFFIXES:
        _remove(disk, paths.beside_log(target, suffix))
    if disk.stat(new) is not None:
        disk.rename(new, target)


def cancel_swap(disk: Disk, directory: str, swap: Swap) -> None:
    """Gives up a swap whose new file is not in place. Raises OSError: the next start may complete it."""
    path = _swap_path(directory, swap.base_offset)
    for leftover in (path, f"{path}{paths.TEMPORARY}", _new_file(directory, swap)):
        _remove(disk, leftover)
    disk.fsync_dir(directory)


def finish_swap(disk: Disk, directory: str, swap: Swap) -> None:
    """Completes a recorded swap, from any point at which it may have stopped. Raises OSError."""
    put_in_place(disk, directory, swap)
    remove_replaced(disk, directory, swap)


def remove_replaced(disk: Disk, directory: str, swap: Swap) -> None:
    """Removes the other segments of a swap whose new file is in place, and then the swap file. Raises OSError."""
    for base_offset in swap.also_replaced:
        for suffix in paths.SEGMENT_SUFFIXES:
            _remove(disk, f"{directory}/{paths.segment_file(base_offset, suffix)}")
    disk.fsync_dir(directory)
    disk.unlink(_swap_path(directory, swap.base_offset))
    disk.fsync_dir(directory)


def settle_swaps(disk: Disk, directory: str) -> None:
    """Finish or give up the swaps that an error has stopped in this life. Raises OSError.

    The log in memory has the new file of a swap if that is in place.
    """
    for name in disk.listdir(directory):
        base_offset = paths.swap_base_of(name)
        if base_offset is not None and (swap := load_swap(disk, directory, base_offset)) is not None:
            if _is_at(disk, f"{directory}/{paths.segment_file(base_offset, paths.LOG)}", swap):
                remove_replaced(disk, directory, swap)
            else:
                disk.unlink(os.path.join(directory, name))


def remove_new_files(disk: Disk, directory: str) -> None:
    """Removes the new files of rounds that did not end, while no round is in progress. Raises OSError."""
    for name in disk.listdir(directory):
        if paths.is_compacted_file(name):
            disk.unlink(os.path.join(directory, name))


def finish_swaps(disk: Disk, directory: str) -> None:
    """Completes the swaps that a stop has interrupted, at a start. Raises OSError.

    A swap whose new file is neither beside the segment nor in its place is dropped: the old files are there. A swap
    file that cannot be read stays.
    """
    for name in disk.listdir(directory):
        base_offset = paths.swap_base_of(name)
        if base_offset is None or disk.kind(os.path.join(directory, name)) is not FileKind.FILE:
            continue
        path = os.path.join(directory, name)
        swap = load_swap(disk, directory, base_offset)
        if swap is None:
            log.error("a swap file of a compaction cannot be read; it stays", extra={"path": path})
        elif _has_new_file(disk, directory, swap):
            finish_swap(disk, directory, swap)
        else:
            log.warning("the new file of a compaction is missing; the old segments stay", extra={"path": path})
            disk.unlink(path)
            disk.fsync_dir(directory)


def load_swap(disk: Disk, directory: str, base_offset: int) -> Swap | None:
    """Returns the recorded swap of a segment; None if its file is absent or in doubt. Raises OSError."""
    rows = read_rows(_HEADER, read_file(disk, _swap_path(directory, base_offset)))
    try:
        ((size_bytes, seen, modified_ms, *kind), *others) = rows or []
        also_replaced = tuple(int(base) for (base,) in others)
        file, suffix = Checksum(int(size_bytes), int(seen, 16)), _suffix_of(" ".join(kind))
        return Swap(base_offset, also_replaced, file, int(modified_ms), suffix)
    except ValueError:
        return None


def _has_new_file(disk: Disk, directory: str, swap: Swap) -> bool:
    """True if the whole new file is in one of its two places; a damaged one beside the segment is not taken."""
    target = f"{directory}/{paths.segment_file(swap.base_offset, paths.LOG)}"
    new = _new_file(directory, swap)
    for path in (new, target):
        if _is_at(disk, path, swap):
            if path == target:
                _remove(disk, new)
            return True
    return False


def _is_at(disk: Disk, path: str, swap: Swap) -> bool:
    stat = disk.stat(path)
    return stat is not None and stat.size_bytes == swap.file.size_bytes and checksum_of(disk, path) == swap.file


def _new_file(directory: str, swap: Swap) -> str:
    return new_file_path(directory, swap.base_offset, swap.suffix)


def _suffix_of(kind: str) -> str:
    """Raises ValueError."""
    for suffix, kind_known in _KINDS.items():
        if kind_known == kind:
            return suffix
    raise ValueError(f"{kind!r} is not a kind of swap")


def _remove(disk: Disk, path: str) -> None:
    if disk.stat(path) is not None:
        disk.unlink(path)


def _swap_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{paths.segment_file(base_offset, paths.SWAP)}"
