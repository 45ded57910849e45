"""The positions of one partition's sources: the inputs whose outputs the partition has.

Pure: entries in, verdicts out. Does not know other reasons for a rejection (engine/producers/append_validator.py) nor
where its state is saved (engine/producers/snapshots.py). A source is an input whose positions a client counts: a
partition that it reads, or a file. A batch has the outputs of a range of these positions, and is accepted if all of
them are above the last one that is stored. So the effect of each input on the partition is stored once, however many
clients send it, and in any batches (docs/guarantees.md).

A known source is found by the last `KEPT` batches. One whose range is that of the batch in question is the same
request. Else the latest one has the position. For an unknown or expired source any batch is accepted.
Invariants: `commit` applies the notes of a plan, `discard_staged` drops them. A Source is immutable, so that a snapshot
of all of them is a copy of references. The ranges of a Source ascend and do not overlap.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from engine.format.keyed_batch import HASH_BYTES, SourceEntry

NAME = re.compile(r"[!-~]{1,255}")
KEPT = 4  # a writer has one batch in progress, and there are seldom more than two writers of a source
EXPIRED_AT_ONCE = 2000  # dropping them takes half a millisecond
_FIELDS = 5  # of a batch in Source.batches: those of SourceBatch
_HEAD = struct.Struct(f">{HASH_BYTES}sqB")
_BATCH = struct.Struct(">qqqiq")


class SourceBatch(NamedTuple):
    """A stored batch: its range of positions, and where and when it was stored."""

    first: int
    last: int
    base_offset: int
    record_count: int
    time_ms: int


class Source:
    """The last batches of one source, flat, oldest first, at most KEPT."""

    __slots__ = ("batches", "used_ms")

    def __init__(self, used_ms: int, batches: array[int]) -> None:
        assert batches, "a source is known by a batch"
        self.used_ms = used_ms
        self.batches = batches

    def __repr__(self) -> str:
        return f"Source(position={self.position}, batches={len(self.batches) // _FIELDS})"

    @property
    def position(self) -> int:
        """The last position whose outputs are stored."""
        return self.batches[1 - _FIELDS]

    @property
    def latest(self) -> SourceBatch:
        return SourceBatch(*self.batches[-_FIELDS:])

    def find(self, first: int, last: int) -> SourceBatch | None:
        """Finds the batch of exactly this range."""
        batches = self.batches
        for at in range(len(batches) - _FIELDS, -1, -_FIELDS):
            if batches[at] == first and batches[at + 1] == last:
                return SourceBatch(*batches[at : at + _FIELDS])
        return None

    def before(self, offset: int) -> Source | None:
        """Returns its state when the log ended at an offset, from these batches; None without an earlier one."""
        count = sum(base_offset < offset for base_offset in self.batches[2::_FIELDS])
        return Source(self.used_ms, self.batches[: count * _FIELDS]) if count else None

    def used_at(self, used_ms: int) -> Source:
        return Source(used_ms, self.batches)


class _Staged(NamedTuple):
    base_offset: int
    source_hash: bytes
    source: Source


class Sources:
    """The sources of one partition, least recently used first."""

    def __init__(self) -> None:
        self._by_hash: OrderedDict[bytes, Source] = OrderedDict()
        self._staged: list[_Staged] = []  # by the plan in progress, in its order
        self._noted: dict[bytes, Source] = {}  # and what it makes of each source

    def __repr__(self) -> str:
        return f"Sources({len(self._by_hash)}, noted={len(self._staged)})"

    def __len__(self) -> int:
        return len(self._by_hash)

    def find(self, source_hash: bytes) -> Source | None:
        """Returns the applied state of a source."""
        return self._by_hash.get(source_hash)

    def validate(self, entry: SourceEntry) -> tuple[SourceBatch, int | None] | None:
        """Judges a batch; None accepts it.

        Else returns the stored batch of the same range and None, or the latest batch and its last position.
        """
        source = self._noted.get(entry.source_hash) or self._by_hash.get(entry.source_hash)
        if source is None or entry.first > source.position:
            return None
        same = source.find(entry.first, entry.last)
        return (source.latest, source.position) if same is None else (same, None)

    def stage(self, entry: SourceEntry, base_offset: int, record_count: int, now_ms: int) -> None:
        """Notes an accepted batch of the plan, at this offset."""
        source = self._noted.get(entry.source_hash) or self._by_hash.get(entry.source_hash)
        self._noted[entry.source_hash] = after = _after(source, entry, base_offset, record_count, now_ms)
        self._staged.append(_Staged(base_offset, entry.source_hash, after))

    def commit(self, sources_max: int, below: int | None = None) -> None:
        """Applies the plan's notes below an offset, or all of them."""
        count = 0
        for base_offset, source_hash, source in self._staged:
            if below is not None and base_offset >= below:
                break
            self._apply(source_hash, source, sources_max)
            count += 1
        del self._staged[:count]
        if below is None:
            self._noted.clear()

    def discard_staged(self) -> None:
        """Drops the uncommitted notes."""
        self._staged.clear()
        self._noted.clear()

    def replay(self, entry: SourceEntry, base_offset: int, record_count: int, now_ms: int, sources_max: int) -> None:
        """Applies a batch of the log; never rejects one."""
        after = _after(self._by_hash.get(entry.source_hash), entry, base_offset, record_count, now_ms)
        self._apply(entry.source_hash, after, sources_max)

    def restore(self, items: Iterable[tuple[bytes, Source]], sources_max: int, now_ms: int) -> None:
        """Begins with saved sources, which count as used now."""
        for source_hash, source in items:
            self._apply(source_hash, source.used_at(now_ms), sources_max)

    def expire(self, before_ms: int) -> None:
        """Drops sources last used before a time; with many the next call continues."""
        for _ in range(min(EXPIRED_AT_ONCE, len(self._by_hash))):
            source_hash = next(iter(self._by_hash))
            if self._by_hash[source_hash].used_ms >= before_ms:
                return
            del self._by_hash[source_hash]

    def items(self) -> list[tuple[bytes, Source]]:
        """Returns the applied state, least recently used first; costs a reference each."""
        return list(self._by_hash.items())

    def _apply(self, source_hash: bytes, source: Source, sources_max: int) -> None:
        self._by_hash[source_hash] = source
        self._by_hash.move_to_end(source_hash)
        while len(self._by_hash) > sources_max:
            self._by_hash.popitem(last=False)


