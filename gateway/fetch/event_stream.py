"""Encodes an event stream (Server-Sent Events): records, positions, heartbeats and the end.

Pure: it neither reads nor waits. An event's id is the next offset of every partition of the stream, in their order,
joined by dashes: a client that sends it back misses no record and gets none twice. A position that moves without an
event is sent as an id alone, which clients keep and do not dispatch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson

from gateway.http.problems import Problem

# the pause of clients before they reconnect; each has a position of its own, so there is no stampede
RECONNECT_MS = 1000
HEARTBEAT = b":\n\n"
FAREWELL = b"retry: %d\n\n" % RECONNECT_MS
_ID = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})*")


def opening(positions: Sequence[int]) -> bytes:
    """Returns the first bytes: the positions, so that a client that is cut off before any event resumes there."""
    return FAREWELL[:-1] + position(positions)


def position(positions: Sequence[int]) -> bytes:
    return f"id: {_text(positions)}\n\n".encode()


def events(lines: bytes, line_ends: Sequence[int], positions: Sequence[int], index: int, extra: bytes) -> bytes:
    """Returns an event for each line, all of one partition.

    `line_ends` has the offset that follows each line, `index` is the partition's place among the positions; `extra` is
    written into each object as its first members.
    """
    before, after = _text(positions[:index]), _text(positions[index + 1 :])
    head = f"id: {before}-" if before else "id: "
    tail = (f"-{after}" if after else "").encode() + b"\ndata: {" + extra
    start = head.encode()
    rows = lines.split(b"\n")
    return b"".join(
        b"%b%d%b%b\n\n" % (start, end, tail, row[1:])
        for row, end in zip(rows[: len(line_ends)], line_ends, strict=True)
    )


def problem_event(document: dict[str, object]) -> bytes:
    """Returns the event that reports why the stream ends."""
    return b"event: problem\ndata: " + orjson.dumps(document) + b"\n\n"


def parse_id(text: str, count: int) -> list[int]:
    """Parses the positions of an id: fewer than `count` if it is from before the topic grew.

    Raises Problem invalid_header.
    """
    if not _ID.fullmatch(text):
        raise Problem("invalid_header", "the event id is not one of this stream: it is offsets joined by dashes")
    positions = [int(part) for part in text.split("-")]
    if len(positions) > count or max(positions) > 2**63 - 1:
        raise Problem(
            "invalid_header", f"the event id has {len(positions)} offsets; this stream has {count} partitions"
        )
    return positions


def count_of_id(text: str) -> int:
    """Returns the number of positions in a well-formed id."""
    return text.count("-") + 1


def _text(positions: Sequence[int]) -> str:
    return "-".join(map(str, positions))
