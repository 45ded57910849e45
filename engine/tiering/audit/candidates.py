"""Finds segment objects that can take a place in a manifest: for a missing object, or behind its end.

An object qualifies if its aux object describes it and every batch of it is sound. Where two qualify that differ, none
is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from crc32c import crc32c

from engine.errors import Corrupt
from engine.format.paths import LOG
from engine.tiering.audit.inventory import Listing
from engine.tiering.audit.object_check import agrees, scan_object
from engine.tiering.manifest.aux_object import AuxObject, decode_aux
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.manifest.keys import aux_key_of, base_offset_of
from engine.tiering.manifest.manifest import ManifestEntry, SubManifest, SubManifestRef
from engine.tiering.shipping.upload import entry_of
from engine.tiering.store.store import NoSuchObject, ObjectInfo, ObjectStore


class Candidates:
    """The segment objects of a partition that its manifest does not name, by first offset."""

    def __init__(self, store: ObjectStore, prefix: str, listing: Listing, named: Iterable[str]) -> None:
        self._store = store
        self._by_base: dict[int, list[ObjectInfo]] = defaultdict(list)
        taken = frozenset(named)
        for info in listing.segments.values():
            base_offset = base_offset_of(prefix, info.key)
            assert base_offset is not None
            if info.key not in taken:
                self._by_base[base_offset].append(info)

    @property
    def base_offsets(self) -> list[int]:
        return sorted(self._by_base)

    def substitute(self, entry: ManifestEntry) -> ManifestEntry | None:
        """Returns the entry with another object of the same bytes; None without one. Raises StoreUnavailable."""
        for info in self._by_base.get(entry.base_offset, ()):
            if info.key != entry.key and info.size_bytes == entry.size_bytes:
                aux = self._scanned(info, entry.end_offset)
                if aux is not None and agrees(aux, entry):
                    return replace(entry, key=info.key, aux_key=aux_key_of(info.key))
        return None

    def following(self, offset: int, epoch_min: int, epoch_max: int) -> Iterator[ManifestEntry]:
        """Yields entries that continue a log at an offset, as far as they are certain. Raises StoreUnavailable."""
        while True:
            following = self._certain([*self._sound(offset, epoch_min, epoch_max)])
            if following is None:
                return
            yield following
            offset, epoch_min = following.end_offset, following.last_leader_epoch

    def folded(self, ref: SubManifestRef, prefix: str) -> SubManifest | None:
        """Returns the entries that a lost sub-manifest had, by the aux objects; None if they are not certain."""
        for is_merged in (True, False):  # a merge leaves its sources beside its result for a day
            entries = self._described_run(ref, is_merged=is_merged)
            facts = (
                len(entries),
                sum(entry.record_count for entry in entries),
                sum(entry.size_bytes for entry in entries),
            )
            if facts == (ref.entry_count, ref.record_count, ref.data_bytes):
                return SubManifest(prefix, tuple(entries))
        return None

    def _described_run(self, ref: SubManifestRef, *, is_merged: bool) -> list[ManifestEntry]:
        """Returns the longest objects that follow each other in the range, or the shortest ones; none if that is not
        certain.
        """
        entries: list[ManifestEntry] = []
        offset = ref.base_offset
        while offset < ref.end_offset:
            described = [
                entry for info in self._by_base.get(offset, ()) if (entry := self._described(info)) is not None
            ]
            ends = [entry.end_offset for entry in described if entry.end_offset <= ref.end_offset]
            chosen = [
                entry for entry in described if ends and entry.end_offset == (max(ends) if is_merged else min(ends))
            ]
            if not chosen or any(entry.crc32c != chosen[0].crc32c for entry in chosen):
                return []
            entries.append(chosen[0])
            offset = chosen[0].end_offset
        return entries

    def _certain(self, sound: Sequence[ManifestEntry]) -> ManifestEntry | None:
        """Returns the shortest of some objects at one offset if all others begin with its bytes, as merged ones do."""
        if not sound:
            return None
        shortest = min(sound, key=lambda entry: entry.end_offset)
        for entry in sound:
            if (entry.end_offset, entry.crc32c) == (shortest.end_offset, shortest.crc32c):
                continue
            if entry.end_offset == shortest.end_offset or entry.size_bytes <= shortest.size_bytes:
                return None
            if crc32c(self._store.get(entry.key, 0, shortest.size_bytes)) != shortest.crc32c:
                return None
        return shortest

    def _sound(self, offset: int, epoch_min: int, epoch_max: int) -> Iterator[ManifestEntry]:
        for info in self._by_base.get(offset, ()):
            entry = self._described(info)
            if entry is None or not epoch_min <= entry.first_leader_epoch <= entry.last_leader_epoch <= epoch_max:
                continue
            aux = self._scanned(info, entry.end_offset)
            if aux is not None and agrees(aux, entry):
                yield entry

    def _described(self, info: ObjectInfo) -> ManifestEntry | None:
        """Returns the entry of an object by its aux object."""
        assert info.key.endswith(LOG)
        key = aux_key_of(info.key)
        try:
            aux = decode_aux(self._store.get(key), key)
        except (NoSuchObject, Corrupt, UnsupportedFormat):
            return None
        return entry_of(aux, info.key) if aux.size_bytes == info.size_bytes else None

    def _scanned(self, info: ObjectInfo, end_offset: int) -> AuxObject | None:
        base_offset = base_offset_of(info.key.rpartition("/")[0] + "/", info.key)
        assert base_offset is not None
        try:
            return scan_object(self._store, info.key, base_offset, end_offset, info.size_bytes)
        except (NoSuchObject, Corrupt):
            return None
