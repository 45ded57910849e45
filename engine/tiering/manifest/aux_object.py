"""The aux object beside each segment object: facts for a reader before it fetches the data. Pure.

Derived from the data and never evidence about it: a reader checks every batch header that an index entry leads to, and
without the aux object walks the data from its beginning. Format: engine/tiering/FORMAT.md.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass
from itertools import pairwise

import orjson

from engine.errors import Corrupt
from engine.tiering.manifest.json_reading import convert, read_object

FORMAT = 1
INDEX_INTERVAL_BYTES = 64 << 10  # a lookup walks at most this much, or one batch; 1,024 entries for 64 MiB


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """Blocks of batches: block i begins with the batch of `offsets[i]` at byte `positions[i]`.

    `max_timestamps_ms[i]` bounds every record of block i alone. Offsets and positions strictly increase.
    """

    offsets: tuple[int, ...]
    positions: tuple[int, ...]
    max_timestamps_ms: tuple[int, ...]

    def position_at_or_before(self, offset: int) -> int:
        """Returns a byte position from which a walk forward finds the batch that holds `offset`."""
        after = bisect_right(self.offsets, offset)
        return self.positions[after - 1] if after else 0

    def batch_at_or_before(self, offset: int) -> tuple[int, int]:
        """Returns position and offset of the last batch of the index at or before `offset`, or of the first one."""
        at = max(bisect_right(self.offsets, offset) - 1, 0)
        return self.positions[at], self.offsets[at]

    def position_to_search_time_from(self, timestamp: int) -> int:
        """Returns a byte position such that no record before it has `timestamp` or a later one."""
        columns = zip(self.positions, self.max_timestamps_ms, strict=True)
        return next((position for position, latest in columns if latest >= timestamp), self.positions[-1])


@dataclass(frozen=True, slots=True)
class AuxObject:
    """The facts of one segment object. `crc32c` is that of its bytes."""

    base_offset: int
    end_offset: int
    size_bytes: int
    crc32c: int
    record_count: int
    batch_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    leader_epochs: tuple[tuple[int, int], ...]
    index: SparseIndex


def encode_aux(aux: AuxObject) -> bytes:
    return orjson.dumps({"format": FORMAT, **asdict(aux)})


def decode_aux(data: bytes, key: str) -> AuxObject:
    """Decodes the facts of an object. Raises Corrupt, which names the object, or UnsupportedFormat."""
    aux = convert(read_object(data, key, FORMAT), AuxObject, key)
    if not _is_sound(aux.index, aux.base_offset):
        raise Corrupt(f"{key}: its index does not begin at {aux.base_offset} or does not increase")
    return aux


def _is_sound(index: SparseIndex, base_offset: int) -> bool:
    return (
        len(index.offsets) == len(index.positions) == len(index.max_timestamps_ms) > 0
        and (index.offsets[0], index.positions[0]) == (base_offset, 0)
        and all(value < other for column in (index.offsets, index.positions) for value, other in pairwise(column))
    )
