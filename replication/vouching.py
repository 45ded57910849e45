"""What a node remembers of its own past, in its data directory, to register honestly: `vouching`.

Which registration was the first with this disk, and which the first since unsynced bytes were lost. A node that cannot
tell says "this one", which is always safe: it leaves every set and comes back as a follower.
Invariants: a loss is noted durably before recovery counts as finished and before the node registers; what is noted
after registering only makes an unknown beginning known.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from engine import paths
from engine.data_directory import LastStop
from engine.disk import Disk, read_file, write_atomically
from engine.small_file import read_rows, rows_as_text

_HEADER = "penstock vouching 1"


@dataclass(frozen=True, slots=True)
class Vouching:
    """Incarnations; None stands for the next registration."""

    disk_from: int | None = None
    survives_from: int | None = None

    def registered(self, incarnation: int) -> Vouching:
        return replace(
            self,
            disk_from=incarnation if self.disk_from is None else self.disk_from,
            survives_from=incarnation if self.survives_from is None else self.survives_from,
        )


def load_vouching(disk: Disk, data_directory: str, last_stop: LastStop) -> Vouching:
    """What may be said in the next registration, noted durably if the last stop changed it. Raises OSError."""
    found = _read(disk, data_directory)
    now = replace(found, survives_from=None) if last_stop is LastStop.POWER_LOSS else found
    if now != found:
        save_vouching(disk, data_directory, now)
    return now


def save_vouching(disk: Disk, data_directory: str, vouching: Vouching) -> None:
    """Replace the file durably. Raises OSError."""
    row = f"{_word(vouching.disk_from)} {_word(vouching.survives_from)}"
    write_atomically(disk, os.path.join(data_directory, paths.VOUCHING), rows_as_text(_HEADER, [row]))


def _read(disk: Disk, data_directory: str) -> Vouching:
    rows = read_rows(_HEADER, read_file(disk, os.path.join(data_directory, paths.VOUCHING)))
    try:
        disk_from, survives_from = rows[0] if rows else ("-", "-")
        return Vouching(_number(disk_from), _number(survives_from))
    except ValueError:
        return Vouching()


def _word(incarnation: int | None) -> str:
    return "-" if incarnation is None else str(incarnation)


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
