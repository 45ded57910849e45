"""Reads of committed batches by a process that does not own their partition: the owner names file range and checksums.

Committed batches never change, and the processes of a node share the page cache, so that the bytes need not cross a
socket. The owner decides what may be read (`file_range_of`); `SharedFileReads` reads the file and knows no partition.
It trusts nothing that it reads: another file may have the name by now. Then the owner has to be asked for the bytes.
Invariants: every byte returned was compared with a checksum; a file without reads is closed within CLOSE_S, so
that a deleted one frees its space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from msgspec import Struct

from engine.errors import EngineError
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.partition.valid_span import SpanCheck, span_check, valid_at_once
from engine.runtime.disk import Disk, WouldBlock

R = TypeVar("R")

FILES_MAX = 8  # open at once, and those of reads under way
CLOSE_S = 5.0
SIZE_BYTES_MIN = 64 * 1024  # smaller ones cross the socket at a lower cost


class FileRange(Struct, frozen=True, array_like=True):
    """Whole batches in a file of this node, up to `next_offset`."""

    path: str
    start: int
    size_bytes: int
    next_offset: int
    check: SpanCheck


def file_range_of(partition: Partition, offset: int, max_bytes: int) -> FileRange | None:
    """Returns the range of committed batches; None if their owner has to read them, or raises an error for them."""
    log, watermark = partition.log, partition.watermark
    if not log.local_log_start <= offset < watermark.position or partition.offline is not None:
        return None
    try:
        partition.check_readable(offset)
        segment = log.segment_of(offset)
        if segment.loaded_index is None or segment.damage or segment.is_being_replaced:
            return None
        span = log.locate(offset, max_bytes, watermark.position, watermark.byte_position)
    except EngineError:
        return None
    if span is None or (size_bytes := span.end - span.start) < SIZE_BYTES_MIN:
        return None
    check = span_check(span, offset, size_bytes)
    return None if check is None else FileRange(segment.path, span.start, size_bytes, span.next_offset, check)


@dataclass(slots=True)
class _File:
    handle: int
    used_at: float
    readers: int = 0
    is_dropped: bool = False


class SharedFileReads:
    """Reads file ranges, on one event loop."""

    def __init__(self, disk: Disk, executor: Executor) -> None:
        self._disk = disk
        self._executor = executor
        self._files: dict[str, _File] = {}
        self._closing: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"SharedFileReads({len(self._files)} files)"

    async def read(self, file_range: FileRange, offset: int) -> Chunk | None:
        """Returns the batches from the one that holds the offset on; None if the file does not have them."""
        file = self._files.get(file_range.path)
        if file is None:
            try:
                handle = await self._in_thread(lambda: self._disk.open(file_range.path), self._close_opened)
            except OSError:
                return None
            file = self._add(file_range.path, handle)
        file.readers += 1
        try:
            data = await self._read(file, file_range)
        except OSError:
            data = b""
        finally:
            self._end(file)
        run = valid_at_once(file_range.check, offset, data) if len(data) == file_range.size_bytes else None
        if run is None or run.end != len(data) or run.next_offset != file_range.next_offset:
            self._drop(file_range.path)
            return None
        return Chunk(data if run.begin == 0 else data[run.begin :], run.next_offset)

    def close(self) -> None:
        for path in list(self._files):
            self._drop(path)
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    async def _read(self, file: _File, file_range: FileRange) -> bytes | bytearray:
        try:
            return self._disk.pread_nowait(file.handle, file_range.size_bytes, file_range.start)
        except WouldBlock:
            read = partial(self._disk.pread, file.handle, file_range.size_bytes, file_range.start)
        file.readers += 1  # a thread that reads ends by itself, even if no task waits for it
        try:
            data: bytes = await self._in_thread(read, partial(self._end_abandoned, file))
        except OSError:
            self._end(file)
            raise
        self._end(file)
        return data

    async def _in_thread(self, call: Callable[[], R], abandoned: Callable[[asyncio.Future[R]], object]) -> R:
        """Calls `abandoned` with the future at its end if the caller is cancelled before that."""
        calling = asyncio.get_running_loop().run_in_executor(self._executor, call)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            calling.add_done_callback(abandoned)
            raise

    def _close_opened(self, opening: asyncio.Future[int]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._disk.close(opening.result())

    def _end_abandoned(self, file: _File, reading: asyncio.Future[bytes]) -> None:
        if not reading.cancelled():
            reading.exception()  # marks it as retrieved
        self._end(file)

    def _add(self, path: str, handle: int) -> _File:
        loop = asyncio.get_running_loop()
        if (other := self._files.get(path)) is not None:  # another read was faster
            self._disk.close(handle)
            return other
        while len(self._files) >= FILES_MAX:
            self._drop(min(self._files, key=lambda path: self._files[path].used_at))
        file = self._files[path] = _File(handle, loop.time())
        if self._closing is None:
            self._closing = loop.call_later(CLOSE_S, self._close_unused)
        return file

    def _end(self, file: _File) -> None:
        file.readers -= 1
        file.used_at = asyncio.get_running_loop().time()
        if file.is_dropped and not file.readers:
            self._disk.close(file.handle)

    def _drop(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.is_dropped = True
            if not file.readers:
                self._disk.close(file.handle)

    def _close_unused(self) -> None:
        loop = asyncio.get_running_loop()
        for path, file in list(self._files.items()):
            if file.used_at <= loop.time() - CLOSE_S / 2:
                self._drop(path)
        self._closing = loop.call_later(CLOSE_S / 2, self._close_unused) if self._files else None
