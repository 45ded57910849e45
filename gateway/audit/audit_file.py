"""The audit files of one node: lines of JSON, appended and made durable, in files that take turns.

Knows no event: gateway/audit/events.py makes the lines. One process has the directory, by a lock. A file that has
reached its size gives way to the next number, and the oldest go. On a full disk the next file is made of a spare file
of the data directory (engine/format/spare_files.py), so that what frees space can still be recorded; its end is zeros
until it is cut. Blocks, so it runs in a thread.
Invariants:
- lines count as written once they are fsynced; those of a failed append are cut off again, or their file is left;
- a file whose last line is not whole is never written again, nor mended: the next one begins;
- what does not have the name of an audit file is not touched.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import NamedTuple

import orjson

from engine.errors import NO_SPACE
from engine.format import paths
from engine.format.spare_files import LARGE_BYTES_MIN, claim_spare, overwrite_spare
from engine.runtime.disk import Disk, FileKind, write_fully

log = logging.getLogger("penstock.audit")

TAIL_BYTES = 256 * 1024  # more than any line has


class AuditLimits(NamedTuple):
    """The bounds of the files together."""

    file_bytes_max: int
    files_max: int


class AuditFile:
    """The present file of a directory, which must not be in use. `open` comes first."""

    def __init__(self, disk: Disk, directory: str, limits: AuditLimits) -> None:
        self._disk = disk
        self._directory = directory
        self._limits = limits
        self._lock: int | None = None
        self._handle: int | None = None
        self._number = 0
        self._size_bytes = 0
        self._is_spare = False  # its end may be zeros

    def __repr__(self) -> str:
        return f"AuditFile({self.path}, size_bytes={self._size_bytes})"

    @property
    def path(self) -> str:
        return self._path(self._number)

    def open(self) -> bool:
        """Goes on with the newest file, or begins the next one. Returns False if the newest one ends oddly.

        Raises OSError; BlockingIOError if another process has the directory.
        """
        self._disk.mkdir(self._directory)
        self._disk.fsync_dir(os.path.dirname(self._directory))
        self._lock = self._disk.lock(f"{self._directory}/{paths.LOCK}")
        self._number = max(self._numbers(), default=0)
        if self._number and self._disk.kind(self.path) is FileKind.FILE:
            handle = self._disk.open(self.path, writable=True)
            size_bytes = self._disk.size(handle)
            if _ends_whole(self._disk.pread(handle, TAIL_BYTES, max(0, size_bytes - TAIL_BYTES))):
                self._handle, self._size_bytes = handle, size_bytes
                return True
            self._disk.close(handle)
        is_odd = self._number > 0
        if is_odd:
            log.warning(
                "the newest audit file ends oddly; it is kept, and the next one begins", extra={"file": self.path}
            )
        self._begin()
        return not is_odd

    def append(self, lines: bytes) -> None:
        """Appends whole lines; they are durable when it returns. Raises OSError: then they are not there."""
        assert lines.endswith(b"\n")
        try:
            is_full = self._size_bytes > 0 and self._size_bytes + len(lines) > self._limits.file_bytes_max
            if self._handle is None or is_full:
                self._begin()
            self._write(lines)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._begin_with_spare(lines):
                raise

    def close(self) -> None:
        """Releases the directory."""
        self._leave()
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None

    def _write(self, lines: bytes) -> None:
        assert self._handle is not None
        try:
            write_fully(self._disk, self._handle, lines, self._size_bytes)
            self._disk.fdatasync(self._handle)
        except OSError as error:
            self._cut_off(is_synced=error.errno in NO_SPACE)
            raise
        self._size_bytes += len(lines)

    def _cut_off(self, *, is_synced: bool) -> None:
        """Removes what a failed append may have written. The file is left if that fails, or if a sync has failed."""
        try:
            assert self._handle is not None
            self._disk.truncate(self._handle, self._size_bytes)
            self._is_spare = False
        except OSError:
            is_synced = False
        if not is_synced:
            self._leave()

    def _begin(self) -> None:
        """Begins the next file, and removes the oldest. Raises OSError."""
        self._leave()
        number = self._number + 1
        while self._disk.kind(self._path(number)) is not None:
            number += 1
        self._handle = self._disk.open(self._path(number), create=True, writable=True)
        self._number, self._size_bytes, self._is_spare = number, 0, False
        self._disk.fsync_dir(self._directory)
        self._remove_oldest()

    def _begin_with_spare(self, lines: bytes) -> bool:
        """Begins the next file with these lines, in a spare file. Returns False if there is none to be had."""
        path = self._path(self._number + 1)
        try:
            if self._disk.kind(path) is not None:
                return False
            claimed = claim_spare(self._disk, path, max(len(lines), LARGE_BYTES_MIN))
            if claimed is None:
                return False
            handle = overwrite_spare(self._disk, claimed, lines, keeps_room=True)
            self._disk.rename(claimed, path)
            self._disk.fsync_dir(self._directory)
        except OSError as error:
            log.warning("no spare file could be used for the audit trail", extra={"reason": str(error)})
            return False
        self._leave()
        self._handle, self._number = handle, self._number + 1
        self._size_bytes, self._is_spare = len(lines), True
        return True

    def _leave(self) -> None:
        handle, self._handle = self._handle, None
        if handle is None:
            return
        with suppress(OSError):
            if self._is_spare:
                self._disk.truncate(handle, self._size_bytes)
            self._disk.close(handle)

    def _remove_oldest(self) -> None:
        files = [one for one in self._numbers() if self._disk.kind(self._path(one)) is FileKind.FILE]
        for number in files[: -self._limits.files_max]:
            with suppress(OSError):
                self._disk.unlink(self._path(number))

    def _numbers(self) -> list[int]:
        found = map(paths.audit_number, self._disk.listdir(self._directory))
        return sorted(number for number in found if number is not None)

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, paths.audit_file(number))


def _ends_whole(tail: bytes) -> bool:
    """Returns whether a file with this end can be continued: it is empty, or its last line is a whole event."""
    if not tail:
        return True
    if not tail.endswith(b"\n"):
        return False
    try:
        return isinstance(orjson.loads(tail[:-1].rpartition(b"\n")[2]), dict)
    except orjson.JSONDecodeError:
        return False
