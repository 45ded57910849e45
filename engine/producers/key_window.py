"""The idempotency keys that one partition remembers: what was asked under each, and where it was stored.

Pure: bytes and numbers in, answers out. It reads no batch (engine/format/keyed_batch.py) and refuses nothing
(engine/producers/append_validator.py). A window is a row of slices, oldest first, each a dict; a slice goes as a whole,
so that letting go of keys costs nothing per key. A key goes when it is older than the window; earlier when the
partition, or all partitions of the process together (KeyBudget), hold more than they may: then the oldest eighth goes
first. All times are the steady time of this process (engine/runtime/clock.py), from the moment at which it learned of
the key. So each replica keeps a key for the window at least after its append, however wrong the clocks are. `time_ms`
of an entry is another node's wall time: clients see it; it judges nothing.
Invariants: a key is found from `add` until it is older than the window, unless a bound by count has let it go; it is
found for an eighth of the window longer at most, and of very many keys that expire at once until so many calls of
`expire` have let go of them. Of two entries of one key the later one is found. `kept_ms` never exceeds what the window
and the pace at which keys went by count within the last window leave, and is 0 for a key of unknown age: another
replica may have learned of it earlier and forgets it earlier.
Measured: 200 bytes a key, so a million of them is 200 MB; about 1 us to add one or to look for one.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from engine.format.keyed_batch import HASH_BYTES, KeyEntry

SLICES = 8
TOTAL_KEYS_MAX = 2_000_000  # of a process whose settings say nothing else

ROW = struct.Struct(f">{HASH_BYTES}s{HASH_BYTES}sqiHq")  # as files keep a key: its hash, and what is known of it

_BASE_OFFSET = struct.Struct(">q")  # behind the request's hash
_STORED = struct.Struct(f">{HASH_BYTES}sqiHqi")  # packed: a tuple of objects would take three times as much
_STORED_ROW_BYTES = ROW.size - HASH_BYTES  # of these, what files keep
_AGE_UNKNOWN = -(1 << 31)
_DROPPED_MIN = 16
_EXPIRED_AT_ONCE = 100_000  # keys: to free so many takes 3 ms


class Remembered(NamedTuple):
    """What is known of a key. `since_ms`: its records were appended then or later; None if nothing is known of that."""

    request_hash: bytes
    base_offset: int
    record_count: int
    partitions: int
    time_ms: int
    since_ms: int | None


class _Slice:
    """Keys that came one after another. `last_ms` is when the youngest came."""

    __slots__ = ("first_ms", "first_offset", "is_dropped", "keys", "last_ms")

    def __init__(self, now_ms: int, first_offset: int) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.first_ms = self.last_ms = now_ms
        self.first_offset = first_offset
        self.is_dropped = False

    def remembered(self, stored: bytes) -> Remembered:
        request_hash, base_offset, count, partitions, time_ms, after_first_ms = _STORED.unpack(stored)
        since_ms = None if after_first_ms == _AGE_UNKNOWN else self.first_ms + after_first_ms
        return Remembered(request_hash, base_offset, count, partitions, time_ms, since_ms)


class KeyBudget:
    """How many keys all partitions of a process may remember together; beyond that the oldest slice of all goes."""

    def __init__(self, keys_max: int = TOTAL_KEYS_MAX) -> None:
        self.keys_max = keys_max
        self.keys = 0
        self._slices: deque[tuple[KeyWindow, _Slice]] = deque()
        self._dropped = 0  # of these

    def __repr__(self) -> str:
        return f"KeyBudget({self.keys} of {self.keys_max} in {len(self._slices)} slices, dropped={self._dropped})"

    @property
    def slice_count(self) -> int:
        """Those that it has in hand, dropped ones too: twice as many as there are, and a few, at most."""
        return len(self._slices)

    def opened(self, window: KeyWindow, opened: _Slice) -> None:
        self._slices.append((window, opened))

    def dropped(self) -> None:
        """A slice was. It may be behind one that stays for long: dropped ones go when they are the greater part."""
        self._dropped += 1
        if self._dropped > _DROPPED_MIN and 2 * self._dropped > len(self._slices):
            self._slices = deque(one for one in self._slices if not one[1].is_dropped)
            self._dropped = 0

    def keep(self, now_ms: int) -> None:
        """Let go of what is too much."""
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
        self._reach_ms = 0  # how old the youngest was of those that went by count last
        self._shortened_ms: int | None = None  # and when that was

    def __repr__(self) -> str:
        return f"KeyWindow({self._keys} in {len(self._slices)} slices, dropped={self.dropped})"

    def __len__(self) -> int:
        return self._keys

    def find(self, key_hash: bytes) -> Remembered | None:
        for one in reversed(self._slices):
            stored = one.keys.get(key_hash)
            if stored is not None:
                return one.remembered(stored)
        return None

    def add(
        self,
        entry: KeyEntry,
        base_offset: int,
        record_count: int,
        *,
        now_ms: int,
        since_ms: int | None,
        window_ms: int,
        keys_max: int,
    ) -> None:
        """Remember a key whose records are in the log. `since_ms`: as Remembered has it."""
        key_hash, request_hash, partitions, time_ms = entry
        into = self._slice_for(now_ms, base_offset, window_ms, keys_max)
        before = len(into.keys)
        after_first_ms = _AGE_UNKNOWN if since_ms is None else max(_AGE_UNKNOWN, since_ms - into.first_ms)
        into.keys[key_hash] = _STORED.pack(request_hash, base_offset, record_count, partitions, time_ms, after_first_ms)
        if now_ms > into.last_ms:
            into.last_ms = now_ms
        if len(into.keys) > before:
            self._keys += 1
            self._budget.keys += 1
            if self._keys > keys_max:
                self.drop_oldest(now_ms)
            if self._budget.keys > self._budget.keys_max:
                self._budget.keep(now_ms)

    def expire(self, now_ms: int, window_ms: int) -> None:
        """Let go of slices in which every key is older than the window; of many keys the rest goes the next time."""
        keys_before = self._keys
        while self._slices and self._slices[0].last_ms + window_ms <= now_ms:
            self._drop()
            if keys_before - self._keys >= _EXPIRED_AT_ONCE:
                return

    @property
    def first_offset(self) -> int | None:
        """Below this no key is remembered that is not remembered again behind it."""
        return self._slices[0].first_offset if self._slices else None

    def kept_ms(self, since_ms: int | None, now_ms: int, window_ms: int) -> int:
        """How long a key whose records were appended then will be found, from now on, whichever replica is asked.

        That is the window, less the key's age. If keys went by count within the last window, the age at which they did
        stands for the window: the best guess, for more keys may come yet.
        """
        if since_ms is None:
            return 0
        reach_ms = window_ms
        if self._shortened_ms is not None and now_ms - self._shortened_ms < window_ms:
            reach_ms = min(reach_ms, self._reach_ms)
        return max(0, reach_ms - max(0, now_ms - since_ms))

    def items(self) -> Iterator[tuple[bytes, Remembered]]:
        """Every key, oldest slice first."""
        for one in self._slices:
            for key_hash, stored in one.keys.items():
                yield key_hash, one.remembered(stored)

    def copies(self) -> list[dict[bytes, bytes]]:
        """All of it, to be looked through in a thread (`rows_before`)."""
        return [one.keys.copy() for one in self._slices]

    def join(self, budget: KeyBudget, now_ms: int) -> None:
        """Share a budget from now on. Not before, because partitions are opened in several threads."""
        self._budget = budget
        budget.keys += self._keys
        for one in self._slices:
            budget.opened(self, one)
        budget.keep(now_ms)

    def clear(self) -> None:
        """The partition is gone."""
        while self._slices:
            self._drop()

    def drop_oldest(self, now_ms: int) -> None:
        """There are too many keys."""
        oldest = self._slices[0]
        self.dropped += len(oldest.keys)
        self._reach_ms, self._shortened_ms = max(0, now_ms - oldest.last_ms), now_ms
        self._drop()

    def _drop(self) -> None:
        oldest = self._slices.popleft()
        oldest.is_dropped = True
        self._keys -= len(oldest.keys)
        self._budget.keys -= len(oldest.keys)
        self._budget.dropped()
        oldest.keys = {}

    def _slice_for(self, now_ms: int, base_offset: int, window_ms: int, keys_max: int) -> _Slice:
        if self._slices:
            latest = self._slices[-1]
            is_full = len(latest.keys) >= max(1, keys_max // SLICES)
            if not is_full and now_ms - latest.first_ms < max(1, window_ms // SLICES):
                return latest
            self.expire(now_ms, window_ms)
        opened = _Slice(now_ms, base_offset)
        self._slices.append(opened)
        self._budget.opened(self, opened)
        return opened


def rows_before(keys: dict[bytes, bytes], offset: int) -> Iterator[bytes]:
    """As files keep them, those of records below an offset."""
    for key_hash, stored in keys.items():
        if _BASE_OFFSET.unpack_from(stored, HASH_BYTES)[0] < offset:
            yield key_hash + stored[:_STORED_ROW_BYTES]
