"""The disk of a simulated node: RecordingDisk, with fsyncs that can fail as on Linux.

After a failed fsync the kernel marks the pages clean: a later fsync succeeds and writes nothing. Only bytes that are
written again can become durable.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from copy import deepcopy
from inspect import unwrap
from itertools import islice
from random import Random

from engine.format import paths
from engine.testing.recorded_file import RecordedFile
from engine.testing.recording_disk import RecordingDisk

_STATES_LOOKED_AT = 4
_pwritev, _fdatasync = unwrap(RecordingDisk.pwritev), unwrap(RecordingDisk.fdatasync)
_NEW_FILES = "|".join(re.escape(suffix + paths.TEMPORARY) for suffix in (paths.COMPACTED, paths.REPAIRED))
_GROWS = re.compile(rf"\.log$|({_NEW_FILES})$|/{paths.LEADER_EPOCHS}").search
_pread = unwrap(RecordingDisk.pread)


class SimDisk(RecordingDisk):
    """`failing_syncs` counts down: this many of the next segment syncs fail. While `is_full` is set, segments and the
    list of epochs cannot grow. Reads of a file that is in `unreadable` fail.
    """

    failing_syncs = 0
    is_full = False
    has_bad_sectors = False  # since a fault of this disk; what is read is checked only then

    # A simulation has one thread, and its power fails between calls only: these hot calls need no lock.
    open = unwrap(RecordingDisk.open)
    fsync_dir = unwrap(RecordingDisk.fsync_dir)
    rename = unwrap(RecordingDisk.rename)
    stat = unwrap(RecordingDisk.stat)

    def __init__(self, clock=None, *, tree=None, boots=1, given_up: dict[RecordedFile, int] | None = None) -> None:
        super().__init__(clock, tree=tree, boots=boots)
        self._given_up: dict[RecordedFile, int] = {} if given_up is None else given_up
        self.unreadable: list[RecordedFile] = []

    def pread(self, handle: int, length: int, position: int) -> bytes:
        if self.unreadable and self._handle(handle).file in self.unreadable:
            raise OSError(errno.EIO, "the disk cannot read it", self._handle(handle).path)
        return _pread(self, handle, length, position)

    def fail_reads(self, path: str) -> RecordedFile:
        """Fail reads of this file until it is removed from `unreadable`, or the file is replaced."""
        self.has_bad_sectors = True
        file = self._file(path)
        self.unreadable.append(file)
        return file

    def damage(self, path: str, position: int) -> None:
        """Change a byte on the disk."""
        self.has_bad_sectors = True
        file = self._file(path)
        for content in (file.visible, file.durable):
            content[position] ^= 0xFF

    def _file(self, path: str) -> RecordedFile:
        file = self._tree.find(path)
        assert isinstance(file, RecordedFile)
        return file

    def pwritev(self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        opened = self._handle(handle)
        file = opened.file
        if self.is_full and _GROWS(opened.path) and position + sum(map(len, buffers)) > len(file.visible):
            raise OSError(errno.ENOSPC, "the disk is full", opened.path)
        if self._given_up and self._given_up.get(file, position) >= position:
            self._given_up.pop(file, None)
        return _pwritev(self, handle, buffers, position)

    def fdatasync(self, handle: int) -> None:
        opened = self._handle(handle)
        if self.failing_syncs and opened.path.endswith(".log") and opened.file.has_unsynced:
            self.failing_syncs -= 1
            self._given_up[opened.file] = len(opened.file.durable)
            raise OSError(errno.EIO, "the disk did not take it", opened.path)
        if opened.file not in self._given_up:
            _fdatasync(self, handle)

    def after_kill(self) -> SimDisk:
        """Return the same files for the next process: the page cache survives."""
        after = SimDisk(self._clock, tree=self._tree, boots=self.boots, given_up=self._given_up)
        after.unreadable = self.unreadable
        return self._like(after)

    def copied(self) -> SimDisk:
        """Return a copy of all files at this moment, as a snapshot of the volume has them."""
        return self._like(SimDisk(self._clock, tree=deepcopy(self._tree), boots=self.boots))

    def rebooted(self, boots: int) -> SimDisk:
        return self._like(SimDisk(self._clock, tree=self._tree, boots=boots))

    def after_power_loss(self, random: Random) -> SimDisk:
        """Return one of the possible states after a power loss, including the extremes."""
        state_number = random.randrange(_STATES_LOOKED_AT)
        states = list(islice(self.crash_states(_STATES_LOOKED_AT, random), state_number + 1))
        return self._like(SimDisk(self._clock, tree=states[-1]._tree, boots=self.boots + 1))

    def _like(self, other: SimDisk) -> SimDisk:
        other.has_bad_sectors = self.has_bad_sectors
        return other
