"""The start counter of each data directory: on the disk, and in the coordination store below /starts.

A disk cannot prove that it is the newest copy of itself: a restored snapshot has everything that would prove it
(docs/decisions/0076). So every registration counts, first on the disks of the node, then in the store, in the same
commit as the registration. A directory whose number is below the store's, or equal with another nonce, is an older
copy. It counts as a new disk: no membership from before its next registration is trusted. The first directory of a node
has the list of topics, and what the node itself noticed of power losses. An older one ends all memberships but those of
partitions that are opened in another directory with a proof of its own.

Invariants: the disk is at most one ahead of the store, so a crash between the two writes never condemns a disk; a
condemned directory has `known_from` durably before the store has its number.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

import orjson

from engine.errors import NO_SPACE, Corrupt
from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import write_without_room
from engine.runtime.disk import Disk, read_file

ADVANCE_S = 60.0  # a running node counts this often, so that a snapshot of it is soon known to be old

NONCES_MAX = 16

_HEADER = "penstock start-counter 1"


@dataclass(frozen=True, slots=True)
class StartCounter:
    """The counter of one directory. `nonces`: of the starts that may have given the store this number, newest first.

    `known_from`: the broker epoch since which its logs are trusted; 0: always, None: the next registration. That of the
    first directory is there beside the registration state, which an old copy ends.
    """

    number: int = 0
    nonces: tuple[str, ...] = ()
    known_from: int | None = 0

    def is_older_than(self, stored: StartCounter | None) -> bool:
        """True if the store has counted on without this disk, or the same start of a copy of it."""
        if stored is None:
            return False  # a new disk, or the version before had no counters
        if self.number == stored.number:
            return not set(stored.nonces) <= set(self.nonces)
        return self.number < stored.number

    def is_proven_by(self, stored: StartCounter | None) -> bool:
        """True if the store shows that this disk is the newest copy of itself, whatever another disk has lost."""
        return stored is not None and not self.is_older_than(stored)

    def counted(self, stored: StartCounter | None, nonce: str) -> StartCounter:
        """Counts from the store's number, except below the own one: then the store was restored from old data.

        Remembers the starts that have tried the same number: the last request of a killed process may arrive late.
        """
        number = max(0 if stored is None else stored.number, self.number - 1) + 1
        tried = self.nonces if number == self.number else ()
        return replace(self, number=number, nonces=(nonce, *tried)[:NONCES_MAX])


@dataclass(frozen=True, slots=True)
class StoredStarts:
    """The counters of a node in the store, by the id of the directory. `first`: its first directory at present.

    `is_rebuilt`: written by a rebuild of the store (replication/rebuild); the next registration of the node ends it.
    """

    first: str
    counters: Mapping[str, StartCounter]
    is_rebuilt: bool = False


class StartCounters:
    """The counters of a node's directories, by id. `save` writes those that it is given durably; raises OSError."""

    def __init__(
        self,
        first: str,
        counters: Mapping[str, StartCounter],
        save: Callable[[Mapping[str, StartCounter]], Awaitable[None]],
    ) -> None:
        self.first = first
        self.counters = dict(counters)
        self._save = save

    def __repr__(self) -> str:
        return f"StartCounters({self.first}, {self.counters})"

    def older(self, stored: StoredStarts | None) -> set[str]:
        """Returns the directories that are older than the store knows them, or a former disk of this node."""
        if stored is None:
            return set()
        older = {
            directory_id
            for directory_id, counter in self.counters.items()
            if counter.is_older_than(stored.counters.get(directory_id))
        }
        return older | ({self.first} if stored.first != self.first else set())

    def set_known_from(self, directory_ids: set[str]) -> None:
        """Sets that these directories are trusted from the next registration on; durable with the next count."""
        for directory_id in directory_ids:
            self.counters[directory_id] = replace(self.counters[directory_id], known_from=None)

    def log_from(self, partitions_in: Mapping[str, Collection[str]]) -> dict[str, int]:
        """Returns the partitions of condemned further directories; those of the first are not in `partitions_in`."""
        return _listed(
            partitions_in,
            {
                directory_id: counter.known_from or 0
                for directory_id, counter in self.counters.items()
                if counter.known_from != 0
            },
        )

    def intact_from(self, partitions_in: Mapping[str, Collection[str]], stored: StoredStarts | None) -> dict[str, int]:
        """Returns the partitions that a condemned first directory says nothing about, and since when they are trusted.

        They are opened in a further directory whose counter is that of the store. All others count as of the first one:
        its old list of topics may lack some.
        """
        if stored is None or self.counters[self.first].known_from == 0:
            return {}
        intact = {
            directory_id: counter.known_from
            for directory_id, counter in self.counters.items()
            if directory_id != self.first
            and counter.known_from is not None
            and counter.is_proven_by(stored.counters.get(directory_id))
        }
        return _listed(partitions_in, intact)

    def trust_all(self) -> None:
        """Forgets since when directories are trusted: a rebuild of the store has judged their logs."""
        self.counters = {
            directory_id: replace(counter, known_from=0) for directory_id, counter in self.counters.items()
        }

    async def count(self, stored: StoredStarts | None, nonce: str) -> StoredStarts:
        """Counts on the disks. Returns what the store must have next. Raises OSError.

        Without a free byte and a spare file nothing is counted: that is safe as long as nothing has to be condemned.
        """
        stored_counters = {} if stored is None else stored.counters
        counted = {
            directory_id: counter.counted(stored_counters.get(directory_id), nonce)
            for directory_id, counter in self.counters.items()
        }
        try:
            await self._save(counted)
            self.counters = counted
        except OSError as error:
            is_condemned = self.older(stored) or any(counter.known_from is None for counter in self.counters.values())
            if error.errno not in NO_SPACE or is_condemned:
                raise
        present = {
            directory_id: StartCounter(counter.number, counter.nonces[:1])
            for directory_id, counter in self.counters.items()
            if counter.number
        }
        return StoredStarts(self.first, {**stored_counters, **present})

    async def note_registered(self, broker_epoch: int) -> None:
        """Writes down since when a condemned directory is trusted. Raises OSError."""
        changed = {
            directory_id: replace(counter, known_from=broker_epoch)
            for directory_id, counter in self.counters.items()
            if counter.known_from is None
        }
        if changed:
            await self._save(changed)
            self.counters |= changed


