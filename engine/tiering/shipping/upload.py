"""Uploads one segment and verifies that it arrived, before any manifest may name it. Blocking.

Order: check every batch; aux object; segment object; check the stored bytes, unless the store is a directory that this
process has written to, and the bytes that it wrote had the right checksum. A crash between any two steps, or a lost
answer, leaves objects that no manifest names: their names are used once, and `find_orphans` finds them later. Only an
unfinished upload of a large segment is continued under its name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from crc32c import crc32c

from engine.format.paths import LOG, store_segment_key
from engine.runtime.disk import Disk
from engine.tiering.manifest.aux_object import AuxObject, encode_aux
from engine.tiering.manifest.keys import aux_key_of
from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.scan import Scan, scan_upload
from engine.tiering.store.store import (
    MULTIPART_BYTES_MIN,
    NoSuchObject,
    ObjectExists,
    ObjectStore,
    StoreUnavailable,
    read_in_pieces,
)


def upload_segment(
    store: ObjectStore, disk: Disk, prefix: str, upload: Upload, leader_epoch: int, new_id: Callable[[], str]
) -> ManifestEntry:
    """Upload a segment and return the entry of its object, whole and verified.

    Raises Corrupt for a segment that must not be shipped, OSError for one that cannot be read, StoreUnavailable.
    """
    scan = scan_upload(disk, upload, with_crc32=store.checks_uploads)
    key = _key(store, prefix, scan.aux, leader_epoch, new_id())
    entry = entry_of(scan.aux, key, upload.segment.arrived_ms)
    with suppress(ObjectExists):  # the name is ours alone: an answer was lost
        store.put(entry.aux_key, encode_aux(scan.aux), if_absent=True)
    path, size_bytes = upload.segment.path, scan.aux.size_bytes
    put = partial(store.put_file, key, path, start=scan.start, size_bytes=size_bytes, crc32=scan.crc32)
    _put_and_verify(store, scan, key, put)
    return entry


def upload_merged(
    store: ObjectStore, prefix: str, data: bytes, scan: Scan, leader_epoch: int, new_id: Callable[[], str]
) -> ManifestEntry:
    """Upload the bytes of merged objects and return the entry of the new one, verified. Raises StoreUnavailable."""
    key = store_segment_key(prefix, scan.aux.base_offset, leader_epoch, new_id())
    entry = entry_of(scan.aux, key)
    store.put(entry.aux_key, encode_aux(scan.aux), if_absent=True)
    _put_and_verify(store, scan, key, partial(store.put, key, data))
    return entry


def _key(store: ObjectStore, prefix: str, aux: AuxObject, leader_epoch: int, fresh_id: str) -> str:
    """Returns the key of an unfinished upload of the same bytes in this epoch, else a new one."""
    key = store_segment_key(prefix, aux.base_offset, leader_epoch, fresh_id)
    if aux.size_bytes <= MULTIPART_BYTES_MIN:
        return key
    for upload in store.unfinished(key.removesuffix(f"{fresh_id}{LOG}")):
        with suppress(NoSuchObject):  # the aux object goes up first
            if store.get(aux_key_of(upload.key)) == encode_aux(aux):
                return upload.key
    return key


def _put_and_verify(store: ObjectStore, scan: Scan, key: str, put: Callable[..., int | None]) -> None:
    try:
        if put(if_absent=True) == scan.aux.crc32c:
            return
    except ObjectExists:
        pass
    except StoreUnavailable:
        if not _has_arrived(store, scan, key):
            raise
        return
    if not _has_arrived(store, scan, key):
        raise StoreUnavailable(f"{key} in {store.url} differs from the upload", hint="the upload is retried")


def _has_arrived(store: ObjectStore, scan: Scan, key: str) -> bool:
    """By the checksum that the store has checked itself, else by reading everything back."""
    info = store.head(key)
    if info is None or info.size_bytes != scan.aux.size_bytes:
        return False
    if info.crc32 is not None:
        return info.crc32 == scan.crc32
    if info.crc32c is not None:
        return info.crc32c == scan.aux.crc32c
    seen = 0
    for piece in read_in_pieces(store, key, info.size_bytes):
        seen = crc32c(piece, seen)
    return seen == scan.aux.crc32c


def entry_of(aux: AuxObject, key: str, arrived_ms: int | None = None) -> ManifestEntry:
    """Returns the entry of a segment object with these facts."""
    return ManifestEntry(
        base_offset=aux.base_offset,
        end_offset=aux.end_offset,
        leader_epochs=aux.leader_epochs,
        min_timestamp_ms=aux.min_timestamp_ms,
        max_timestamp_ms=aux.max_timestamp_ms,
        size_bytes=aux.size_bytes,
        crc32c=aux.crc32c,
        record_count=aux.record_count,
        key=key,
        aux_key=aux_key_of(key),
        arrived_ms=arrived_ms,
    )
