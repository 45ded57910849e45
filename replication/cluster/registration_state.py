"""The registration state of a node, in the file `vouching` of its data directory: since when its disk is intact.

The broker epoch of the first registration with this disk, and of the first since unsynced records were lost (like the
unclean shutdown marker of KIP-966). A node that does not know registers as "since now", which is always safe: it leaves
every in-sync set and comes back as a follower. Invariants: a loss is durable here before recovery counts as finished
and before the node registers; a write after the registration only fills in unknown epochs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.format import paths
from engine.format.small_file import read_rows, rows_as_text
from engine.format.spare_files import write_without_room
from engine.log.recovery import LastShutdown
from engine.runtime.disk import Disk, read_file

_HEADER = "penstock vouching 1"


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """Broker epochs; None means the next registration. `directory_id` identifies the data directory."""

    disk_from: int | None = None
    survives_from: int | None = None
    directory_id: str = ""

    def registered(self, broker_epoch: int) -> RegistrationState:
        return replace(
            self,
            disk_from=broker_epoch if self.disk_from is None else self.disk_from,
            survives_from=broker_epoch if self.survives_from is None else self.survives_from,
        )


def load_registration_state(
    disk: Disk, data_directory: str, last_shutdown: LastShutdown, new_id: Callable[[], str] | None = None
) -> RegistrationState:
    """Loads the state for the next registration. Raises OSError.

    Durably resets `survives_from` after a power loss, and sets `directory_id` from `new_id` if it has none.
    """
    state = read_registration_state(disk, data_directory)
    now = replace(state, survives_from=None) if last_shutdown is LastShutdown.POWER_LOSS else state
    if new_id is not None and not now.directory_id:
        now = replace(now, directory_id=new_id())
    if now != state:
        save_registration_state(disk, data_directory, now)
    return now


def save_registration_state(disk: Disk, data_directory: str, state: RegistrationState) -> None:
    """Replaces the file durably. Raises OSError."""
    row = f"{_word(state.disk_from)} {_word(state.survives_from)} {state.directory_id or '-'}"
    write_without_room(disk, os.path.join(data_directory, paths.REGISTRATION_STATE), rows_as_text(_HEADER, [row]))


def read_registration_state(disk: Disk, data_directory: str) -> RegistrationState:
    """Reads the file; empty if the directory was never in a cluster or the file is damaged. Raises OSError."""
    rows = read_rows(_HEADER, read_file(disk, os.path.join(data_directory, paths.REGISTRATION_STATE)))
    try:
        disk_from, survives_from, directory_id = rows[0] if rows else ("-", "-", "-")
        return RegistrationState(
            _number(disk_from), _number(survives_from), "" if directory_id == "-" else directory_id
        )
    except ValueError:
        return RegistrationState()


def _word(broker_epoch: int | None) -> str:
    return "-" if broker_epoch is None else str(broker_epoch)


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
