"""Copies the files of an open partition into a directory that takes its place, while the partition is written.

Blocking; runs in the thread of the moves. engine/shard/directory_moves.py decides when, and pauses the partition for
`finish` and `commit`. Segments are copied as far as they are written; a segment that was cut, damaged or repaired since
is copied again from its start. All other files are small, and are copied by `finish`, or before it and again if they
differ. The copy is `<partition>.<move id>.future` until `commit`: (1) the partition's directory becomes
`<partition>.<move id>.moved`, durably, which decides the move; (2) the copy takes the partition's name.
Invariants: every byte of the copy is fsynced before (1); the copy has no segment that the log does not have; a file
that the engine did not make is neither copied nor removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from engine.directory.safe_delete import remove_partition_dir
from engine.errors import StorageFailed
from engine.format import paths
from engine.log.segment import Segment
from engine.log.segment_swap import settle_swaps
from engine.runtime.disk import Disk, FileKind, FileStat

PIECE_BYTES = 128 * 1024  # larger pieces give no speed, and a cancel waits for one
_DERIVED = (paths.OFFSET_INDEX, paths.TIME_INDEX, paths.CHECKSUM)  # copied with their sealed segment

Pace = Callable[[int], None]  # called before each piece with its bytes; raises to give up


class SegmentState(NamedTuple):
    """A segment as it was when a step of the copy began."""

    segment: Segment
    size_bytes: int
    changes: int
    is_sealed: bool


class _Copied(NamedTuple):
    segment: Segment
    changes: int
    size_bytes: int


class SourceUnreadable(StorageFailed):
    """The replica cannot be read completely, so that it cannot be moved. Repair it, or reassign it to another node."""


def segment_states(segments: Sequence[Segment]) -> list[SegmentState]:
    """Returns what there is to copy now. Called on the event loop."""
    last = len(segments) - 1
    return [SegmentState(one, one.size_bytes, one.changes, at < last) for at, one in enumerate(segments)]


class PartitionCopy:
    """The copy of one partition from the directory `source` to the one that will be `target`."""

    def __init__(self, disk: Disk, source: str, target: str, move_id: str) -> None:
        self._disk = disk
        self._source = source
        self._target = target
        self._future = paths.move_directory(target, move_id, paths.FUTURE)
        self._moved = paths.move_directory(source, move_id, paths.MOVED)
        self._segments: dict[int, _Copied] = {}  # by base offset
        self._others: dict[str, FileStat] = {}  # other files by name, as they were when they were copied
        self._is_decided = False  # the copy may be the only replica
        self._is_renamed = False  # durably, and the copy has not taken the name

    def __repr__(self) -> str:
        return f"PartitionCopy({self._source} to {self._future}, {len(self._segments)} segments)"

    def left_bytes(self, states: Sequence[SegmentState]) -> int:
        """Returns the bytes of segments that are not copied yet."""
        return sum(state.size_bytes - self._copied_bytes(state) for state in states)

    def prepare(self) -> None:
        """Makes the directory of the copy, durably. Raises OSError."""
        self._disk.mkdir(self._future)
        parent = os.path.dirname(self._future)
        for _ in range(4):  # the directories of the topic's id, of its name, of all topics, and of the node
            self._disk.fsync_dir(parent)
            parent = os.path.dirname(parent)

    def copy(self, states: Sequence[SegmentState], pace: Pace) -> None:
        """Copies what is missing, durably. Raises OSError, SourceUnreadable, and what `pace` raises."""
        self._drop_removed(states)
        for state in states:
            if self._copied_bytes(state) < state.size_bytes or state.segment.base_offset not in self._segments:
                with suppress(FileNotFoundError):  # retention or compaction has just removed it; `finish` is strict
                    self._copy_segment(state, pace)
            if state.is_sealed:
                for suffix in _DERIVED:
                    self._copy_other(paths.segment_file(state.segment.base_offset, suffix), pace)

    def finish(self, states: Sequence[SegmentState]) -> int | None:
        """Makes the copy complete. The partition is paused, and its segments do not change.

        Returns the handle that appends to the last segment; None if that has no file yet. Raises OSError,
        SourceUnreadable.
        """
        with self._reading():
            settle_swaps(self._disk, self._source)
            listed = self._disk.listdir(self._source)
        self._drop_removed(states)
        for state in states:
            if self._copied_bytes(state) < state.size_bytes or state.segment.base_offset not in self._segments:
                self._copy_segment(state, _at_once)
        bases = {paths.digits(state.segment.base_offset) for state in states}
        names = [name for name in listed if _is_copied(name, bases)]
        for name in names:
            is_derived = name.endswith(_DERIVED)
            self._copy_other(name, _at_once, is_forced=not is_derived)
        for name in self._others.keys() - set(names):
            self._disk.unlink(f"{self._future}/{name}")
        for state in states:
            self._date_segment(state.segment)
        self._disk.fsync_dir(self._future)
        active = states[-1].segment
        path = self._file(paths.segment_file(active.base_offset, paths.LOG))
        return self._disk.open(path, writable=True) if self._disk.stat(path) is not None else None

    def begin_commit(self) -> None:
        """Gives up the partition's directory, durably: from now on the copy is the replica. Raises SourceUnreadable.

        If the sync fails, either of both directories may be the replica after a restart: they are equal.
        """
        self._is_decided = True
        with self._reading():
            try:
                self._disk.rename(self._source, self._moved)
            except OSError:
                self._is_decided = self._disk.stat(self._source) is None
                raise
            self._disk.fsync_dir(os.path.dirname(self._source))
        self._is_renamed = True

    def commit(self) -> None:
        """Gives the copy the partition's name. Raises OSError: see `revert`."""
        self._disk.rename(self._future, self._target)
        self._is_renamed = False
        self._disk.fsync_dir(os.path.dirname(self._target))

    def revert(self) -> bool:
        """Takes a failed commit back. Returns whether the partition's directory is as before.

        After a failed sync the state on the disk is unknown, so that this leaves all to the next start. Raises OSError.
        """
        if self._is_decided and self._is_renamed:
            self._disk.rename(self._moved, self._source)
            self._disk.fsync_dir(os.path.dirname(self._source))
            self._is_decided = False
        return not self._is_decided

    def remove(self) -> None:
        """Removes a copy that is not used. Raises OSError."""
        if not self._is_decided and self._disk.kind(self._future) is FileKind.DIRECTORY:
            remove_partition_dir(self._disk, self._future)
            self._disk.fsync_dir(os.path.dirname(self._future))

    def remove_moved(self) -> list[str]:
        """Removes the replica's old directory after the move. Returns the files that stay. Raises OSError."""
        left = remove_partition_dir(self._disk, self._moved)
        self._disk.fsync_dir(os.path.dirname(self._moved))
        return left

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raises SourceUnreadable for errors of the source, which do not take the target offline."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SourceUnreadable(f"{self._source} cannot be moved: {error}") from error

    def _file(self, name: str) -> str:
        return f"{self._future}/{name}"

    def _copied_bytes(self, state: SegmentState) -> int:
        copied = self._segments.get(state.segment.base_offset)
        is_same = copied is not None and (copied.segment, copied.changes) == (state.segment, state.changes)
        return copied.size_bytes if copied is not None and is_same else 0

    def _drop_removed(self, states: Sequence[SegmentState]) -> None:
        """Removes segments from the copy that the log does not have any more, with their derived files."""
        present = {state.segment.base_offset for state in states}
        for base_offset in self._segments.keys() - present:
            del self._segments[base_offset]
            for suffix in (*_DERIVED, paths.LOG):
                name = paths.segment_file(base_offset, suffix)
                self._others.pop(name, None)
                if self._disk.stat(self._file(name)) is not None:
                    self._disk.unlink(self._file(name))

    def _copy_segment(self, state: SegmentState, pace: Pace) -> None:
        segment, position = state.segment, self._copied_bytes(state)
        path = self._file(paths.segment_file(segment.base_offset, paths.LOG))
        if not segment.is_made or (state.size_bytes == 0 and self._disk.stat(segment.path) is None):
            return
        release = segment.begin_read()
        try:
            with self._reading():
                segment.handle  # noqa: B018 - raises FileNotFoundError before the copy has a file
            handle = self._disk.open(path, create=True, writable=True)
            try:
                if position == 0:
                    self._disk.truncate(handle, 0)
                while position < state.size_bytes:
                    length = min(PIECE_BYTES, state.size_bytes - position)
                    pace(length)
                    _write(self._disk, handle, _read(segment, length, position), position)
                    position += length
                self._disk.fdatasync(handle)
            finally:
                self._disk.close(handle)
        finally:
            release()
        self._segments[segment.base_offset] = _Copied(segment, state.changes, position)

    def _copy_other(self, name: str, pace: Pace, *, is_forced: bool = False) -> None:
        """Copies a file that is replaced and never written in place, unless it is copied as it is."""
        source = f"{self._source}/{name}"
        with self._reading():
            stat = self._disk.stat(source)
        if stat is None or (self._others.get(name) == stat and not is_forced):
            return
        try:
            with self._reading():
                from_handle = self._disk.open(source)
        except FileNotFoundError:
            return
        try:
            handle = self._disk.open(self._file(name), create=True, writable=True)
            try:
                self._disk.truncate(handle, 0)
                position = 0
                while piece := self._piece(from_handle, position):
                    pace(len(piece))
                    _write(self._disk, handle, piece, position)
                    position += len(piece)
                self._disk.fdatasync(handle)
            finally:
                self._disk.close(handle)
        finally:
            self._disk.close(from_handle)
        self._others[name] = stat

    def _piece(self, handle: int, position: int) -> bytes:
        with self._reading():
            return self._disk.pread(handle, PIECE_BYTES, position)

    def _date_segment(self, segment: Segment) -> None:
        """Retention counts the age of a segment from the time of its file after a restart."""
        name = paths.segment_file(segment.base_offset, paths.LOG)
        with self._reading():
            stat = self._disk.stat(f"{self._source}/{name}")
        if stat is not None and self._disk.stat(self._file(name)) is not None:
            self._disk.set_modified(self._file(name), stat.modified_ms)


def _is_copied(name: str, bases: set[str]) -> bool:
    """True for a file that `finish` copies: one of the engine's, complete, and of the log as it is."""
    stem, dot, suffix = name.partition(".")
    if not paths.is_partition_file(name) or name.endswith(paths.TEMPORARY) or name == paths.MOVED_AWAY:
        return False
    if dot + suffix in paths.DERIVED_SUFFIXES:
        return stem in bases
    return dot + suffix not in (paths.LOG, paths.SWAP)


def _at_once(_: int) -> None:
    """Waits for nothing: the partition is paused meanwhile."""


def _read(segment: Segment, length: int, position: int) -> bytes:
    try:
        data = segment.pread(length, position)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceUnreadable(f"{segment.path} cannot be read: {error}") from error
    if len(data) != length:
        raise SourceUnreadable(f"{segment.path} ends at byte {position + len(data)}, {position + length} expected")
    return data


def _write(disk: Disk, handle: int, data: bytes, position: int) -> None:
    written = disk.pwritev(handle, [data], position)
    if written != len(data):
        raise OSError(28, f"short write: {written} of {len(data)} bytes")
