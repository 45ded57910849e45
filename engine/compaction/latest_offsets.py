"""The last offset of each key of a part of a log, in bounded memory: Kafka's OffsetMap.

A key is remembered by a hash of 128 bits under a random key, so that no producer can choose keys that collide. Among
2**40 keys the chance that two do, and that one of them loses records, is below 2**-48. The compiled codec hashes and
walks the records of a batch; the plain Python twin here does the same.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple, Protocol

import penstock_codec
from engine.errors import InvalidBatch
from engine.format.batch import Buffer, Header
from engine.format.record_spans import record_spans

HASH_KEY_BYTES = 16
PYTHON_ENTRY_BYTES = 160  # of a dictionary of digests and offsets, measured at a million keys
_SLOT_BYTES = 24  # src/latest.h of the codec
_DIGEST_BYTES = 16


class Kept(NamedTuple):
    """The records of a batch that stay, as they were."""

    records: Buffer
    record_count: int
    has_first: bool


class LatestOffsets(Protocol):
    """Maps keys to their last offsets. Batches are whole and uncompressed, added in the order of the log."""

    @property
    def room(self) -> int:
        """The number of keys that can be added. The caller adds no batch with more records."""

    def add(self, batch: Buffer, header: Header) -> None:
        """Adds the keys of a batch; those of a malformed one are left out, so that nothing is removed for them."""

    def find(self, key: bytes) -> int | None:
        """Returns the last offset of a key; None if it has none."""

    def grow(self) -> None:
        """Makes room for more keys, twice as many at least."""

    @property
    def size_bytes(self) -> int: ...

    def kept(self, batch: Buffer, header: Header, expired_below: int, *, keeps_first: bool) -> Kept:
        """Returns the records of a batch that stay: the last ones of their keys, and those without a key.

        Tombstones below `expired_below` do not stay. Raises InvalidBatch.
        """


def new_latest_offsets(memory_bytes: int, hash_key: bytes, keys_min: int = 0) -> LatestOffsets:
    """Returns an empty map of about that size, or of the size for `keys_min` keys. `hash_key` has 16 random bytes."""
    if penstock_codec.native is not None:
        return CompiledOffsets(max(memory_bytes, keys_min * 3 * _SLOT_BYTES), hash_key)
    return PythonOffsets(max(memory_bytes, keys_min * PYTHON_ENTRY_BYTES), hash_key)


class CompiledOffsets:
    """A table of slots. A quarter of them stays free."""

    def __init__(self, memory_bytes: int, hash_key: bytes) -> None:
        count = 1 << max(4, (memory_bytes // _SLOT_BYTES).bit_length() - 1)
        self._slots = bytearray(count * _SLOT_BYTES)
        self._free = count * 3 // 4
        self._hash_key = hash_key

    def __repr__(self) -> str:
        return f"CompiledOffsets(free={self._free})"

    @property
    def room(self) -> int:
        return self._free

    def add(self, batch: Buffer, header: Header) -> None:
        assert penstock_codec.native is not None
        added = penstock_codec.native.latest_add(self._slots, self._hash_key, batch)
        assert added >= 0, "the caller has looked at the room"
        self._free -= added

    def find(self, key: bytes) -> int | None:
        assert penstock_codec.native is not None
        offset = penstock_codec.native.latest_find(self._slots, self._hash_key, key)
        return None if offset < 0 else offset

    def grow(self) -> None:
        assert penstock_codec.native is not None
        larger = bytearray(2 * len(self._slots))
        penstock_codec.native.latest_grow(larger, self._slots, self._hash_key)
        self._free += len(self._slots) // _SLOT_BYTES * 3 // 4
        self._slots = larger

    @property
    def size_bytes(self) -> int:
        return len(self._slots)

    def kept(self, batch: Buffer, header: Header, expired_below: int, *, keeps_first: bool) -> Kept:
        """Keeps records as the protocol says. Raises InvalidBatch."""
        assert penstock_codec.native is not None
        compacted = penstock_codec.native.latest_keep(self._slots, self._hash_key, batch, expired_below, keeps_first)
        if compacted is None:
            raise InvalidBatch(f"the records of the batch at {header.base_offset} cannot be read")
        return Kept(*compacted)


class PythonOffsets:
    """A dictionary of digests."""

    def __init__(self, memory_bytes: int, hash_key: bytes) -> None:
        self._keys_max = max(1, memory_bytes // PYTHON_ENTRY_BYTES)
        self._hash_key = hash_key
        self._offsets: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"PythonOffsets({len(self._offsets)} keys)"

    @property
    def room(self) -> int:
        return self._keys_max - len(self._offsets)

    def add(self, batch: Buffer, header: Header) -> None:
        latest: dict[bytes, int] = {}
        try:
            for span in record_spans(batch, header.record_count):
                if span.key is not None:
                    latest[self._digest(span.key)] = header.base_offset + span.offset_delta
        except InvalidBatch:
            return
        self._offsets |= latest

    def find(self, key: bytes) -> int | None:
        return self._offsets.get(self._digest(key))

    def grow(self) -> None:
        self._keys_max *= 2

    @property
    def size_bytes(self) -> int:
        return len(self._offsets) * PYTHON_ENTRY_BYTES

    def kept(self, batch: Buffer, header: Header, expired_below: int, *, keeps_first: bool) -> Kept:
        view = memoryview(batch)
        pieces: list[Buffer] = []
        has_first = False
        for number, span in enumerate(record_spans(batch, header.record_count)):
            offset = header.base_offset + span.offset_delta
            if span.key is None or (number == 0 and keeps_first):
                stays = True
            else:
                is_last = self._offsets.get(self._digest(span.key), -1) <= offset
                stays = is_last and not (span.is_tombstone and offset < expired_below)
            if stays:
                pieces.append(view[span.begin : span.end])
                has_first |= number == 0
        return Kept(b"".join(pieces), len(pieces), has_first)

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_DIGEST_BYTES, key=self._hash_key).digest()
