"""The blocks of store objects on the local disk: one file, which all processes of a node read and write without a lock.

Not a store: every block can be fetched again. The file is a table of sets and a region of slots. A block belongs to one
set, by its object and number, and takes the slot of that set that was used longest ago: so the file never grows above
its bound, and an eviction reads one set, whatever the number of blocks. Nothing is fsynced.

Invariant: a block is returned only if its bytes have the checksum of its entry. Two processes that write one slot at
once, a torn write, a damaged file and one of other settings can therefore lose blocks, and nothing else.

```text
0         magic, block size, number of sets
4096      sets of 8 entries of 32 bytes: digest of object and number, length, CRC-32C, use within the set
data      slots of 1 MiB, in the order of the entries
```
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from crc32c import crc32c

from engine.runtime.disk import Disk, FileKind

BLOCK_BYTES = 1 << 20  # a GET of it takes a store about as long as its latency
WAYS = 8  # slots of a set: few enough for one small read, many enough that a set seldom loses what is in use
_MAGIC = b"PSBLOCK1"
_HEADER = struct.Struct(">8sIQ")
_ENTRY = struct.Struct(">16sIIQ")
_SET_BYTES = WAYS * _ENTRY.size
_TABLE_AT = 4096


@dataclass(slots=True)
class BlockFileCounts:
    """Counts of one process. `refused`: blocks that the disk failed to take."""

    evictions: int = 0
    refused: int = 0
    corrupt: int = 0


class _Place(NamedTuple):
    digest: bytes
    set_number: int


class _Entry(NamedTuple):
    digest: bytes
    length: int
    crc32c: int
    used: int


class BlockFile:
    """Blocking; any thread may call. Without `open`, or after it has failed, it has no block and takes none."""

    def __init__(self, disk: Disk, path: str, bytes_max: int) -> None:
        self._disk = disk
        self._path = path
        self._sets = max(0, (bytes_max - 2 * _TABLE_AT) // (_SET_BYTES + WAYS * BLOCK_BYTES))
        self._data_at = -(-(_TABLE_AT + self._sets * _SET_BYTES) // _TABLE_AT) * _TABLE_AT
        self._handle: int | None = None
        self.counts = BlockFileCounts()

    def __repr__(self) -> str:
        return f"BlockFile({self._path}, blocks={self.blocks_max}, open={self._handle is not None}, {self.counts})"

    @property
    def blocks_max(self) -> int:
        return self._sets * WAYS

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    def open(self) -> None:
        """Open the file, or make it. One of other settings or with a damaged head becomes empty. Raises OSError."""
        if not self._sets:
            return
        self._disk.mkdir(os.path.dirname(self._path))
        if self._disk.kind(self._path) not in (None, FileKind.FILE):
            raise OSError(f"{self._path} is not a file")
        handle = self._disk.open(self._path, create=True, writable=True)
        head = _HEADER.pack(_MAGIC, BLOCK_BYTES, self._sets)
        try:
            if self._disk.pread(handle, _HEADER.size, 0) != head:
                self._disk.truncate(handle, 0)
                self._write(handle, [head], 0)
        except BaseException:
            self._disk.close(handle)
            raise
        self._handle = handle

    def close(self) -> None:
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None

    def has(self, key: str, number: int) -> bool:
        """Returns whether the block seems to be here; `get` checks its bytes."""
        if self._handle is None:
            return False
        block = self._place(key, number)
        return any(entry.digest == block.digest for entry in self._entries(self._handle, block))

    def get(self, key: str, number: int) -> bytes | None:
        """Returns a block of an object; None if it is not here, or damaged."""
        handle = self._handle
        if handle is None:
            return None
        block = self._place(key, number)
        entries = self._entries(handle, block)
        for way, entry in enumerate(entries):
            if entry.digest != block.digest or not 0 < entry.length <= BLOCK_BYTES:
                continue
            with suppress(OSError):
                data = self._disk.pread(handle, entry.length, self._slot_at(block, way))
                if crc32c(data, crc32c(entry.digest)) == entry.crc32c and len(data) == entry.length:
                    self._note_use(handle, block, entries, way)
                    return data
            self.counts.corrupt += 1
            self._drop(handle, block, way)
        return None

    def put(self, key: str, number: int, data: bytes) -> bool:
        """Keeps a block, in the place of another one if its set is full. False if the disk does not take it."""
        handle = self._handle
        if handle is None or not 0 < len(data) <= BLOCK_BYTES:
            return False
        block = self._place(key, number)
        entries = self._entries(handle, block)
        if not entries:
            return False
        way = next((at for at, entry in enumerate(entries) if entry.digest == block.digest), None)
        if way is None:
            way = min(range(WAYS), key=lambda at: entries[at].used if entries[at].length else -1)
            self.counts.evictions += bool(entries[way].length)
        used = min(max(entry.used for entry in entries) + 1, 2**63)
        entry = _ENTRY.pack(block.digest, len(data), crc32c(data, crc32c(block.digest)), used)
        try:
            self._write(handle, [bytes(_ENTRY.size)], self._entry_at(block, way))
            self._write(handle, [data], self._slot_at(block, way))
            self._write(handle, [entry], self._entry_at(block, way))
        except OSError:  # full, or failing: reads continue from the store
            self.counts.refused += 1
            return False
        return True

    def drop(self, key: str, number: int) -> None:
        """Forgets a block, if it is here."""
        if self._handle is not None:
            block = self._place(key, number)
            for way, entry in enumerate(self._entries(self._handle, block)):
                if entry.digest == block.digest:
                    self._drop(self._handle, block, way)

    def _drop(self, handle: int, block: _Place, way: int) -> None:
        with suppress(OSError):
            self._write(handle, [bytes(_ENTRY.size)], self._entry_at(block, way))

    def _note_use(self, handle: int, block: _Place, entries: list[_Entry], way: int) -> None:
        latest = max(entry.used for entry in entries)
        if entries[way].used < latest:
            with suppress(OSError):
                entry = _ENTRY.pack(*entries[way]._replace(used=min(latest + 1, 2**63)))
                self._write(handle, [entry], self._entry_at(block, way))

    def _place(self, key: str, number: int) -> _Place:
        of_object = blake2b(key.encode(), digest_size=16).digest()
        digest = blake2b(of_object + number.to_bytes(8, "big"), digest_size=16).digest()
        return _Place(digest, (int.from_bytes(of_object[:8], "big") + number) % self._sets)  # neighbours differ

    def _entries(self, handle: int, block: _Place) -> list[_Entry]:
        """Returns the entries of a set; none if the disk fails."""
        try:
            table = self._disk.pread(handle, _SET_BYTES, _TABLE_AT + block.set_number * _SET_BYTES)
        except OSError:
            return []
        return [_Entry(*fields) for fields in _ENTRY.iter_unpack(table.ljust(_SET_BYTES, b"\0"))]

    def _entry_at(self, block: _Place, way: int) -> int:
        return _TABLE_AT + block.set_number * _SET_BYTES + way * _ENTRY.size

    def _slot_at(self, block: _Place, way: int) -> int:
        return self._data_at + (block.set_number * WAYS + way) * BLOCK_BYTES

    def _write(self, handle: int, buffers: Sequence[bytes], position: int) -> None:
        size_bytes = sum(map(len, buffers))
        if (written := self._disk.pwritev(handle, buffers, position)) != size_bytes:
            raise OSError(f"short write: {written} of {size_bytes} bytes")
