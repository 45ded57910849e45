"""Checks the batches that a replica fetches from its leader for a damaged segment.

Pure, but for `check_equal`. Batches must continue the copy at its end, each with a valid checksum. A log that is never
compacted has the same batches on each replica. Replicas of a compacted log have the same offsets and may have other
records. One empty batch of the leader may have the offsets of many here, beyond the borders of the segment.
"""

from __future__ import annotations

from engine.errors import Corrupt
from engine.format.batch import Buffer, Header, has_valid_crc, walk
from engine.format.batch_header import NO_PRODUCER, empty_batch
from engine.format.checksum import checksum_of, load_checksum
from engine.runtime.disk import Disk


def checked(data: Buffer, begin: int, end: int, *, is_compacted: bool) -> tuple[bytes, int]:
    """Returns the batches from `begin` to before `end`, and the offset after them. Raises Corrupt."""
    view, pieces, offset = memoryview(data), list[Buffer](), begin
    for at, header in walk(data):
        if offset == end:
            break
        is_cut = is_compacted and header.next_offset > end and _is_empty(header)
        if header.base_offset != offset or (header.next_offset > end and not is_cut):
            raise Corrupt(f"the leader's batch of offset {header.base_offset} is not the one of offset {offset} here")
        if not has_valid_crc(data, at, header):
            raise Corrupt(f"the leader's batch of offset {header.base_offset} fails its checksum")
        if is_cut:
            pieces.append(empty_batch(offset, end, header.leader_epoch, header.max_timestamp))
        else:
            pieces.append(view[at : at + header.size_bytes])
        offset = min(header.next_offset, end)
    if offset == begin:
        raise Corrupt(f"the leader sent no whole batch of offset {begin}")
    return b"".join(pieces), offset


def _is_empty(header: Header) -> bool:
    """True if compaction has removed all batches of these offsets, and keeps no producer of them."""
    return not header.record_count and not header.is_control and header.producer_id == NO_PRODUCER


def check_equal(disk: Disk, damaged: str, copy: str) -> None:
    """Checks that the copy has the checksum of what was sealed, if that is known. Raises Corrupt, OSError."""
    checksum = load_checksum(disk, damaged)
    if checksum is not None and checksum_of(disk, copy) != checksum:
        raise Corrupt(f"{damaged}: the leader's batches are not those that were sealed here")
