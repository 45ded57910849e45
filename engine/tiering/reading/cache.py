"""Reads ranges of store objects through blocks of 1 MiB, which are kept on the local disk.

A read fetches the blocks that it needs and no more; reads that go on get blocks ahead (read_ahead.py). Readers of one
missing block share one request. The blocks that were read last are in memory too. Objects never change under their
names, so a block never becomes stale. All processes of a node share the file (block_file.py).

Blocking; runs in the threads of the executor that reads the store. A thread waits for a block only while another thread
is fetching it, so requests that are still queued never hold up a reader.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

from engine.errors import EngineError
from engine.tiering.reading.block_file import BLOCK_BYTES, BlockFile
from engine.tiering.reading.object_reader import Pread
from engine.tiering.reading.read_ahead import ReadAhead

log = logging.getLogger("penstock.tiering")

_IN_MEMORY_MAX = 8  # blocks: small reads that go on meet the same block again and again
_AHEAD_REQUESTS_MAX = 2  # at once in a process: clients wait for the reads in the other threads

Get = Callable[[int, int], bytes]  # bytes of the object from start to before end
_Block = tuple[str, int]  # key of the object, number


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object and the way to read it."""

    key: str
    size_bytes: int
    get: Get

    @property
    def blocks(self) -> int:
        return -(-self.size_bytes // BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts of blocks of one process; `read_ahead` are those that were fetched before they were requested."""

    hits: int
    misses: int
    read_ahead: int
    evictions: int
    refused: int
    corrupt: int


class BlockCache:
    """Any thread may call. `open` before use, `close` after."""

    def __init__(self, file: BlockFile, executor: Executor) -> None:
        self._file = file
        self._executor = executor
        self._lock = threading.Lock()
        self._running: dict[_Block, Future[bytes]] = {}
        self._recent: OrderedDict[_Block, bytes] = OrderedDict()
        self._read_ahead = ReadAhead()
        self._ahead_requests = 0
        self._hits = self._misses = self._fetched_ahead = 0

    def __repr__(self) -> str:
        return f"<BlockCache {self._file}: {self.statistics()}>"

    def statistics(self) -> CacheStatistics:
        counts = self._file.counts
        return CacheStatistics(
            self._hits, self._misses, self._fetched_ahead, counts.evictions, counts.refused, counts.corrupt
        )

    def open(self) -> None:
        """Opens the file. Logs one that cannot be made or read: then blocks are only in memory."""
        try:
            self._file.open()
        except OSError as error:
            log.warning("the cache of tiered segments is disabled", extra={"reason": str(error)})

    def close(self) -> None:
        """Closes the file. Reads that still run get their blocks from the store."""
        self._file.close()

    def reader(self, of: CachedObject) -> Pread:
        """Returns a function that reads an object: `length` bytes from a position on, fewer only at its end.

        For one read of records: a block that its steps share is looked up and counted once. The function raises
        NoSuchObject, StoreUnavailable.
        """
        held: dict[int, bytes] = {}

        def pread(start: int, length: int) -> bytes:
            end = min(start + length, of.size_bytes)
            if start >= end:
                return b""
            first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
            blocks = {number: held.get(number, b"") for number in range(first, last + 1)}
            blocks |= self._blocks(of, [number for number, data in blocks.items() if not data])
            held.clear()
            held.update(blocks)
            self._fetch_ahead(of, first, last, is_start=start == 0)
            at = start - first * BLOCK_BYTES
            data = blocks[first] if first == last else b"".join(blocks.values())
            return data[at : at + end - start]

        return pread

    def forget(self, of: CachedObject) -> None:
        """Drops the blocks of an object whose bytes fail their checks; the next read fetches them again."""
        for number in range(of.blocks):
            self._file.drop(of.key, number)
            with self._lock:
                self._recent.pop((of.key, number), None)

    def _blocks(self, of: CachedObject, numbers: Sequence[int]) -> dict[int, bytes]:
        blocks: dict[int, bytes] = {}
        for number in numbers:
            if (data := self._known(of.key, number)) is not None:
                blocks[number] = data
        missing = [number for number in numbers if number not in blocks]
        mine, others = self._claim(of.key, missing)
        blocks |= self._fetch(of, mine)
        for number, running in others.items():
            blocks[number] = running.result()
        with self._lock:
            self._hits += len(numbers) - len(missing)
            self._misses += len(missing)
            for number, data in blocks.items():
                self._recent[of.key, number] = data
                self._recent.move_to_end((of.key, number))
            while len(self._recent) > _IN_MEMORY_MAX:
                self._recent.popitem(last=False)
        return blocks

    def _known(self, key: str, number: int) -> bytes | None:
        data = self._recent.get((key, number))
        return self._file.get(key, number) if data is None else data

    def _claim(self, key: str, numbers: Iterable[int]) -> tuple[list[int], dict[int, Future[bytes]]]:
        """Returns the blocks that the caller now has to fetch, and those that other threads are fetching."""
        mine, others = [], {}
        with self._lock:
            for number in numbers:
                if (running := self._running.get((key, number))) is not None:
                    others[number] = running
                else:
                    self._running[key, number] = Future()
                    mine.append(number)
        return mine, others

    def _fetch(self, of: CachedObject, numbers: Sequence[int]) -> dict[int, bytes]:
        """Fetches claimed blocks, neighbours by one request, and gives them to those who wait."""
        blocks: dict[int, bytes] = {}
        try:
            for first, end in _runs(numbers):
                start, stop = first * BLOCK_BYTES, min(end * BLOCK_BYTES, of.size_bytes)
                data = of.get(start, stop)
                for number in range(first, end):
                    at = (number - first) * BLOCK_BYTES
                    block = data[at : at + BLOCK_BYTES]
                    if len(data) == stop - start:  # a shorter object is not what the manifest names
                        self._file.put(of.key, number, block)
                    self._end(of.key, number).set_result(block)
                    blocks[number] = block
        except BaseException as error:
            for number in numbers:
                if number not in blocks:
                    self._end(of.key, number).set_exception(error)
            raise
        return blocks

    def _end(self, key: str, number: int) -> Future[bytes]:
        with self._lock:
            return self._running.pop((key, number))

    def _fetch_ahead(self, of: CachedObject, first: int, last: int, *, is_start: bool) -> None:
        with self._lock:
            numbers = self._read_ahead.advance(of.key, first, last, of.blocks, is_start=is_start)
            if not numbers or not self._file.is_open or self._ahead_requests >= _AHEAD_REQUESTS_MAX:
                return
            self._ahead_requests += 1
        try:
            self._executor.submit(self._prefetch, of, numbers)
        except RuntimeError:  # the node stops
            with self._lock:
                self._ahead_requests -= 1

    def _prefetch(self, of: CachedObject, numbers: range) -> None:
        try:
            missing = [number for number in numbers if not self._file.has(of.key, number)]
            mine, _ = self._claim(of.key, missing)
            with suppress(EngineError, OSError):  # a reader that needs the block asks again, and reports it
                self._fetched_ahead += len(self._fetch(of, mine))
        finally:
            with self._lock:
                self._ahead_requests -= 1


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields ranges of neighbours, as first and end."""
    first = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[first], numbers[at - 1] + 1
            first = at
