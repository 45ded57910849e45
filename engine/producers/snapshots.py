"""Snapshot files: the state of a partition at one offset that validates the next append.

`<offset>.snapshot` holds the state that follows from all records below that offset. One is made at each roll, for the
base of the new segment, and one at a clean stop, for the log's end, so that a start walks only later batches.
A clean stop makes none of a short log without state, and none once its time is over
(engine/directory/log_directory_manager.py). An absent, damaged or foreign-format file is ignored
(engine/producers/state_loader.py walks further back).
Layout: engine/format/FORMAT.md.

The keys of a window may be a million, so each file has only those since the one before, and names the earlier files
that have others (`key_files`); these stay until their keys have left the window.

To store more: a Section, its field in State, its lines in `encode_state` and `decode_state`. An unknown kind makes the
whole file one of another format: a partly understood state would be a wrong one.
Invariants: a file never claims more than the log has; one beyond the log's end is removed before any append. A file is
durable before an older one is removed, and before the records that it remembers leave the disk
(engine/cleaning/log_start.py): afterwards it is their only trace, and without it a retry would be stored twice. One of
them covers committed records only, which no truncation removes.
"""

from __future__ import annotations

import os
import struct
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from engine.format import paths
from engine.producers.fencing import NO_FENCE, Fence
from engine.producers.sequences import ID_MAX, Producer, decode_producers, encode_producers
from engine.producers.sources import Source, decode_sources, encode_sources
from engine.runtime.disk import Disk, read_derived, write_atomically

VERSION = 1
KEPT = 2  # the earlier one serves if the latest is damaged
EVERYTHING = 1 << 63
# The producer of a row that has `forgotten_id_max` as its offset. A version that does not know it takes it for the
# producer that has not written for the longest time, so it is the first one that such a version forgets.
_FORGOTTEN = -3

_HEAD = struct.Struct(">Ihq")  # CRC-32C of all that follows it, version, offset
_SECTION = struct.Struct(">bI")  # kind, length
_OFFSET = struct.Struct(">q")
_U32 = struct.Struct(">I")
_CRC_BYTES = 4


class Section(IntEnum):
    """The kind of a part of a snapshot file."""

    PRODUCERS = 1
    FENCE = 2
    KEYS = 3
    SOURCES = 4


class State(NamedTuple):
    """The state that follows from the log below an offset."""

    offset: int
    producers: Sequence[tuple[int, Producer]] = ()
    fence: Fence = NO_FENCE
    keys: bytes | bytearray = b""  # since the state before: rows of engine/producers/key_window.py
    key_files: Sequence[int] = ()  # the states that have earlier ones, oldest first
    sources: Sequence[tuple[bytes, Source]] = ()
    forgotten_id_max: int = ID_MAX


def encode_state(state: State) -> bytes:
    producers = state.producers
    if state.forgotten_id_max < ID_MAX:
        producers = [(_FORGOTTEN, Producer(0, 0, 0, array("q", (0, 0, state.forgotten_id_max, 0)))), *producers]
    sections = {Section.PRODUCERS: encode_producers(producers), Section.FENCE: _encode_fence(state.fence)}
    if state.keys or state.key_files:
        sections[Section.KEYS] = struct.pack(f">I{len(state.key_files)}q", len(state.key_files), *state.key_files)
        sections[Section.KEYS] += state.keys
    sections[Section.SOURCES] = encode_sources(state.sources)
    encoded = [_SECTION.pack(kind, len(data)) + data for kind, data in sections.items() if data]
    body = b"".join((_HEAD.pack(0, VERSION, state.offset), *encoded))[_CRC_BYTES:]
    return struct.pack(">I", crc32c(body)) + body


def decode_state(data: bytes | None, offset: int) -> State | None:
    """Decodes a file; None if it is absent, damaged, of another format, or of another offset than its name."""
    if data is None or len(data) < _HEAD.size:
        return None
    checksum, version, own_offset = _HEAD.unpack_from(data)
    if checksum != crc32c(memoryview(data)[_CRC_BYTES:]) or (version, own_offset) != (VERSION, offset):
        return None
    state, position = State(offset), _HEAD.size
    while position < len(data):
        kind, length = _SECTION.unpack_from(data, position)
        body = data[position + _SECTION.size : position + _SECTION.size + length]
        position += _SECTION.size + length
        if kind == Section.PRODUCERS:
            producers = list(decode_producers(body))
            if producers and producers[0][0] == _FORGOTTEN:
                state = state._replace(forgotten_id_max=producers.pop(0)[1].batches[2])
            state = state._replace(producers=producers)
        elif kind == Section.FENCE:
            state = state._replace(fence=Fence(body[_OFFSET.size :].decode("latin-1"), *_OFFSET.unpack_from(body)))
        elif kind == Section.KEYS:
            files = struct.unpack_from(f">{_U32.unpack_from(body)[0]}q", body, _U32.size)
            state = state._replace(keys=body[_U32.size + len(files) * _OFFSET.size :], key_files=files)
        elif kind == Section.SOURCES:
            state = state._replace(sources=list(decode_sources(body)))
        else:
            return None
    return state


