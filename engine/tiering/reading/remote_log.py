"""Reads one partition's records from the store: those below the start of the local log.

Offsets and times as in the local log; whole batches, never decoded except for the one record of a search by time.
Reads objects through blocks that are kept on the local disk (engine/tiering/reading/cache.py). Lacks the log's newest
part: only records in the manifest are here.

The manifest is loaded at first need, and again if it lacks the requested offset or names a missing object; the shipper
of the same node passes on its commits (`use_manifest`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from engine.errors import Corrupt, InvalidBatch, OffsetBelowLogStart
from engine.format.batch import decode_one, read_header
from engine.partition.reader import Chunk
from engine.tiering.manifest.aux_object import INDEX_INTERVAL_BYTES, SparseIndex, decode_aux
from engine.tiering.manifest.chain import load_newest, load_sub_manifest
from engine.tiering.manifest.manifest import Manifest, ManifestEntry, SubManifest, SubManifestRef, find_run
from engine.tiering.reading.cache import BlockCache, CachedObject
from engine.tiering.reading.object_reader import Pread, first_batch_at_or_after, read_batches
from engine.tiering.store.store import NoSuchObject, ObjectStore

_INDEXES_MAX = 4  # about 100 kB each; readers mostly go forward through one or two objects
_SUB_MANIFESTS_MAX = 4
_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RemoteLogStatistics:
    log_start: int | None  # None until a manifest was seen
    tiered_end: int | None
    reads: int
    direct_reads: int
    bytes_read: int
    manifest_loads: int


class RemoteLog:
    """One partition in the store, as a log. Used from one event loop; any number of readers."""

    def __init__(self, store: ObjectStore, prefix: str, cache: BlockCache, *, executor: Executor) -> None:
        self._store = store
        self._prefix = prefix
        self._cache = cache
        self._executor = executor
        self._manifest: Manifest | None = None
        self._loading = asyncio.Lock()
        self._indexes: OrderedDict[str, SparseIndex] = OrderedDict()
        self._subs: OrderedDict[str, SubManifest] = OrderedDict()
        self._reads = self._direct_reads = self._bytes_read = self._manifest_loads = 0

    def __repr__(self) -> str:
        return f"<RemoteLog {self._prefix}: {self.statistics()}>"

    def statistics(self) -> RemoteLogStatistics:
        return RemoteLogStatistics(
            log_start=self._manifest.log_start if self._manifest else None,
            tiered_end=self._manifest.end_offset if self._manifest else None,
            reads=self._reads,
            direct_reads=self._direct_reads,
            bytes_read=self._bytes_read,
            manifest_loads=self._manifest_loads,
        )

    def use_manifest(self, manifest: Manifest) -> None:
        """Uses a manifest that another component has loaded or committed, if it is newer."""
        assert manifest.prefix == self._prefix
        if self._manifest is None or self._manifest.generation < manifest.generation:
            self._manifest = manifest

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns the bytes of `read_chunk`; empty without any."""
        chunk = await self.read_chunk(offset, max_bytes)
        return bytes(chunk.data) if chunk else b""

    async def read_chunk(self, offset: int, max_bytes: int) -> Chunk | None:
        """Returns whole batches of one object, from the one that holds `offset`: at least one, up to about `max_bytes`.

        None if the offset is not in the store yet. Raises OffsetBelowLogStart, Corrupt, StoreUnavailable.
        """

        async def attempt() -> Chunk | None:
            entry = await self._entry_at(offset)
            if entry is None:
                return None
            index = _no_index(entry) if offset <= entry.base_offset else await self._index_of(entry)
            return await self._use(entry, lambda pread: read_batches(pread, entry, index, offset, max_bytes))

        chunk = await self._retry_if_removed(attempt)
        self._reads += 1
        self._bytes_read += len(chunk.data) if chunk else 0
        return chunk

    async def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """Returns the first record at or after a time, as (offset, its timestamp); None if the store has none."""
        start_offset = 0
        while batch := await self._batch_for_time(timestamp, start_offset):
            _, chunk = batch
            assert self._manifest is not None
            try:
                records = await self._blocking(decode_one, chunk.data)
            except InvalidBatch:  # a fetch there returns it as undecodable; it has no time to find
                records = []
            for record in records:
                if record.timestamp >= timestamp and record.offset >= self._manifest.log_start:
                    return record.offset, record.timestamp
            start_offset = chunk.next_offset
        return None

    async def _batch_for_time(self, timestamp: int, start_offset: int) -> tuple[int, Chunk] | None:
        async def attempt() -> tuple[int, Chunk] | None:
            manifest = await self._current()
            if manifest is None:
                return None
            start = max(start_offset, manifest.log_start)
            for ref in manifest.folded:
                if ref.end_offset <= start or ref.max_timestamp_ms < timestamp:
                    continue
                if batch := await self._batch_among((await self._sub(ref)).entries, timestamp, start):
                    return batch
            return await self._batch_among(manifest.entries, timestamp, start)

        return await self._retry_if_removed(attempt)

    async def _batch_among(
        self, entries: tuple[ManifestEntry, ...], timestamp: int, start: int
    ) -> tuple[int, Chunk] | None:
        for entry in entries:
            if entry.end_offset > start and entry.max_timestamp_ms >= timestamp:
                index = await self._index_of(entry)
                chunk = await self._use(entry, partial(_find_time, entry, index, timestamp, start))
                if chunk is not None:
                    return read_header(chunk.data).base_offset, chunk
        return None

    # Manifests

    async def _entry_at(self, offset: int) -> ManifestEntry | None:
        manifest = await self._current()
        if manifest is not None and offset >= manifest.end_offset:
            manifest = await self._newer_than(manifest)
        if manifest is None:
            return None
        if offset < manifest.log_start:
            raise OffsetBelowLogStart(
                f"{self._prefix}: offset {offset} is below log_start {manifest.log_start} in the store",
                log_start=manifest.log_start,
            )
        run = manifest.find(offset)
        return find_run((await self._sub(run)).entries, offset) if isinstance(run, SubManifestRef) else run

    async def _current(self) -> Manifest | None:
        return self._manifest or await self._newer_than(None)

    async def _newer_than(self, seen: Manifest | None) -> Manifest | None:
        """Returns the newest manifest in the store; one load serves all that have seen the same old one."""
        async with self._loading:
            if self._manifest is seen:
                self._manifest_loads += 1
                loaded = await self._blocking(load_newest, self._store, self._prefix)
                if loaded is not None:
                    self.use_manifest(loaded)
            return self._manifest

    async def _sub(self, ref: SubManifestRef) -> SubManifest:
        sub = self._subs.get(ref.key)
        if sub is None:
            sub = await self._blocking(load_sub_manifest, self._store, ref)
        return _keep(self._subs, ref.key, sub, _SUB_MANIFESTS_MAX)

    async def _retry_if_removed(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Objects are removed only after a newer manifest has dropped them: loads that, once."""
        seen = self._manifest
        try:
            return await attempt()
        except NoSuchObject:
            await self._newer_than(seen)
        try:
            return await attempt()
        except NoSuchObject as error:
            raise Corrupt(f"{error.detail}, although the newest manifest lists it") from error

    # Objects

    async def _index_of(self, entry: ManifestEntry) -> SparseIndex:
        if entry.size_bytes <= INDEX_INTERVAL_BYTES:
            return _no_index(entry)  # it would have one entry, its beginning
        index = self._indexes.get(entry.aux_key)
        if index is None:
            index = await self._blocking(_load_index, self._store, entry)
        return _keep(self._indexes, entry.aux_key, index, _INDEXES_MAX)

    async def _use(self, entry: ManifestEntry, use: Callable[[Pread], _T]) -> _T:
        """Applies `use` to the cached blocks of the object. If these are damaged, to the object itself."""
        cached = CachedObject(entry.key, entry.size_bytes, partial(self._store.get, entry.key))
        try:
            return await self._blocking(use, self._cache.reader(cached))
        except Corrupt:
            await self._blocking(self._cache.forget, cached)
        self._direct_reads += 1
        return await self._blocking(use, lambda at, length: self._store.get(entry.key, at, at + length))

    async def _blocking(self, function: Callable[..., _T], *args: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _find_time(entry: ManifestEntry, index: SparseIndex, timestamp: int, start: int, pread: Pread) -> Chunk | None:
    return first_batch_at_or_after(pread, entry, index, timestamp, start)


def _load_index(store: ObjectStore, entry: ManifestEntry) -> SparseIndex:
    """Returns the sparse index of an object; one entry that means "walk it all" if the aux object is unusable."""
    try:
        aux = decode_aux(store.get(entry.aux_key), entry.aux_key)
    except (NoSuchObject, Corrupt):
        return _no_index(entry)
    same = (aux.base_offset, aux.end_offset, aux.size_bytes, aux.crc32c)
    is_of_entry = same == (entry.base_offset, entry.end_offset, entry.size_bytes, entry.crc32c)
    return aux.index if is_of_entry else _no_index(entry)


def _no_index(entry: ManifestEntry) -> SparseIndex:
    return SparseIndex((entry.base_offset,), (0,), (entry.max_timestamp_ms,))


def _keep(cached: OrderedDict[str, _K], key: str, value: _K, count_max: int) -> _K:
    """Remembers a value as the most recently used."""
    cached[key] = value
    cached.move_to_end(key)
    while len(cached) > count_max:
        cached.popitem(last=False)
    return value
