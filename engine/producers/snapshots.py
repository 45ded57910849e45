"""Snapshot files: what a partition must know of its log to judge the next append, as it was at one offset.

`<offset>.snapshot` holds the state that follows from all that lies below that offset. One is made of each roll, for the
base of the new segment, and one at a clean stop, for the log's end, so that a start walks what came since and no more.
A clean stop makes none of a short log that tells nothing, and none once its time is over
(engine/directory/log_directory_manager.py). One that is absent, damaged or of another format is as if it had never been
(engine/producers/state_loader.py walks further back).
Layout: engine/format/FORMAT.md.

The keys of a window may be a million, so each file has those only that came since the one before, and names the earlier
files that have others (`key_files`); these stay until their keys have left the window.

To keep more: a Section, its field in State, its lines in `encode_state` and `decode_state`. A kind that is not known
makes the whole file one of another format: a state that is understood in part would be a wrong one.
Invariants: a file never claims more than the log has; one beyond the log's end is removed before anything is appended.
A file is durable before an older one goes, and before records that it remembers leave the disk
(engine/cleaning/log_start.py): from then on nothing else tells of them, and a retry would be stored again. One of them
is of what is committed, which no cut takes back.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from engine.format import paths
from engine.producers.fencing import NO_FENCE, Fence
from engine.producers.sequences import Producer, decode_producers, encode_producers
from engine.runtime.disk import Disk, read_file, write_atomically

VERSION = 1
KEPT = 2  # the one before serves if the latest is damaged
EVERYTHING = 1 << 63

_HEAD = struct.Struct(">Ihq")  # CRC-32C of all that follows it, version, offset
_SECTION = struct.Struct(">bI")  # kind, length
_OFFSET = struct.Struct(">q")
_U32 = struct.Struct(">I")
_CRC_BYTES = 4


class Section(IntEnum):
    """What a part of a snapshot file holds."""

    PRODUCERS = 1
    FENCE = 2
    KEYS = 3


class State(NamedTuple):
    """What follows from the log below an offset."""

    offset: int
    producers: Sequence[tuple[int, Producer]] = ()
    fence: Fence = NO_FENCE
    keys: bytes | bytearray = b""  # since the state before: rows of engine/producers/key_window.py
    key_files: Sequence[int] = ()  # the states that have earlier ones, oldest first


def encode_state(state: State) -> bytes:
    sections = {Section.PRODUCERS: encode_producers(state.producers), Section.FENCE: _encode_fence(state.fence)}
    if state.keys or state.key_files:
        sections[Section.KEYS] = struct.pack(f">I{len(state.key_files)}q", len(state.key_files), *state.key_files)
        sections[Section.KEYS] += state.keys
    encoded = [_SECTION.pack(kind, len(data)) + data for kind, data in sections.items() if data]
    body = b"".join((_HEAD.pack(0, VERSION, state.offset), *encoded))[_CRC_BYTES:]
    return struct.pack(">I", crc32c(body)) + body


def decode_state(data: bytes | None, offset: int) -> State | None:
    """None for a file that is absent, damaged, of another format, or not what its name says."""
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
            state = state._replace(producers=list(decode_producers(body)))
        elif kind == Section.FENCE:
            state = state._replace(fence=Fence(body[_OFFSET.size :].decode("latin-1"), *_OFFSET.unpack_from(body)))
        elif kind == Section.KEYS:
            files = struct.unpack_from(f">{_U32.unpack_from(body)[0]}q", body, _U32.size)
            state = state._replace(keys=body[_U32.size + len(files) * _OFFSET.size :], key_files=files)
        else:
            return None
    return state


def _encode_fence(fence: Fence) -> bytes:
    return b"" if fence == NO_FENCE else _OFFSET.pack(fence.offset) + fence.token.encode("latin-1")


def save_state(disk: Disk, directory: str, state: State, committed: int = EVERYTHING) -> None:
    """Write a snapshot durably and let old ones go; `committed` is the high watermark. In a thread. Raises OSError."""
    write_atomically(
        disk, os.path.join(directory, paths.segment_file(state.offset, paths.SNAPSHOT)), encode_state(state)
    )
    offsets = snapshot_offsets(disk, directory)
    last_committed = [offset for offset in offsets if offset <= committed][-1:]
    for offset in set(offsets) - {state.offset, *offsets[-KEPT:], *last_committed, *state.key_files}:
        with suppress(FileNotFoundError):  # two rolls may let the same one go
            disk.unlink(os.path.join(directory, paths.segment_file(offset, paths.SNAPSHOT)))


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The snapshots that there are, ascending."""
    found = (paths.snapshot_offset_of(name) for name in disk.listdir(directory))
    return sorted(offset for offset in found if offset is not None)


def remembers(disk: Disk, directory: str, begin: int, end: int) -> bool:
    """Whether there is a whole snapshot of an offset from `begin` to `end`, both included, with all its keys."""
    offsets = snapshot_offsets(disk, directory)
    for offset in reversed(offsets):
        if begin <= offset <= end and (state := _load(disk, directory, offset)) is not None:
            return set(offsets) >= set(state.key_files)
    return False


def load_latest(disk: Disk, directory: str, log_end: int) -> State | None:
    """The latest snapshot that can be read. Those beyond the log's end go first, durably: its future is another now."""
    offsets = snapshot_offsets(disk, directory)
    beyond = [offset for offset in offsets if offset > log_end]
    for offset in beyond:
        disk.unlink(os.path.join(directory, paths.segment_file(offset, paths.SNAPSHOT)))
    if beyond:
        disk.fsync_dir(directory)
    for offset in reversed(offsets[: len(offsets) - len(beyond)]):
        state = _load(disk, directory, offset)
        if state is not None:
            return state
    return None


def load_keys(disk: Disk, directory: str, state: State) -> tuple[list[State], bool]:
    """The states whose keys make up what is remembered at this one, oldest first, and whether all could be read.

    If not, whatever older ones there are: one may have what is missing.
    """
    states = [_load(disk, directory, offset) for offset in state.key_files]
    if all(states):
        return [*filter(None, states), state], True
    states = [_load(disk, directory, offset) for offset in snapshot_offsets(disk, directory) if offset < state.offset]
    return [*filter(None, states), state], False


def _load(disk: Disk, directory: str, offset: int) -> State | None:
    file = os.path.join(directory, paths.segment_file(offset, paths.SNAPSHOT))
    return decode_state(read_file(disk, file), offset)
