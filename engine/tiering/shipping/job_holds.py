"""The offsets that expired records of a partition wait for: those that registered ingestion jobs have not committed.

`held_from` decides; `JobHolds` reads the registrations, at most once a minute for all partitions of a process. An older
answer is safe: positions only rise, so it holds more. Blocking; any thread may call.

A registration that cannot be read (damaged, too large, of a newer release) holds every record, because its job may need
them; an object with another kind of name holds nothing. Both are logged once and never removed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from engine.errors import Corrupt
from engine.format.paths import is_store_registration, store_registrations_prefix
from engine.runtime.clock import Clock
from engine.tiering.manifest.job_registration import Registration, decode_registration
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.store.store import NoSuchObject, ObjectInfo, ObjectStore

log = logging.getLogger("penstock.tiering")

REFRESH_SECONDS = 60.0
LISTED_MAX = 1000  # objects; a page of a LIST
READ_MAX = 256  # registrations: 5 s at 20 ms a GET; further ones count as unreadable
REGISTRATION_BYTES_MAX = 16 << 20  # a million partitions


@dataclass(frozen=True, slots=True)
class Hold:
    """A job's position in one partition. `renewed_ms` is when the job last wrote it, by the store's clock."""

    committed_end: int
    renewed_ms: int


def held_from(holds: Iterable[Hold], now_ms: int | None, wait_max_ms: int) -> int | None:
    """Returns the first offset that some job has not committed; None if no job holds any.

    A job that has not run for `wait_max_ms` holds nothing. `now_ms` is by the store's clock; unknown, all hold.
    """
    holding = (hold for hold in holds if now_ms is None or now_ms - hold.renewed_ms <= wait_max_ms)
    return min((hold.committed_end for hold in holding), default=None)


@dataclass(frozen=True, slots=True)
class RegisteredJob:
    """A registration; None if it cannot be read. `name` is that of its object, `renewed_ms` by the store's clock."""

    name: str
    registration: Registration | None
    renewed_ms: int


class JobHolds:
    """The registered jobs of a cluster."""

    def __init__(self, store: ObjectStore, cluster_id: str, clock: Clock) -> None:
        self._store = store
        self._prefix = store_registrations_prefix(cluster_id)
        self._clock = clock
        self._lock = threading.Lock()
        self._registered: list[RegisteredJob] = []
        self._read_at: float | None = None
        self._logged: set[str] = set()

    def __repr__(self) -> str:
        return f"JobHolds({self._prefix}, jobs={len(self._registered)})"

    def of(self, topic: str, topic_id: str, partition: int) -> Sequence[Hold]:
        """Returns the holds on a partition. Raises errors of the store."""
        holds = []
        for registration in self.load_jobs():
            if registration.registration is None:
                holds.append(Hold(0, registration.renewed_ms))
            elif (read := registration.registration.topics.get(topic)) is not None and read.topic_id == topic_id:
                holds.append(Hold(read.ends.get(partition, 0), registration.renewed_ms))
        return holds

    def load_jobs(self) -> Sequence[RegisteredJob]:
        """Returns what was registered a minute ago at most. Raises errors of the store."""
        with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= REFRESH_SECONDS:
                self._registered = self._read()
                self._read_at = now
            return self._registered

    def _read(self) -> list[RegisteredJob]:
        listed = list(islice(self._store.list(self._prefix), LISTED_MAX))
        registrations: list[RegisteredJob] = []
        for info in listed:
            if not is_store_registration(info.key.removeprefix(self._prefix)):
                self._log_once(info.key, "it has not the name of a registration, and holds nothing")
            elif len(registrations) >= READ_MAX or info.size_bytes > REGISTRATION_BYTES_MAX:
                self._log_once(info.key, "too many or too large registrations: it holds all records")
                registrations.append(RegisteredJob(self._name(info), None, info.modified_ms))
            elif (registration := self._read_one(info)) is not None:
                registrations.append(registration)
        self._logged &= {info.key for info in listed}
        return registrations

    def _read_one(self, info: ObjectInfo) -> RegisteredJob | None:
        try:
            registration = decode_registration(self._store.get(info.key), info.key)
            return RegisteredJob(self._name(info), registration, info.modified_ms)
        except NoSuchObject:
            return None
        except (Corrupt, UnsupportedFormat) as error:
            self._log_once(info.key, f"it cannot be read and holds all records: {error}")
            return RegisteredJob(self._name(info), None, info.modified_ms)

    def _name(self, info: ObjectInfo) -> str:
        return info.key.removeprefix(self._prefix).removesuffix(".json")

    def _log_once(self, key: str, why: str) -> None:
        if key not in self._logged:
            self._logged.add(key)
            log.warning("a registration of an ingestion job is not understood", extra={"key": key, "reason": why})
