"""The counters of one process within one hour: a file that is mapped into memory, with a row for each tenant.

An increment is a store into a page of the kernel, so a process that is killed loses none; `sync` bounds what a loss of
power takes. A row never crosses a sector of the disk. The file grows by writes, before it is mapped, so a full disk is
an error of `add` and not a signal. `disk` gives handles of the operating system: the real one, or one around it.

      0    8  magic
      8   24  the hour since 1970, the node, the shard    8 bytes each, in the order of the machine's bytes
     32   64  the cluster, padded with zeros
     96    4  CRC-32 of the bytes before; zeros follow
    256  256  rows: tenant (32, padded with zeros), CRC-32 of it (4), zeros (4), counters (8 each)

Counters are those of gateway/usage/meters.py in their order, as five groups of four. The last items of the second to
fourth group, and the last two of the fifth, are zero.
Invariants: (1) a row with a counter above zero has a tenant whose CRC fits; (2) a tenant has one row; (3) counters only
grow.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from engine.errors import Corrupt
from engine.runtime.disk import Disk, write_fully
from gateway.usage.meters import Usage

ROW_BYTES = 256
TENANT_BYTES = 32
COUNTERS_AT = 40  # in a row
COUNTERS = struct.Struct("4Q 3Q8x 3Q8x 3Q8x 2Q16x")  # of the machine's own alignment: each is stored in one piece
CHUNK_BYTES = mmap.ALLOCATIONGRANULARITY
CHUNKS_AT_ONCE_MAX = 64  # a file with many tenants grows by doubling, up to this
_MAGIC = b"PSUSAGE1"
_HEAD = struct.Struct("8sQQQ64s")
_CRC = struct.Struct("I")
_NAME_BYTES = TENANT_BYTES + _CRC.size


class Origin(NamedTuple):
    """The hour and the process that a file is of."""

    hour: int
    cluster_id: str
    node_id: int
    shard: int

    def head(self) -> bytes:
        checked = _HEAD.pack(_MAGIC, self.hour, self.node_id, self.shard, self.cluster_id.encode())
        return checked + _CRC.pack(crc32(checked))


class Place(NamedTuple):
    """The place of a tenant's counters in mapped memory."""

    memory: mmap.mmap | bytearray
    at: int


class CounterFile:
    """A file that is written."""

    def __init__(self, disk: Disk, path: str, origin: Origin) -> None:
        """Makes the file. Raises OSError."""
        self.path = path
        self.origin = origin
        self._disk = disk
        self._handle = disk.open(path, create=True, writable=True)
        self._free: Iterator[Place] = iter(())
        self._size_bytes = 0
        try:
            self._grow(origin.head())
            next(self._free)  # the head
        except BaseException:
            self.close()
            with suppress(OSError):
                disk.unlink(path)
            raise

    def __repr__(self) -> str:
        return f"CounterFile({self.path}, size_bytes={self._size_bytes})"

    def add(self, tenant: str) -> Place:
        """Returns the place of the counters of a further tenant. Raises OSError: there is no room."""
        place = next(self._free, None)
        if place is None:
            self._grow()
            place = next(self._free)
        encoded = tenant.encode()
        assert 0 < len(encoded) < TENANT_BYTES, tenant
        padded = encoded.ljust(TENANT_BYTES, b"\0")
        place.memory[place.at - COUNTERS_AT : place.at - COUNTERS_AT + _NAME_BYTES] = padded + _CRC.pack(crc32(padded))
        return place

    def sync(self) -> None:
        """Makes the counters durable. Blocks. Raises OSError."""
        self._disk.fdatasync(self._handle)

    def close(self) -> None:
        """Gives the handle back. Places stay valid while they are referenced."""
        self._free = iter(())
        self._disk.close(self._handle)

    def _grow(self, head: bytes = b"") -> None:
        size_bytes = min(max(1, self._size_bytes // CHUNK_BYTES), CHUNKS_AT_ONCE_MAX) * CHUNK_BYTES
        write_fully(self._disk, self._handle, head.ljust(size_bytes, b"\0"), self._size_bytes)
        memory = mmap.mmap(self._handle, size_bytes, offset=self._size_bytes)
        self._size_bytes += size_bytes
        self._free = (Place(memory, at + COUNTERS_AT) for at in range(0, size_bytes, ROW_BYTES))


def read_counters(data: bytes, origin: Origin, path: str) -> dict[str, Usage]:
    """Returns the counters by tenant. A file of zeros, which a loss of power leaves, has none.

    Raises Corrupt: it is not of this origin, or damaged.
    """
    if not data.strip(b"\0"):
        return {}
    head = origin.head()
    if data[: len(head)] != head:
        raise Corrupt(f"{path} does not begin as a file of counters of {origin}")
    found: dict[str, Usage] = {}
    data += bytes(-len(data) % ROW_BYTES)  # a write that found no room is cut off
    for at in range(ROW_BYTES, len(data), ROW_BYTES):
        padded, (crc,) = data[at : at + TENANT_BYTES], _CRC.unpack_from(data, at + TENANT_BYTES)
        usage = Usage(*COUNTERS.unpack_from(data, at + COUNTERS_AT))
        tenant = padded.rstrip(b"\0").decode("ascii", "replace")
        if tenant and crc == crc32(padded) and tenant not in found:
            found[tenant] = usage
        elif any(usage):  # else the row is free, or its process was killed before it counted anything
            raise Corrupt(f"{path}: the row at {at} is damaged")
    return found
