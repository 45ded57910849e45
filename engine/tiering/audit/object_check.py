"""Compares one segment object and its aux object with the entry of the manifest. Blocking.

`check_aux` reads the aux object only; `scan_object` reads the segment object and checks every batch in it.
"""

from __future__ import annotations

from engine.errors import Corrupt, InvalidBatch
from engine.format.batch import HEADER_BYTES, read_header
from engine.tiering.audit.findings import Finding, Kind
from engine.tiering.manifest.aux_object import AuxObject, decode_aux
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.shipping.local_log import SealedSegment
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.scan import scan_bytes
from engine.tiering.store.store import NoSuchObject, ObjectInfo, ObjectStore


def check_size(entry: ManifestEntry, info: ObjectInfo | None) -> Finding | None:
    """Compare the object of an entry, as it is listed, with the entry."""
    text = f"offsets {entry.base_offset} to {entry.end_offset}"
    if info is None:
        return Finding(Kind.OBJECT_MISSING, entry.key, f"{text} are not in the store", entry.base_offset)
    if info.size_bytes != entry.size_bytes:
        detail = f"{text}: the object has {info.size_bytes} bytes, the manifest says {entry.size_bytes}"
        return Finding(Kind.OBJECT_DAMAGED, entry.key, detail, entry.base_offset)
    return None


def check_aux(store: ObjectStore, entry: ManifestEntry) -> Finding | None:
    """Reads the aux object of an entry. Raises StoreUnavailable."""
    try:
        aux = decode_aux(store.get(entry.aux_key), entry.aux_key)
    except NoSuchObject:
        return Finding(Kind.AUX_MISSING, entry.aux_key, "the aux object is not in the store", entry.base_offset)
    except (Corrupt, UnsupportedFormat) as error:
        return Finding(Kind.AUX_DAMAGED, entry.aux_key, error.detail, entry.base_offset)
    if not agrees(aux, entry):
        return Finding(Kind.AUX_DAMAGED, entry.aux_key, "the manifest has other facts", entry.base_offset)
    return None


def check_bytes(store: ObjectStore, entry: ManifestEntry) -> Finding | None:
    """Read the whole object of an entry and check every batch. Raises StoreUnavailable."""
    try:
        aux = scan_object(store, entry.key, entry.base_offset, entry.end_offset, entry.size_bytes)
    except NoSuchObject:
        return check_size(entry, None)
    except Corrupt as error:
        return Finding(Kind.OBJECT_DAMAGED, entry.key, error.detail, entry.base_offset)
    if not agrees(aux, entry):
        detail = f"CRC-32C {aux.crc32c:#010x}, the manifest says {entry.crc32c:#010x}"
        return Finding(Kind.OBJECT_DAMAGED, entry.key, detail, entry.base_offset)
    return None


def scan_object(store: ObjectStore, key: str, base_offset: int, end_offset: int, size_bytes: int) -> AuxObject:
    """Check every batch of a segment object and return its facts.

    Raises Corrupt if its batches are not those from `base_offset` to `end_offset`, NoSuchObject, StoreUnavailable.
    """

    def pread(length: int, position: int) -> bytes:
        return store.get(key, position, min(position + length, size_bytes))

    head = pread(HEADER_BYTES, 0)
    if len(head) < HEADER_BYTES:
        raise Corrupt(f"{key} ends within its first batch")
    try:
        first = read_header(head)
        is_early = not first.record_count and first.base_offset < base_offset  # an empty batch of a compaction
        segment = SealedSegment(first.base_offset if is_early else base_offset, end_offset, key, size_bytes)
        return scan_bytes(pread, Upload(segment, base_offset), with_crc32=False).aux
    except InvalidBatch as error:
        raise Corrupt(f"{key}: {error.detail}") from error


def agrees(aux: AuxObject, entry: ManifestEntry) -> bool:
    """True if both describe the same bytes."""
    return (aux.base_offset, aux.end_offset, aux.size_bytes, aux.crc32c) == (
        entry.base_offset,
        entry.end_offset,
        entry.size_bytes,
        entry.crc32c,
    )
