"""Counts the usage of tenants in one process: increments of memory that a kill does not take.

Not here: which request counts as what (gateway/server/requests.py), and sums over processes (gateway/usage/keeper.py).
Each hour has a file of its own, which begins with its first count; that of the next hour is made ahead. Without room on
the disk a tenant is counted in plain memory until there is some: a kill takes such counts, so they may be too small.
Invariants: one thread counts, that of the event loop; an answer leaves after it is counted; nothing is counted twice.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from typing import Any

from engine.directory.data_directory import Identity
from engine.format.paths import UsageFile, usage_file
from engine.runtime.clock import Clock
from engine.runtime.disk import Disk
from gateway.usage.counter_file import COUNTERS, CounterFile, Origin, Place
from gateway.usage.meters import HOUR_MS, PRODUCES, READS, Usage, hour_of

log = logging.getLogger("penstock.usage")

AHEAD_MS = 20_000  # the file of the next hour is made this long before it begins

_GROUP = struct.Struct("4Q")
_store = _GROUP.pack_into  # each counter in one piece
OTHER, REFUSED, LAST = "", "429", "last"  # groups that no operation names
_GROUPS = (PRODUCES, READS, (OTHER,), (REFUSED,), (LAST,))  # in the order of their counters
assert COUNTERS.size == len(_GROUPS) * _GROUP.size

# The counters of a group: requests, bytes in, bytes out, records; and the memory that has them too, and where. The last
# group has failed requests and stored byte-seconds. An item of a list is read in a third of the time.
Group = list[Any]
Row = dict[str, Group]  # of one tenant, by operation


class UsageCounting:
    """The counts of one process. `directory` is that of the node's files of counters."""

    def __init__(
        self, disk: Disk, directory: str, identity: Identity, shard: int, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.shard = shard
        self._disk = disk
        self._clock = clock
        self._new_id = new_id
        self._hour = -1
        self._ends_at = float("-inf")  # the hour, by time.perf_counter
        self._rows: dict[str, Row] = {}
        self._file: CounterFile | None = None
        self._next: CounterFile | None = None
        self._ended: list[CounterFile] = []
        self._unsaved: dict[int, dict[str, Row]] = {}  # by hour: those in plain memory
        self._is_failing = False

    def __repr__(self) -> str:
        return f"UsageCounting(hour={self._hour}, tenants={len(self._rows)})"

    def count_request(
        self, tenant: str, operation: str, status: int, bytes_in: int, bytes_out: int, stored: int, now: float
    ) -> None:
        """Counts a request that is answered, and the records that it has stored. `now`: by time.perf_counter."""
        if now >= self._ends_at:
            self.follow_clock(now)
        row = self._rows.get(tenant) or self._add(tenant)
        if status < 400:
            group = row.get(operation) or row[OTHER]
        elif status == 429:
            group = row[REFUSED]
        else:
            group, bytes_in, bytes_out, stored = row[LAST], 0, 0, 0
        requests, group_in, group_out, records, memory, at = group
        group[0] = requests = requests + 1
        group[1] = group_in = group_in + bytes_in
        group[2] = group_out = group_out + bytes_out
        if stored:
            group[3] = records = records + stored
        _store(memory, at, requests, group_in, group_out, records)

    def count_bytes_out(self, tenant: str, operation: str, size_bytes: int, now: float) -> None:
        """Counts a piece of an answer."""
        self._count(tenant, operation, 2, size_bytes, now)

    def count_records(self, tenant: str, records: int, now: float) -> None:
        """Counts records that a produce without an answer has stored: its client has left."""
        self._count(tenant, PRODUCES[0], 3, records, now)

    def count_stored(self, tenant: str, byte_seconds: int, now: float) -> None:
        self._count(tenant, LAST, 1, byte_seconds, now)

    def follow_clock(self, now: float) -> None:
        """Finds the present hour by the clock, which may have been set, and begins to count in it."""
        now_ms = self._clock.now_ms()
        hour = hour_of(now_ms)
        self._ends_at = now + ((hour + 1) * HOUR_MS - now_ms) / 1000
        if hour == self._hour:
            return
        if self._file is not None:
            self._ended.append(self._file)
        self._hour, self._rows, self._file = hour, {}, None
        if (ahead := self._next) is not None:
            self._next = None
            if ahead.origin.hour == hour:
                self._file = ahead
            else:  # the clock was set
                self._ended.append(ahead)

    def must_prepare(self) -> bool:
        """Returns whether the file of the next hour should be made now."""
        left_ms = (self._hour + 1) * HOUR_MS - self._clock.now_ms()
        return self._file is not None and self._next is None and 0 < left_ms <= AHEAD_MS

    def prepare(self) -> CounterFile:
        """Makes the file of the next hour, for `take_next`. Blocks. Raises OSError."""
        return self._make_file(self._hour + 1)

    def take_next(self, file: CounterFile) -> None:
        self._next = file

    def present_files(self) -> list[CounterFile]:
        """Returns the files that are counted in, now or in the next hour."""
        return [file for file in (self._file, self._next) if file is not None]

    def take_ended(self) -> list[CounterFile]:
        """Returns the files of hours that are over, for the caller to sync and close."""
        ended, self._ended = self._ended, []
        return ended

    def end(self) -> list[CounterFile]:
        """Ends the counting, and returns all files, for the caller to sync and close."""
        self.place_unsaved()
        files = [*self.take_ended(), *self.present_files()]
        self._rows, self._file, self._next, self._hour, self._ends_at = {}, None, None, -1, float("-inf")
        return files

    def unsaved(self) -> Iterator[tuple[int, str, Usage]]:
        """Yields hour, tenant and counts of what is in no file."""
        for hour, rows in self._unsaved.items():
            for tenant, row in rows.items():
                yield hour, tenant, Usage(*COUNTERS.unpack_from(row[OTHER][4]))

    def place_unsaved(self) -> None:
        """Moves what is in plain memory into files, if there is room now."""
        for hour, rows in list(self._unsaved.items()):
            try:
                file = self._present_file() if hour == self._hour else self._make_file(hour)
                if hour != self._hour:
                    self._ended.append(file)
                while rows:
                    tenant, row = next(iter(rows.items()))
                    _move(row, file.add(tenant))
                    del rows[tenant]
                del self._unsaved[hour]
            except OSError:
                return
        if self._is_failing:
            self._is_failing = False
            log.info("usage is counted in files again", extra={"directory": self.directory})

    def _count(self, tenant: str, operation: str, item: int, amount: int, now: float) -> None:
        if now >= self._ends_at:
            self.follow_clock(now)
        row = self._rows.get(tenant) or self._add(tenant)
        group = row.get(operation) or row[OTHER]
        group[item] += amount
        *counters, memory, at = group
        _store(memory, at, *counters)

    def _add(self, tenant: str) -> Row:
        try:
            place = self._present_file().add(tenant)
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                fields = {"directory": self.directory, "reason": str(error)}
                log.error("usage is counted in memory: a file of counters cannot be written", extra=fields)
            place = Place(bytearray(COUNTERS.size), 0)
        row: Row = {}
        for number, operations in enumerate(_GROUPS):
            group: Group = [0, 0, 0, 0, place.memory, place.at + number * _GROUP.size]
            row |= dict.fromkeys(operations, group)
        self._rows[tenant] = row
        if isinstance(place.memory, bytearray):
            self._unsaved.setdefault(self._hour, {})[tenant] = row
        return row

    def _present_file(self) -> CounterFile:
        if self._file is None:
            self._file = self._make_file(self._hour)
        return self._file

    def _make_file(self, hour: int) -> CounterFile:
        self._disk.mkdir(self.directory)
        name = usage_file(UsageFile(hour, self.shard, self._new_id()))
        origin = Origin(hour, self.identity.cluster_id, self.identity.node_id, self.shard)
        return CounterFile(self._disk, f"{self.directory}/{name}", origin)


def _move(row: Row, place: Place) -> None:
    """Gives the counters of a row another place, and stores them there."""
    for number, operations in enumerate(_GROUPS):
        group = row[operations[0]]
        group[4:] = place.memory, place.at + number * _GROUP.size
        *counters, memory, at = group
        _store(memory, at, *counters)