def _listed(partitions_in: Mapping[str, Collection[str]], since: Mapping[str, int]) -> dict[str, int]:
    return {name: epoch for directory_id, epoch in since.items() for name in partitions_in.get(directory_id, ())}


def starts_to_bytes(starts: StoredStarts) -> bytes:
    rows = {directory_id: [counter.number, *counter.nonces] for directory_id, counter in starts.counters.items()}
    rebuilt = {"rebuilt": True} if starts.is_rebuilt else {}
    return orjson.dumps({"first": starts.first, "counters": rows, **rebuilt})


def starts_from_bytes(key: str, value: bytes) -> StoredStarts:
    """Raises Corrupt."""
    try:
        plain = orjson.loads(value)
        rows = plain["counters"].items()
        counters = {directory_id: StartCounter(int(row[0]), (str(row[1]),)) for directory_id, row in rows}
        return StoredStarts(str(plain["first"]), counters, plain.get("rebuilt", False) is True)
    except (orjson.JSONDecodeError, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise Corrupt(f"the coordination store's {key} cannot be decoded: {error!r}") from error


def load_start_counter(disk: Disk, data_directory: str) -> StartCounter:
    """Reads the file of a directory; a missing or damaged one has counted nothing. Raises OSError."""
    rows = read_rows(_HEADER, read_file(disk, os.path.join(data_directory, paths.START_COUNTER)))
    try:
        number, known_from, *nonces = rows[0] if rows else ("0", "0")
        return StartCounter(int(number), tuple(nonces), None if known_from == "-" else int(known_from))
    except ValueError:
        return StartCounter()


def save_start_counter(disk: Disk, data_directory: str, counter: StartCounter) -> None:
    """Replaces the file durably. Raises OSError."""
    known_from = "-" if counter.known_from is None else str(counter.known_from)
    row = " ".join((str(counter.number), known_from, *counter.nonces))
    write_without_room(disk, os.path.join(data_directory, paths.START_COUNTER), rows_as_text(_HEADER, [row]))
