"""The last offset of each key of a part of a log, in bounded memory: Kafka's OffsetMap.

A key is remembered by a digest of 16 bytes. Two keys of one digest would lose records: among 2**40 keys the chance of
that is below 2**-48.
"""

from __future__ import annotations

from hashlib import blake2b

ENTRY_BYTES = 160  # of a dictionary of digests and offsets, measured at a million keys
_DIGEST_BYTES = 16


class LatestOffsets:
    """Maps keys to their last offsets. The caller adds offsets in ascending order and stops when it `is_full`."""

    def __init__(self, memory_bytes: int) -> None:
        self._keys_max = max(1, memory_bytes // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"LatestOffsets({len(self._offsets)} keys)"

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._keys_max

    def add(self, key: bytes, offset: int) -> None:
        self._offsets[_digest(key)] = offset

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """True if a later record has the key."""
        return self._offsets.get(_digest(key), -1) > offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
