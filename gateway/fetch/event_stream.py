"""Encodes an event stream (Server-Sent Events): records, positions, heartbeats and the end.

Pure: it neither reads nor waits. An event's id is the beginning of the topic's id, a dot, and the next offset of every
partition of the stream, in their order, joined by dashes: a client that sends it back misses no record and gets none
twice, and after the topic was deleted and created again it is not taken for one of the new topic. Ids of earlier
releases have offsets alone. A position that moves without an event is sent as an id alone, which clients keep and do
not dispatch.
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
IDENTITY_CHARACTERS = 8  # of a topic's id, which is random
_ID = re.compile(r"([0-9A-Za-z_-]{1,8}\.)?([0-9]{1,19}(?:-[0-9]{1,19})*)")


def opening(topic_id: str, positions: Sequence[int]) -> bytes:
    """Returns the first bytes: the positions, so that a client that is cut off before any event resumes there."""
    return FAREWELL[:-1] + position(topic_id, positions)


def position(topic_id: str, positions: Sequence[int]) -> bytes:
    return f"id: {id_of(topic_id, positions)}\n\n".encode()


def recreated(topic: str, topic_id: str) -> bytes:
    """Returns the event that reports to a reader of a deleted topic that it gets the new one from its start."""
    return b"event: topic_recreated\ndata: " + orjson.dumps({"topic": topic, "topic_id": topic_id}) + b"\n\n"


def id_of(topic_id: str, positions: Sequence[int]) -> str:
    """Returns the id of an event at these positions of a topic."""
    return f"{topic_id[:IDENTITY_CHARACTERS]}.{_text(positions)}"


def is_of(text: str, topic_id: str) -> bool:
    """Returns whether an id may be of a topic. One of an earlier release does not say, and counts as one."""
    found = _ID.fullmatch(text)
    identity = None if found is None else found[1]
    return identity is None or identity == f"{topic_id[:IDENTITY_CHARACTERS]}."


def events(
    topic_id: str, lines: bytes, line_ends: Sequence[int], positions: Sequence[int], index: int, extra: bytes
) -> bytes:
    """Returns an event for each line, all of one partition.

    `line_ends` has the offset that follows each line, `index` is the partition's place among the positions; `extra` is
    written into each object as its first members.
    """
    before, after = _text(positions[:index]), _text(positions[index + 1 :])
    head = f"id: {topic_id[:IDENTITY_CHARACTERS]}." + (f"{before}-" if before else "")
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
    found = _ID.fullmatch(text)
    if found is None:
        raise Problem("invalid_header", "the event id is not one of this stream: it is offsets joined by dashes")
    positions = [int(part) for part in found[2].split("-")]
    if len(positions) > count or max(positions) > 2**63 - 1:
        raise Problem(
            "invalid_header", f"the event id has {len(positions)} offsets; this stream has {count} partitions"
        )
    return positions


def count_of_id(text: str) -> int:
    """Returns the number of positions in a well-formed id."""
    return text.rpartition(".")[2].count("-") + 1


def _text(positions: Sequence[int]) -> str:
    return "-".join(map(str, positions))
