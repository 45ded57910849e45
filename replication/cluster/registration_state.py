"""What a node remembers of its own past, in its data directory, to register honestly: `vouching`.

Which registration was the first with this disk, and which the first since unsynced bytes were lost. A node that cannot
tell says "this one", which is always safe: it leaves every set and comes back as a follower.
Invariants: a loss is noted durably before recovery counts as finished and before the node registers; what is noted
after registering only makes an unknown beginning known.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.log.recovery import LastStop
from engine.runtime.disk import Disk, read_file, write_atomically

_HEADER = "penstock vouching 1"


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """Incarnations; None stands for the next registration. `directory_id` tells this data directory from any other."""

    disk_from: int | None = None
    survives_from: int | None = None
    directory_id: str = ""

    def registered(self, incarnation: int) -> RegistrationState:
        return replace(
            self,
            disk_from=incarnation if self.disk_from is None else self.disk_from,
            survives_from=incarnation if self.survives_from is None else self.survives_from,
        )


def load_registration_state(
    disk: Disk, data_directory: str, last_stop: LastStop, new_id: Callable[[], str] | None = None
) -> RegistrationState:
    """What may be said in the next registration, noted durably if it is not as it was. Raises OSError.

    With `new_id` a directory that has no id of its own is given one.
    """
    found = known_vouching(disk, data_directory)
    now = replace(found, survives_from=None) if last_stop is LastStop.POWER_LOSS else found
    if new_id is not None and not now.directory_id:
        now = replace(now, directory_id=new_id())
    if now != found:
        save_vouching(disk, data_directory, now)
    return now


def save_vouching(disk: Disk, data_directory: str, vouching: RegistrationState) -> None:
    """Replace the file durably. Raises OSError."""
    row = f"{_word(vouching.disk_from)} {_word(vouching.survives_from)} {vouching.directory_id or '-'}"
    write_atomically(disk, os.path.join(data_directory, paths.VOUCHING), rows_as_text(_HEADER, [row]))


def known_vouching(disk: Disk, data_directory: str) -> RegistrationState:
    """What the directory remembers; nothing, if it was never in a cluster. Raises OSError."""
    rows = read_rows(_HEADER, read_file(disk, os.path.join(data_directory, paths.VOUCHING)))
    try:
        disk_from, survives_from, directory_id = rows[0] if rows else ("-", "-", "-")
        return RegistrationState(
            _number(disk_from), _number(survives_from), "" if directory_id == "-" else directory_id
        )
    except ValueError:
        return RegistrationState()


def _word(incarnation: int | None) -> str:
    return "-" if incarnation is None else str(incarnation)


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