def _encode_fence(fence: Fence) -> bytes:
    return b"" if fence == NO_FENCE else _OFFSET.pack(fence.offset) + fence.token.encode("latin-1")


class SnapshotFiles:
    """The offsets of the snapshots of one open partition, so that a roll does not list a directory of many segments.

    Lists it once, and then tracks the writes and removals of `save_state`. Safe for threads.
    """

    def __init__(self) -> None:
        self._offsets: set[int] | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SnapshotFiles({self._offsets})"

    def offsets(self, disk: Disk, directory: str) -> list[int]:
        """Returns the offsets, ascending. Raises OSError."""
        with self._lock:
            if self._offsets is None:
                self._offsets = set(snapshot_offsets(disk, directory))
            return sorted(self._offsets)

    def note_changes(self, *, added: int | None = None, removed: Iterable[int] = ()) -> None:
        """Notes a written snapshot, and removed ones."""
        with self._lock:
            if self._offsets is not None:
                self._offsets |= set() if added is None else {added}
                self._offsets -= set(removed)

    def invalidate(self) -> None:
        """List the directory at the next use: a truncation has removed snapshots, or a write has failed."""
        with self._lock:
            self._offsets = None


def save_state(
    disk: Disk,
    directory: str,
    state: State,
    committed: int = EVERYTHING,
    files: SnapshotFiles | None = None,
    write: Callable[[Disk, str, bytes], None] = write_atomically,
) -> None:
    """Write a snapshot durably and remove old ones; `committed` is the high watermark. Blocks. Raises OSError."""
    files = files or SnapshotFiles()
    try:
        write(disk, _file(directory, state.offset), encode_state(state))
        files.note_changes(added=state.offset)
        offsets = files.offsets(disk, directory)
        last_committed = [offset for offset in offsets if offset <= committed][-1:]
        old = set(offsets) - {state.offset, *offsets[-KEPT:], *last_committed, *state.key_files}
        for offset in old:
            with suppress(FileNotFoundError):  # two rolls may remove the same one
                disk.unlink(_file(directory, offset))
        files.note_changes(removed=old)
    except OSError:
        files.invalidate()
        raise


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Returns the offsets of the snapshots, ascending."""
    names = (name for name in disk.listdir(directory) if name.endswith(paths.SNAPSHOT))  # most are of segments
    offsets = map(paths.snapshot_offset_of, names)
    return sorted(offset for offset in offsets if offset is not None)


def remembers(disk: Disk, directory: str, begin: int, end: int, files: SnapshotFiles | None = None) -> bool:
    """Return whether there is a valid snapshot of an offset from `begin` to `end`, both included, with all its keys."""
    offsets = (files or SnapshotFiles()).offsets(disk, directory)
    for offset in reversed(offsets):
        if begin <= offset <= end and (state := _load(disk, directory, offset)) is not None:
            return set(offsets) >= set(state.key_files)
    return False


def load_latest(disk: Disk, directory: str, log_end: int) -> State | None:
    """Loads the latest readable snapshot. First removes those beyond the log's end, durably: they are of a lost log."""
    offsets = snapshot_offsets(disk, directory)
    beyond = [offset for offset in offsets if offset > log_end]
    for offset in beyond:
        disk.unlink(_file(directory, offset))
    if beyond:
        disk.fsync_dir(directory)
    return read_latest(disk, directory, log_end)


def read_latest(disk: Disk, directory: str, log_end: int) -> State | None:
    """Return the latest readable snapshot up to the log's end, and change nothing."""
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset <= log_end and (state := _load(disk, directory, offset)) is not None:
            return state
    return None


def load_keys(disk: Disk, directory: str, state: State) -> tuple[list[State], bool]:
    """Loads the states whose keys make up this one's, oldest first. Also returns whether all could be read.

    If not, returns all available older ones: one may have the missing keys.
    """
    states = [_load(disk, directory, offset) for offset in state.key_files]
    if all(states):
        return [*filter(None, states), state], True
    states = [_load(disk, directory, offset) for offset in snapshot_offsets(disk, directory) if offset < state.offset]
    return [*filter(None, states), state], False


def _load(disk: Disk, directory: str, offset: int) -> State | None:
    return decode_state(read_derived(disk, _file(directory, offset)), offset)


def _file(directory: str, offset: int) -> str:
    return os.path.join(directory, paths.segment_file(offset, paths.SNAPSHOT))
