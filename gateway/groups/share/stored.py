"""The records of a share-partition in the groups topic: one of its head, and one of each block of its window.

A block has the runs of 256 neighbouring offsets, so that an acknowledgement writes a few hundred bytes however large
the window is, and the topic can be compacted: the last record of each key is the state. An acquired run is stored as
an available one with its delivery counted: locks end with their coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from gateway.groups.share.window import BLOCK, Run, State, Window

_encode = msgspec.json.Encoder().encode


class Head(Struct, frozen=True, array_like=True):
    """The share-partition without its window."""

    topic_id: str
    start: int
    dead_letters: int = 0
    dropped: int = 0
    active_ms: int = 0


class StoredRun(Struct, frozen=True, array_like=True, omit_defaults=True):
    """A run within a block. `first` counts from the begin of the block."""

    first: int
    size: int
    state: int
    deliveries: int
    ready_ms: int = 0
    error: str = ""


def encode_head(head: Head) -> bytes:
    return _encode(head)


def decode_head(value: bytes) -> Head:
    return msgspec.json.decode(value, type=Head)


def decode_block(value: bytes) -> list[StoredRun]:
    return msgspec.json.decode(value, type=list[StoredRun])


def encode_block(window: Window, block: int) -> bytes | None:
    """Returns the record of a block; None if it has nothing to remember."""
    begin = block * BLOCK
    runs = list(_stored_runs(window, begin))
    return _encode(runs) if runs else None


def _stored_runs(window: Window, begin: int) -> Iterator[StoredRun]:
    last = begin + BLOCK - 1
    for run in window.find(max(begin, window.start), last):
        state = State.AVAILABLE if run.state is State.ACQUIRED else run.state
        first = max(run.first, begin)
        size = min(run.last, last) - first + 1
        yield StoredRun(first - begin, size, state, run.deliveries, run.ready_ms, run.error)


def restore_window(start: int, blocks: dict[int, list[StoredRun]]) -> Window:
    """Returns the window of stored blocks. Offsets that no block has were not delivered."""
    window = Window(start)
    for block in sorted(blocks):
        for stored_run in blocks[block]:
            first = block * BLOCK + stored_run.first
            last = first + stored_run.size - 1
            if last < window.end:
                continue
            first = max(first, window.end)
            if first > window.end:
                window.append(Run(window.end, first - 1))
            window.append(
                Run(first, last, State(stored_run.state), stored_run.deliveries, stored_run.ready_ms, stored_run.error)
            )
    window.settle(start, window.end)
    for index in range(len(window.runs) - 1, 0, -1):
        if window.runs[index - 1].is_like(window.runs[index]):
            window.runs[index - 1].last = window.runs.pop(index).last
    window.changed.clear()
    window.is_moved = False
    return window
