"""Whole copies of store objects on the local disk, bounded in bytes, with eviction of the least recently used.

Not a store: every copy can be fetched again, and on a full or failing disk reads use the store directly. Objects never
change under their names, so a copy never becomes stale.

Invariants: a file under its final name was whole and had the right CRC when it was renamed; after a restart it is
checked once more before its first use, since nothing here is fsynced; the bytes of all files and running downloads are
never above the bound. One process per directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import aiofiles
import aiofiles.os
from crc32c import crc32c

from engine.errors import TOO_MANY_FILES, Corrupt
from engine.format import paths
from engine.runtime.tasks import start_task
from engine.tiering.manifest.manifest import ManifestEntry

log = logging.getLogger("penstock.tiering")

_PIECE_BYTES = 8 << 20
_PARTIAL = ".part"

Fetch = Callable[[int, int], Awaitable[bytes]]  # bytes of the object from start to before end


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    objects: int
    bytes_used: int
    bytes_max: int
    hits: int
    misses: int
    evictions: int
    refused: int  # objects that did not fit, or that the disk failed to take
    corrupt: int


@dataclass(slots=True)
class _Copy:
    size_bytes: int
    is_verified: bool


class TierCache:
    """Used from one event loop. `open` before use, `close` after."""

    def __init__(self, directory: str, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._copies: OrderedDict[str, _Copy] = OrderedDict()  # the most recently used last
        self._bytes_used = 0  # of copies and of running downloads
        self._running: dict[str, asyncio.Future[bool]] = {}
        self._hits = self._misses = self._evictions = self._refused = self._corrupt = 0

    def __repr__(self) -> str:
        return f"<TierCache {self._directory}: {self.statistics()}>"

    def statistics(self) -> CacheStatistics:
        return CacheStatistics(
            objects=len(self._copies),
            bytes_used=self._bytes_used,
            bytes_max=self._bytes_max,
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            refused=self._refused,
            corrupt=self._corrupt,
        )

    async def open(self) -> None:
        """List the copies of an earlier process, and drop its unfinished downloads.

        Logs a directory that cannot be made or read: then every read goes to the store.
        """
        try:
            await self._scan_directory()
        except OSError as error:
            words = {"directory": self._directory, "reason": str(error)}
            log.warning("the cache of tiered segments is disabled", extra=words)

    async def _scan_directory(self) -> None:
        await aiofiles.os.makedirs(self._directory, exist_ok=True)
        found: list[tuple[float, str, int]] = []
        for name in await aiofiles.os.listdir(self._directory):
            path = self._path(name)
            if not paths.is_store_segment(name.removesuffix(_PARTIAL)) or await aiofiles.os.path.islink(path):
                continue  # a foreign file: neither a copy nor to be removed
            if name.endswith(_PARTIAL):
                await _remove(path)
            elif await aiofiles.os.path.isfile(path):
                known = await aiofiles.os.stat(path)
                found.append((known.st_mtime, name, known.st_size))
        for _, name, size_bytes in sorted(found):
            self._copies[name] = _Copy(size_bytes, is_verified=False)
            self._bytes_used += size_bytes
        await self._make_room(0)

    async def close(self) -> None:
        """Stop running downloads; their waiters are cancelled too."""
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def get_or_fetch(self, entry: ManifestEntry, fetch: Fetch) -> str | None:
        """Return the path of a copy, fetched if need be; None if it cannot be kept here and must be read directly.

        The path may vanish at any time: open it at once, and call again if it is gone. Readers of one missing object
        share one download, which continues when some of them leave. Raises Corrupt if the object itself is.
        """
        name = os.path.basename(entry.key)
        copy = self._copies.get(name)
        if copy is not None and copy.is_verified:
            self._hits += 1
            self._copies.move_to_end(name)
            return self._path(name)
        if name not in self._running:
            task = start_task(self._fill(name, entry, fetch))
            self._running[name] = task
            task.add_done_callback(lambda _: self._running.pop(name))
        return self._path(name) if await asyncio.shield(self._running[name]) else None

    async def drop(self, entry: ManifestEntry) -> None:
        """Drop a damaged or missing copy; the next reader fetches the object again."""
        await self._evict(os.path.basename(entry.key))

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    async def _fill(self, name: str, entry: ManifestEntry, fetch: Fetch) -> bool:
        if name in self._copies:
            try:
                is_whole = await self._verify(name, entry)
            except OSError:  # too many open files: the copy may be whole, and is checked again later
                self._refused += 1
                return False
            if is_whole:
                self._hits += 1
                return True
            await self._evict(name)
        self._misses += 1
        if not await self._make_room(entry.size_bytes):
            self._refused += 1
            return False
        self._bytes_used += entry.size_bytes
        is_kept = False
        try:
            await self._download(name, entry, fetch)
            self._copies[name] = _Copy(entry.size_bytes, is_verified=True)
            is_kept = True
        except OSError:  # full, or failing: reading continues without a copy
            self._refused += 1
        finally:
            self._bytes_used -= 0 if is_kept else entry.size_bytes
        return is_kept

    async def _download(self, name: str, entry: ManifestEntry, fetch: Fetch) -> None:
        path = self._path(name)
        try:
            seen = 0
            async with aiofiles.open(path + _PARTIAL, "wb") as file:
                for start in range(0, entry.size_bytes, _PIECE_BYTES):
                    piece = await fetch(start, min(start + _PIECE_BYTES, entry.size_bytes))
                    seen = crc32c(piece, seen)
                    await file.write(piece)
            self._check(entry, seen)
            await aiofiles.os.replace(path + _PARTIAL, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(path + _PARTIAL)  # at once: an await here would end a cancelled download early
            raise

    async def _verify(self, name: str, entry: ManifestEntry) -> bool:
        """Returns whether a copy of an earlier process is whole. Raises OSError if no file can be opened now."""
        seen = 0
        try:
            async with aiofiles.open(self._path(name), "rb") as file:
                while piece := await file.read(_PIECE_BYTES):
                    seen = crc32c(piece, seen)
        except OSError as error:
            if error.errno in TOO_MANY_FILES:
                raise
            return False
        copy = self._copies.get(name)
        if copy is None or seen != entry.crc32c or copy.size_bytes != entry.size_bytes:
            return False
        copy.is_verified = True
        self._copies.move_to_end(name)
        return True

    def _check(self, entry: ManifestEntry, seen: int) -> None:
        if seen != entry.crc32c:
            self._corrupt += 1
            raise Corrupt(
                f"object {entry.key} has CRC-32C {seen:#010x}, the manifest names {entry.crc32c:#010x}",
                hint="restore it from a copy of the store",
            )

    async def _make_room(self, wanted_bytes: int) -> bool:
        """Evict until `wanted_bytes` more fit. False if they cannot: running downloads are not cut short.

        Awaits nothing between the last check and the return, so the caller can reserve the room.
        """
        if wanted_bytes > self._bytes_max:
            return False
        while self._bytes_used + wanted_bytes > self._bytes_max:
            if not self._copies:
                return False
            await self._evict(next(iter(self._copies)))
            self._evictions += 1
        return True

    async def _evict(self, name: str) -> None:
        if (copy := self._copies.pop(name, None)) is not None:
            self._bytes_used -= copy.size_bytes
            await _remove(self._path(name))


async def _remove(path: str) -> None:
    with suppress(OSError):
        await aiofiles.os.remove(path)
