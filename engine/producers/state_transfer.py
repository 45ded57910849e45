"""What a replica that begins in the middle of a log must know of the records before: producers, keys and the fence.

A follower copies from the leader's first local record on; what lies before is in the store, and no batch of it passes
by. Without this a retry of an old batch would be stored again once that follower leads, and a fencing token forgotten.
The leader takes it from what it has in memory (`taken`, `encoded`), the follower puts it beside its log as the snapshot
of that offset (`adopt`) and is then rebuilt as after any start. The form is a snapshot file's
(engine/producers/snapshots.py).

Exact, but that of a producer with more than 16 batches in the copies nothing is handed over: a retry from before them,
which would have been told that its records are stored, is then refused as a gap.
Invariant: nothing in it is of a record at or behind the offset, so that copies are never taken for repeats.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import Corrupt
from engine.format import paths
from engine.producers.append_validator import AppendValidator
from engine.producers.fenced_file import save_fence
from engine.producers.fencing import NO_FENCE, Fence
from engine.producers.key_window import rows_before
from engine.producers.sequences import Producer
from engine.producers.snapshots import State, decode_state, encode_state, snapshot_offsets
from engine.runtime.disk import Disk, write_atomically


class Taken(NamedTuple):
    """References and copies of what changes; costs the loop a millisecond for a hundred thousand keys."""

    offset: int
    producers: Sequence[tuple[int, Producer]]
    fence: Fence
    keys: Sequence[dict[bytes, bytes]]


def taken(validator: AppendValidator, offset: int) -> Taken:
    """Of a log that reaches to this offset at least."""
    fence = validator.fencing.present
    return Taken(
        offset,
        validator.producers.items(),
        fence if fence.offset < offset else NO_FENCE,  # a later one is in the copies
        validator.keys.window.copies(),
    )


def encoded(of: Taken) -> bytes:
    """For a thread: looks at every producer and every key."""
    return encode_state(state_of(of))


def state_of(of: Taken) -> State:
    """The same as it is saved beside a log: whole, with nothing in other files."""
    producers = [(producer_id, before) for producer_id, one in of.producers if (before := one.before(of.offset))]
    rows = b"".join(row for keys in of.keys for row in rows_before(keys, of.offset))
    return State(of.offset, producers, of.fence, rows)


def adopt(disk: Disk, directory: str, offset: int, data: bytes) -> None:
    """Before the log is begun anew there. Durable: no log will tell it again. Raises Corrupt, OSError.

    Snapshots of what the log was go first: it may have parted from its leader's before them. Without them a crash
    before the new beginning costs a walk. Empty: the leader has nothing to tell, since all of its log is copied.
    """
    state = decode_state(data, offset) if data else State(offset)
    if state is None:
        raise Corrupt(f"{directory}: what the leader says of the records before {offset} cannot be read")
    for old in snapshot_offsets(disk, directory):
        disk.unlink(_file(directory, old))
    disk.fsync_dir(directory)
    if state.fence != NO_FENCE:
        save_fence(disk, directory, state.fence)
    if data:
        write_atomically(disk, _file(directory, offset), data)


def _file(directory: str, offset: int) -> str:
    return os.path.join(directory, paths.segment_file(offset, paths.SNAPSHOT))
