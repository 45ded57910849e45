"""The idempotency keys of one partition: the request of each, and where its records are stored.

Pure: bytes and numbers in, answers out. Reads no batch (engine/format/keyed_batch.py) and rejects nothing
(engine/producers/append_validator.py). A window is a row of slices, oldest first, each a dict; a slice is dropped as a
whole, so that dropping costs nothing per key. A key is dropped when it is older than the window; earlier when the
partition, or all partitions of the process together (KeyBudget), exceed their bound: then the oldest eighth is dropped
first. All times are the steady time of this process (engine/runtime/clock.py), from the moment at which it learned of
the key. So each replica keeps a key for the window at least after its append, however wrong the clocks are. `time_ms`
of an entry is another node's wall time: clients see it; it decides nothing.
Invariants: a key is found from `add` until it is older than the window, unless a bound by count has dropped it; it is
found for an eighth of the window longer at most; when very many keys expire at once, several calls of `expire` drop
them. If a key has two entries, the later one is found. `kept_ms` never exceeds the window, nor the age at which keys
were dropped by count within the last window, and is 0 for a key of unknown age: another replica may have learned of it
earlier and drops it earlier.
Measured: 200 bytes a key, so a million of them is 200 MB; about 1 us to add one or to look one up.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import penstock_codec
from engine.format.keyed_batch import HASH_BYTES, KeyEntry

SLICES = 8
TOTAL_KEYS_MAX = 2_000_000  # of a process without a setting for it

ROW = struct.Struct(f">{HASH_BYTES}s{HASH_BYTES}sqiHq")  # a key in files: its hash, and its entry

_BASE_OFFSET = struct.Struct(">q")  # behind the request's hash
_STORED = struct.Struct(f">{HASH_BYTES}sqiHqi")  # packed: a tuple of objects would take three times as much
_STORED_ROW_BYTES = ROW.size - HASH_BYTES  # the part of these in files
_AGE_UNKNOWN = -(1 << 31)
_DROPPED_MIN = 16
_EXPIRED_AT_ONCE = 100_000  # keys: freeing them takes 3 ms


class KeyRecord(NamedTuple):
    """The entry of a key. `since_ms`: its records were appended then or later; None if that is unknown."""

    request_hash: bytes
    base_offset: int
    record_count: int
    partitions: int
    time_ms: int
    since_ms: int | None


StoredKey = tuple[KeyEntry, int, int]  # the base offset and the record count of its request


class _Slice:
    """Keys that arrived one after another. `last_ms` is when the youngest arrived."""

    __slots__ = ("first_ms", "first_offset", "is_dropped", "keys", "last_ms")

    def __init__(self, now_ms: int, first_offset: int) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.first_ms = self.last_ms = now_ms
        self.first_offset = first_offset
        self.is_dropped = False

    def key_record(self, stored: bytes) -> KeyRecord:
        request_hash, base_offset, count, partitions, time_ms, after_first_ms = _STORED.unpack(stored)
        since_ms = None if after_first_ms == _AGE_UNKNOWN else self.first_ms + after_first_ms
        return KeyRecord(request_hash, base_offset, count, partitions, time_ms, since_ms)


class KeyBudget:
    """The bound on the keys of all partitions of a process; beyond it the oldest slice of all is dropped."""

    def __init__(self, keys_max: int = TOTAL_KEYS_MAX) -> None:
        self.keys_max = keys_max
        self.keys = 0
        self._slices: deque[tuple[KeyWindow, _Slice]] = deque()
        self._dropped = 0  # of these

    def __repr__(self) -> str:
        return f"KeyBudget({self.keys} of {self.keys_max} in {len(self._slices)} slices, dropped={self._dropped})"

    @property
    def slice_count(self) -> int:
        """Its slices, including dropped ones: at most about twice the live ones."""
        return len(self._slices)

    def add_slice(self, window: KeyWindow, opened: _Slice) -> None:
        self._slices.append((window, opened))

    def note_dropped(self) -> None:
        """Notes that a slice was dropped. Dropped ones are removed when they are the greater part."""
        self._dropped += 1
        if self._dropped > _DROPPED_MIN and 2 * self._dropped > len(self._slices):
            self._slices = deque(entry for entry in self._slices if not entry[1].is_dropped)
            self._dropped = 0

    def evict(self, now_ms: int) -> None:
        """Drops slices until the keys are within the bound."""
        while self.keys > self.keys_max and self._slices:
            window, oldest = self._slices[0]
            if oldest.is_dropped:
                self._slices.popleft()
                self._dropped -= 1
            else:
                window.drop_oldest(now_ms)
                assert oldest.is_dropped, "slices of a window go in their order"


class KeyWindow:
    """The keys of one partition."""

    def __init__(self, budget: KeyBudget | None = None) -> None:
        self.dropped = 0  # by a bound on their number, before their time
        self._budget = KeyBudget() if budget is None else budget
        self._slices: deque[_Slice] = deque()
        self._keys = 0
        self._reach_ms = 0  # the age of the youngest key last dropped by count
        self._shortened_ms: int | None = None  # and when that was

    def __repr__(self) -> str:
        return f"KeyWindow({self._keys} in {len(self._slices)} slices, dropped={self.dropped})"

    def __len__(self) -> int:
        return self._keys

    def find(self, key_hash: bytes) -> KeyRecord | None:
        for key_slice in reversed(self._slices):
            stored = key_slice.keys.get(key_hash)
            if stored is not None:
                return key_slice.key_record(stored)
        return None

    def has(self, key_hash: bytes) -> bool:
        """True if a key is remembered. Costs less than `find`."""
        for key_slice in self._slices:  # noqa: SIM110 - no frame of a generator
            if key_hash in key_slice.keys:
                return True
        return False

    def has_any(self, key_hashes: Collection[bytes]) -> bool:
        """True if one of the keys is remembered. Costs no call for each key."""
        return not all(key_slice.keys.keys().isdisjoint(key_hashes) for key_slice in self._slices)

    def add(
        self,
        stored: Sequence[StoredKey],
        now_ms: int,
        since_ms: int | None,
        window_ms: int,
        keys_max: int,
        base_offset: int = 0,
    ) -> bytearray:
        """Remembers keys whose records are in the log, in its order. Returns their rows. `since_ms`: as in KeyRecord.

        Their offsets are counted from `base_offset`.
        """
        native, begin, rows = penstock_codec.native, 0, bytearray()
        while begin < len(stored):
            into = self._slice_for(now_ms, base_offset + stored[begin][1], window_ms, keys_max)
            before = len(into.keys)
            end = begin + max(1, _slice_keys_max(keys_max) - before)
            after_first_ms = _AGE_UNKNOWN if since_ms is None else max(_AGE_UNKNOWN, since_ms - into.first_ms)
            part = stored if begin == 0 and end >= len(stored) else stored[begin:end]
            packed = None if native is None else native.store_keys(into.keys, part, base_offset, after_first_ms)
            rows += store_keys(into.keys, part, base_offset, after_first_ms) if packed is None else packed
            begin = end
            if now_ms > into.last_ms:
                into.last_ms = now_ms
            self._keys += len(into.keys) - before
            self._budget.keys += len(into.keys) - before
            while self._keys > keys_max:
                self.drop_oldest(now_ms)
            if self._budget.keys > self._budget.keys_max:
                self._budget.evict(now_ms)
        return rows

    def expire(self, now_ms: int, window_ms: int) -> None:
        """Drops slices in which every key is older than the window; with many keys the next call continues."""
        keys_before = self._keys
        while self._slices and self._slices[0].last_ms + window_ms <= now_ms:
            self._drop()
            if keys_before - self._keys >= _EXPIRED_AT_ONCE:
                return

    @property
    def first_offset(self) -> int | None:
        """Every key remembered below this offset is also remembered above it."""
        return self._slices[0].first_offset if self._slices else None

    def kept_ms(self, since_ms: int | None, now_ms: int, window_ms: int) -> int:
        """Returns for how many ms from now any replica will find a key whose records were appended at `since_ms`.

        That is the window, less the key's age. If keys were dropped by count within the last window, their age then
        replaces the window: the best guess, since more keys may come.
        """
        if since_ms is None:
            return 0
        reach_ms = window_ms
        if self._shortened_ms is not None and now_ms - self._shortened_ms < window_ms:
            reach_ms = min(reach_ms, self._reach_ms)
        return max(0, reach_ms - max(0, now_ms - since_ms))

    def items(self) -> Iterator[tuple[bytes, KeyRecord]]:
        """Yields every key, oldest slice first."""
        for key_slice in self._slices:
            for key_hash, stored in key_slice.keys.items():
                yield key_hash, key_slice.key_record(stored)

    def copies(self) -> list[dict[bytes, bytes]]:
        """Copy all slices, to be read in a thread (`rows_before`)."""
        return [key_slice.keys.copy() for key_slice in self._slices]

    def use_budget(self, budget: KeyBudget, now_ms: int) -> None:
        """Uses a shared budget from now on. Not before, because several threads open partitions."""
        self._budget = budget
        budget.keys += self._keys
        for key_slice in self._slices:
            budget.add_slice(self, key_slice)
        budget.evict(now_ms)

    def clear(self) -> None:
        """Drops all keys of a deleted partition."""
        while self._slices:
            self._drop()

    def drop_oldest(self, now_ms: int) -> None:
        """Drops the oldest slice: there are too many keys."""
        oldest = self._slices[0]
        self.dropped += len(oldest.keys)
        self._reach_ms, self._shortened_ms = max(0, now_ms - oldest.last_ms), now_ms
        self._drop()

    def _drop(self) -> None:
        oldest = self._slices.popleft()
        oldest.is_dropped = True
        self._keys -= len(oldest.keys)
        self._budget.keys -= len(oldest.keys)
        self._budget.note_dropped()
        oldest.keys = {}

    def _slice_for(self, now_ms: int, base_offset: int, window_ms: int, keys_max: int) -> _Slice:
        if self._slices:
            latest = self._slices[-1]
            is_full = len(latest.keys) >= _slice_keys_max(keys_max)
            if not is_full and now_ms - latest.first_ms < max(1, window_ms // SLICES):
                return latest
            self.expire(now_ms, window_ms)
        opened = _Slice(now_ms, base_offset)
        self._slices.append(opened)
        self._budget.add_slice(self, opened)
        return opened


def store_keys(
    keys: dict[bytes, bytes], stored: Sequence[StoredKey], base_offset: int, after_first_ms: int
) -> bytearray:
    """Adds keys to those of a slice. Returns their rows in files. The twin of the compiled `store_keys`."""
    pack, rows = _STORED.pack, bytearray()
    for (key_hash, request_hash, partitions, time_ms), offset, count in stored:
        packed = pack(request_hash, base_offset + offset, count, partitions, time_ms, after_first_ms)
        keys[key_hash] = packed
        rows += key_hash
        rows += packed[:_STORED_ROW_BYTES]
    return rows


def _slice_keys_max(keys_max: int) -> int:
    return max(1, keys_max // SLICES)


def rows_before(keys: dict[bytes, bytes], offset: int) -> Iterator[bytes]:
    """Yields the file rows of keys whose records are below an offset."""
    for key_hash, stored in keys.items():
        if _BASE_OFFSET.unpack_from(stored, HASH_BYTES)[0] < offset:
            yield key_hash + stored[:_STORED_ROW_BYTES]
