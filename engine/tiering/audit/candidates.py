"""Finds segment objects that can take a place in a manifest: for a missing object, or behind its end.

An object qualifies if its aux object describes it and every batch of it is sound. Where two qualify that differ, none
is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

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
        for found in listing.segments.values():
            base_offset = base_offset_of(prefix, found.key)
            assert base_offset is not None
            if found.key not in taken:
                self._by_base[base_offset].append(found)

    @property
    def base_offsets(self) -> list[int]:
        return sorted(self._by_base)

    def substitute(self, entry: ManifestEntry) -> ManifestEntry | None:
        """Return the entry with another object of the same bytes; None without one. Raises StoreUnavailable."""
        for found in self._by_base.get(entry.base_offset, ()):
            if found.key != entry.key and found.size_bytes == entry.size_bytes:
                aux = self._scanned(found, entry.end_offset)
                if aux is not None and agrees(aux, entry):
                    return replace(entry, key=found.key, aux_key=aux_key_of(found.key))
        return None

    def following(self, offset: int, epoch_min: int, epoch_max: int) -> Iterator[ManifestEntry]:
        """Yield entries that continue a log at an offset, as far as they are certain. Raises StoreUnavailable."""
        while True:
            sound = [*self._sound(offset, epoch_min, epoch_max)]
            if not sound or any((one.end_offset, one.crc32c) != _bounds(sound[0]) for one in sound):
                return
            yield sound[0]
            offset, epoch_min = sound[0].end_offset, sound[0].last_leader_epoch

    def folded(self, ref: SubManifestRef, prefix: str) -> SubManifest | None:
        """Return the entries that a lost sub-manifest had, by the aux objects; None if they are not certain."""
        entries: list[ManifestEntry] = []
        offset = ref.base_offset
        while offset < ref.end_offset:
            found = [entry for one in self._by_base.get(offset, ()) if (entry := self._described(one)) is not None]
            if not found or any((one.end_offset, one.crc32c) != _bounds(found[0]) for one in found):
                return None
            entries.append(found[0])
            offset = found[0].end_offset
        facts = (len(entries), sum(one.record_count for one in entries), sum(one.size_bytes for one in entries))
        is_same = offset == ref.end_offset and facts == (ref.entry_count, ref.record_count, ref.data_bytes)
        return SubManifest(prefix, tuple(entries)) if is_same else None

    def _sound(self, offset: int, epoch_min: int, epoch_max: int) -> Iterator[ManifestEntry]:
        for found in self._by_base.get(offset, ()):
            entry = self._described(found)
            if entry is None or not epoch_min <= entry.first_leader_epoch <= entry.last_leader_epoch <= epoch_max:
                continue
            aux = self._scanned(found, entry.end_offset)
            if aux is not None and agrees(aux, entry):
                yield entry

    def _described(self, found: ObjectInfo) -> ManifestEntry | None:
        """Returns the entry of an object by its aux object."""
        assert found.key.endswith(LOG)
        key = aux_key_of(found.key)
        try:
            aux = decode_aux(self._store.get(key), key)
        except (NoSuchObject, Corrupt, UnsupportedFormat):
            return None
        return entry_of(aux, found.key) if aux.size_bytes == found.size_bytes else None

    def _scanned(self, found: ObjectInfo, end_offset: int) -> AuxObject | None:
        base_offset = base_offset_of(found.key.rpartition("/")[0] + "/", found.key)
        assert base_offset is not None
        try:
            return scan_object(self._store, found.key, base_offset, end_offset, found.size_bytes)
        except (NoSuchObject, Corrupt):
            return None


def _bounds(entry: ManifestEntry) -> tuple[int, int]:
    return entry.end_offset, entry.crc32c