def source_hash(name: str) -> bytes:
    """Returns the hash by which a source is known: never that of an Idempotency-Key of the same text."""
    return blake2b(name.encode(), digest_size=HASH_BYTES, person=b"source").digest()


def encode_sources(items: Iterable[tuple[bytes, Source]]) -> bytes:
    """Encodes sources as in FORMAT.md."""
    pieces = []
    for source_hash, source in items:
        batches = source.batches
        pieces.append(_HEAD.pack(source_hash, source.used_ms, len(batches) // _FIELDS))
        pieces += [_BATCH.pack(*batches[at : at + _FIELDS]) for at in range(0, len(batches), _FIELDS)]
    return b"".join(pieces)


def decode_sources(data: bytes) -> Iterator[tuple[bytes, Source]]:
    """Decodes the bytes of `encode_sources`; their checksum has been checked."""
    position = 0
    while position < len(data):
        source_hash, used_ms, batch_count = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        batches: array[int] = array("q")
        for _ in range(batch_count):
            batches.extend(_BATCH.unpack_from(data, position))
            position += _BATCH.size
        yield source_hash, Source(used_ms, batches)


def _after(source: Source | None, entry: SourceEntry, base_offset: int, record_count: int, now_ms: int) -> Source:
    """A source after one more batch; one that was forgotten has no earlier ones."""
    fields = (entry.first, entry.last, base_offset, record_count, entry.time_ms)
    if source is None or entry.first <= source.position:
        return Source(now_ms, array("q", fields))
    batches = source.batches[-(KEPT - 1) * _FIELDS :]
    batches.extend(fields)
    return Source(now_ms, batches)
