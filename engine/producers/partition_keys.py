"""One partition's idempotency keys during a plan: the current ones, those of the plan, those of the queue.

Pure, and part of engine/producers/append_validator.py's verdict; engine/producers/key_window.py has the memory.
Invariants: a key is found from the moment its append is queued, so that another request with it is answered at once;
`commit` applies the notes of a plan, `discard_staged` drops them; one of these two answers `expect`, or `forget` does
for a queue that no plan takes. The saved states (engine/producers/snapshots.py) together have the keys of the window at
the last of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from engine.errors import KeyReused
from engine.format.keyed_batch import KeyEntry
from engine.producers.appends import SharedRequests
from engine.producers.key_window import ROW, KeyRecord, KeyWindow, StoredKey, rows_before
from engine.producers.snapshots import EVERYTHING
from engine.topic_settings import TopicSettings

ROWS_AT_ONCE = 1024  # of a saved state: as objects they take five times as much memory


class FoundKey(NamedTuple):
    """The data for another request with this key: its request hash, its partition count, its remaining time."""

    request_hash: bytes
    partitions: int
    kept_ms: int


class PartitionKeys:
    """The keys of one partition."""

    def __init__(self, window: KeyWindow | None = None) -> None:
        self.window = KeyWindow() if window is None else window
        self._window_ms = TopicSettings().idempotency_window_ms
        self._keys_max = TopicSettings().idempotency_keys_max
        self._staged: dict[bytes, StoredKey] = {}  # by the plan in progress
        self._staged_ms = 0  # the time of that plan
        self._judged: list[KeyEntry] = []  # for the plan in progress
        self._staged_together: list[tuple[SharedRequests, int]] = []  # batches of several, and their base offsets
        self._expected: dict[bytes, tuple[KeyEntry, int]] = {}  # queued or in progress, and how often
        self._expected_together: deque[dict[bytes, KeyEntry]] = deque()  # those of batches of several
        self._judged_together = 0  # of these, for the plan in progress
        self._rows = bytearray()  # of the keys since the last saved state
        self._rows_last_ms = 0  # when the latest of them came
        self._last_state: tuple[int, bytearray] = (-1, bytearray())  # its offset and rows
        # saved states with keys of the window, and the time of each one's latest key
        self._files: deque[tuple[int, int]] = deque()

    def __repr__(self) -> str:
        noted = len(self._staged) + sum(shared.key_count for shared, _ in self._staged_together)
        expected = len(self._expected) + sum(map(len, self._expected_together))
        return f"PartitionKeys({self.window}, noted={noted}, expected={expected})"

    def __len__(self) -> int:
        return len(self.window)

    def use(self, settings: TopicSettings) -> None:
        """Uses these settings from now on."""
        self._window_ms, self._keys_max = settings.idempotency_window_ms, settings.idempotency_keys_max

    def expect(self, entries: Iterable[KeyEntry]) -> None:
        """Notes that appends with these keys are queued."""
        expected = self._expected
        for entry in entries:
            key_hash = entry[0]
            first, times = expected.get(key_hash, (entry, 0))
            expected[key_hash] = (first, times + 1)

    def expect_together(self, shared: SharedRequests) -> None:
        """Notes that the append of a batch of several requests is queued: they are judged in this order."""
        if shared.keys:
            self._expected_together.append(shared.keys)

    def forget(self, queued: Iterable[KeyEntry]) -> None:
        """Forgets all that is expected of a queue: these keys, and the batches of several that no plan has judged."""
        self._release(queued)
        while len(self._expected_together) > self._judged_together:
            self._expected_together.pop()

    def part(self, shared: SharedRequests) -> None:
        """Notes that the next of these batches is judged request by request."""
        if len(self._expected_together) > self._judged_together and shared.keys:
            del self._expected_together[self._judged_together]
        self.expect([entry for entry, _, _ in shared.entries if type(entry) is KeyEntry])

    def knows(self, key_hash: bytes) -> bool:
        """True if a key is stored or pending."""
        for keys in self._expected_together:
            if key_hash in keys:
                return True
        return key_hash in self._expected or self.window.has(key_hash)

    def find(self, key_hash: bytes, now_ms: int) -> FoundKey | None:
        """Finds a stored or pending key; None without one."""
        remembered = self.window.find(key_hash)
        if remembered is not None:
            kept_ms = self._kept_ms(remembered.since_ms, now_ms)
            return FoundKey(remembered.request_hash, remembered.partitions, kept_ms)
        pending = next((keys[key_hash] for keys in self._expected_together if key_hash in keys), None)
        if pending is None and key_hash in self._expected:
            pending = self._expected[key_hash][0]
        if pending is None:
            return None
        return FoundKey(pending.request_hash, pending.partitions, self._kept_ms(now_ms, now_ms))

    def validate(self, entry: KeyEntry, now_ms: int) -> tuple[KeyRecord, int] | KeyReused | None:
        """Judges a key. None: it is new. Else where the same request is stored and for how long, or an error."""
        self._judged.append(entry)
        key_hash = entry.key_hash
        remembered = self._staged_record(key_hash) or self.window.find(key_hash)
        if remembered is None:
            return None
        if remembered.request_hash != entry.request_hash:
            return KeyReused("the Idempotency-Key belongs to another request; give each request a key of its own")
        return remembered, self._kept_ms(remembered.since_ms, now_ms)

    def stage(self, entry: KeyEntry, base_offset: int, record_count: int, now_ms: int) -> None:
        """Notes an append of the plan."""
        self._staged[entry.key_hash] = (entry, base_offset, record_count)
        self._staged_ms = now_ms

    def stage_all(self, shared: SharedRequests, base_offset: int, now_ms: int) -> bool:
        """Note all keys of a batch of several requests at this offset. False, with nothing noted, if one is not new."""
        keys = shared.keys
        if not keys:
            return True
        hashes = keys.keys()
        if len(keys) < shared.key_count or not self._staged.keys().isdisjoint(hashes) or self.window.has_any(hashes):
            return False
        for staged, _ in self._staged_together:
            if not staged.keys.keys().isdisjoint(hashes):
                return False
        self._judged_together += 1
        self._staged_together.append((shared, base_offset))
        self._staged_ms = now_ms
        return True

    def kept_ms(self, now_ms: int) -> int:
        """Returns for how many ms a key of the plan will be kept."""
        return self._kept_ms(now_ms, now_ms)

    def commit(self, settings: TopicSettings, below: int | None) -> None:
        """Applies the plan's keys below an offset, or all of them."""
        if not (self._judged or self._judged_together):
            return
        self.use(settings)
        due = [staged for staged in self._staged.values() if below is None or staged[1] < below]
        together = [staged for staged in self._staged_together if below is None or staged[1] < below]
        if due:
            due += [key for shared, base_offset in together for key in _stored_keys(shared, base_offset)]
            due.sort(key=itemgetter(1))
            self.replay(due, self._staged_ms, self._staged_ms)
        else:
            for shared, base_offset in together:
                is_keyed = shared.key_count == len(shared.entries)
                stored = shared.entries if is_keyed else list(_stored_keys(shared, 0))
                self.replay(stored, self._staged_ms, self._staged_ms, base_offset)  # type: ignore[arg-type]
        if below is None:
            self.discard_staged()
            return
        self._staged = {key_hash: staged for key_hash, staged in self._staged.items() if staged[1] >= below}
        self._staged_together = [staged for staged in self._staged_together if staged[1] >= below]

    def replay(
        self, stored: Sequence[StoredKey], now_ms: int, since_ms: int | None = None, base_offset: int = 0
    ) -> None:
        """Applies keys of the log, in its order, appended at `since_ms` or later. Offsets count from `base_offset`."""
        self._rows += self.window.add(stored, now_ms, since_ms, self._window_ms, self._keys_max, base_offset)
        if now_ms > self._rows_last_ms:
            self._rows_last_ms = now_ms
        if len(self._rows) > 2 * self._keys_max * ROW.size:  # more than are remembered
            del self._rows[: -self._keys_max * ROW.size]

    def to_save(self, offset: int) -> tuple[bytearray, tuple[int, ...]]:
        """Returns the keys of a state at this offset: the rows since the last one, and the states with the others."""
        first_offset = self.window.first_offset
        while self._files and first_offset is not None and self._files[0][0] <= first_offset:
            self._files.popleft()  # all its keys were dropped by count
        if offset == self._last_state[0]:  # again, as at a stop after a roll: nothing has come since
            rows = self._last_state[1]
            return rows, tuple(file for file, _ in self._files if file != offset)
        files = tuple(file for file, _ in self._files)
        rows, self._rows = self._rows, bytearray()
        self._note_saved(offset, rows, self._rows_last_ms)
        self._rows_last_ms = 0
        return rows, files

    def save_all_next(self) -> None:
        """Includes every key in the next state, after a failed save that lost rows."""
        rows = b"".join(row for keys in self.window.copies() for row in rows_before(keys, EVERYTHING))
        self._rows, self._last_state = bytearray(rows), (-1, bytearray())
        self._rows_last_ms = max(self._rows_last_ms, *(last_ms for _, last_ms in self._files), 0, 0)
        self._files.clear()

    def restore(self, offset: int, rows: bytes | bytearray, now_ms: int, since_ms: int | None) -> None:
        """Restore the keys of a state; the oldest state first. Their age is unknown: they count as new."""
        self._remember(rows, now_ms, since_ms)
        self._note_saved(offset, bytearray(rows), now_ms)

    def restore_in_part(self, rows: bytes | bytearray, now_ms: int, since_ms: int | None) -> None:
        """Restore the keys of one of several incomplete states: the next one will have all known keys."""
        self._remember(rows, now_ms, since_ms)
        self._rows_last_ms = now_ms
        self._rows += rows

    def _remember(self, rows: bytes | bytearray, now_ms: int, since_ms: int | None) -> None:
        for begin in range(0, len(rows), ROWS_AT_ONCE * ROW.size):
            stored = [
                (KeyEntry(key_hash, request_hash, partitions, time_ms), base_offset, record_count)
                for key_hash, request_hash, base_offset, record_count, partitions, time_ms in ROW.iter_unpack(
                    rows[begin : begin + ROWS_AT_ONCE * ROW.size]
                )
            ]
            self.window.add(stored, now_ms, since_ms, self._window_ms, self._keys_max)

    def _note_saved(self, offset: int, rows: bytearray, last_ms: int) -> None:
        self._last_state = (offset, rows)
        if rows:
            self._files.append((offset, last_ms))

    def discard_staged(self) -> None:
        """Drops the notes at the end of a plan."""
        self._release(self._judged)
        self._judged.clear()
        self._staged.clear()
        for _ in range(min(self._judged_together, len(self._expected_together))):
            self._expected_together.popleft()
        self._judged_together = 0
        self._staged_together.clear()

    def _release(self, entries: Iterable[KeyEntry]) -> None:
        expected = self._expected
        for entry in entries:
            key_hash = entry[0]
            first, times = expected.pop(key_hash) if key_hash in expected else (entry, 1)
            if times > 1:
                expected[key_hash] = (first, times - 1)

    def expire(self, now_ms: int) -> None:
        self.window.expire(now_ms, self._window_ms)
        if self._rows and self._rows_last_ms + self._window_ms <= now_ms:
            self._rows.clear()
        while self._files and self._files[0][1] + self._window_ms <= now_ms:
            self._files.popleft()

    def _staged_record(self, key_hash: bytes) -> KeyRecord | None:
        record = self._staged.get(key_hash)
        for shared, base_offset in self._staged_together:
            if key_hash in shared.keys:
                record = next(
                    stored_key for stored_key in _stored_keys(shared, base_offset) if stored_key[0].key_hash == key_hash
                )
        if record is None:
            return None
        (_, request_hash, partitions, time_ms), base_offset, record_count = record
        return KeyRecord(request_hash, base_offset, record_count, partitions, time_ms, self._staged_ms)

    def _kept_ms(self, since_ms: int | None, now_ms: int) -> int:
        return self.window.kept_ms(since_ms, now_ms, self._window_ms)


def _stored_keys(shared: SharedRequests, base_offset: int) -> Iterator[StoredKey]:
    """Yields the keys of a batch of several requests at this offset, in its order."""
    for entry, first, record_count in shared.entries:
        if type(entry) is KeyEntry:
            yield entry, base_offset + first, record_count
