"""Transfers producers, keys, sources and the fence to a replica that begins in the middle of a log.

A follower fetches from the leader's first local record on; earlier batches are in the store, and it never sees them.
Without this a retry of an old batch would be stored again once that follower leads, and a fencing token lost.
The leader encodes its state in memory (`take_snapshot`, `encoded`), the follower saves it beside its log as the
snapshot of that offset (`import_state`) and rebuilds as after any start. The form is a snapshot file's
(engine/producers/snapshots.py).

Exact, except for a producer with more than 16 batches behind the offset: its earlier batches are not transferred, and a
retry of one, which would have been a duplicate, is then rejected as a gap; and for a source with more than 4 batches
behind the offset: it is unknown until the replica has fetched the first of them.
Invariant: nothing in it is of a record at or behind the offset, so that fetched batches never count as duplicates.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import Corrupt
from engine.format import paths
from engine.producers.append_validator import AppendValidator
from engine.producers.fence_file import save_fence
from engine.producers.fencing import NO_FENCE, Fence
from engine.producers.key_window import rows_before
from engine.producers.sequences import ID_MAX, Producer
from engine.producers.snapshots import State, decode_state, encode_state, snapshot_offsets
from engine.producers.sources import Source
from engine.runtime.disk import Disk, write_atomically


class StateSnapshot(NamedTuple):
    """References, and copies of mutable state; costs the loop a millisecond for a hundred thousand keys."""

    offset: int
    producers: Sequence[tuple[int, Producer]]
    fence: Fence
    keys: Sequence[dict[bytes, bytes]]
    sources: Sequence[tuple[bytes, Source]] = ()
    forgotten_id_max: int = ID_MAX


def take_snapshot(validator: AppendValidator, offset: int) -> StateSnapshot:
    """Takes the state at an offset of a log that reaches it at least."""
    fence = validator.fencing.present
    return StateSnapshot(
        offset,
        validator.producers.items(),
        fence if fence.offset < offset else NO_FENCE,  # a later one is among the fetched batches
        validator.keys.window.copies(),
        validator.sources.items(),
        validator.producers.forgotten_id_max,
    )


def encoded(of: StateSnapshot) -> bytes:
    """Encodes the state, in a thread: visits every producer, key and source."""
    return encode_state(state_of(of))


def state_of(of: StateSnapshot) -> State:
    """Return the state as saved beside a log: complete, without references to other files."""
    producers = [
        (producer_id, before) for producer_id, producer in of.producers if (before := producer.before(of.offset))
    ]
    producer_ids = {producer_id for producer_id, _ in producers}
    later = (producer_id for producer_id, _ in of.producers if producer_id not in producer_ids)
    forgotten = max(of.forgotten_id_max, *later, -1)
    rows = b"".join(row for keys in of.keys for row in rows_before(keys, of.offset))
    sources = [(source_hash, earlier) for source_hash, source in of.sources if (earlier := source.before(of.offset))]
    return State(of.offset, producers, of.fence, rows, (), sources, forgotten)


def import_state(disk: Disk, directory: str, offset: int, data: bytes) -> None:
    """Saves a transferred state durably, before the log is reset to its offset. Raises Corrupt, OSError.

    Removes earlier snapshots first: their log may have diverged from the leader's. Without them a crash before the
    reset costs a walk. Empty `data`: the leader has no state before, since all of its log is fetched.
    """
    state = decode_state(data, offset) if data else State(offset)
    if state is None:
        raise Corrupt(f"{directory}: the leader's producer state before offset {offset} cannot be read")
    for old in snapshot_offsets(disk, directory):
        disk.unlink(_file(directory, old))
    disk.fsync_dir(directory)
    if state.fence != NO_FENCE:
        save_fence(disk, directory, state.fence)
    if data:
        write_atomically(disk, _file(directory, offset), data)


def _file(directory: str, offset: int) -> str:
    return os.path.join(directory, paths.segment_file(offset, paths.SNAPSHOT))
