"""Decides which connections are silent, idle or stalled, from facts about them. Pure.

Invariants: a connection with a request under way (a long poll, an event stream, a slow body) or with output that the
kernel has not taken is not idle; a client that
takes data at the slowest rate that is allowed, or faster, is not stalled.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

PING_ANSWER_S = 20.0


class Times(NamedTuple):
    """The time limits of a connection, in seconds.

    `silent_s`: until a whole head has come. `idle_s`: without a request. `ping_s`: without a sign of life, over HTTP/2.
    `stall_s`: without taking any pending output; and pending output must be taken at `bytes_per_second_min`.
    """

    silent_s: float
    idle_s: float
    ping_s: float
    stall_s: float
    bytes_per_second_min: int


class Progress:
    """A client's progress with pending output. In each round it must take a part of what was pending when it began."""

    __slots__ = ("_due", "_moved_at", "_round_end", "_taken")

    def __init__(self) -> None:
        self._taken = -1  # no output was pending at the last check
        self._moved_at = self._due = 0.0
        self._round_end = 0

    def end(self) -> None:
        """Notes that no output is pending."""
        self._taken = -1

    def is_stalled(self, taken_bytes: int, unsent_bytes: int, now: float, times: Times) -> bool:
        """Returns whether the client is too slow with pending output. `taken_bytes` counts from the beginning."""
        if self._taken != taken_bytes:
            is_new = self._taken < 0
            self._taken, self._moved_at = taken_bytes, now
            if is_new or taken_bytes >= self._round_end:
                # what the slowest client takes in `stall_s`: else a trickle would have the time that all of it needs
                round_bytes = min(unsent_bytes, int(times.stall_s * times.bytes_per_second_min))
                self._round_end = taken_bytes + round_bytes
                self._due = now + times.stall_s + round_bytes / times.bytes_per_second_min
        return now >= min(self._due, self._moved_at + times.stall_s)


class ConnectionState(Protocol):
    """The facts about a connection. Its times are those of one clock."""

    @property
    def has_requests(self) -> bool: ...

    @property
    def unsent_bytes(self) -> int: ...

    @property
    def taken_bytes(self) -> int: ...

    is_http2: bool
    has_asked: bool
    opened_at: float
    received_at: float
    idle_since: float
    pinged_at: float | None
    progress: Progress


class Verdict(enum.Enum):
    """PASS: the connection need not be looked at before an answer is given, or its request ends."""

    KEEP = enum.auto()
    PASS = enum.auto()
    PING = enum.auto()
    IDLE = enum.auto()
    DEAD = enum.auto()
    STALLED = enum.auto()


def verdict_on(connection: ConnectionState, now: float, times: Times) -> Verdict:
    """Returns the verdict on a connection, which is looked at each second until its verdict is PASS."""
    if unsent_bytes := connection.unsent_bytes:
        if connection.progress.is_stalled(connection.taken_bytes, unsent_bytes, now, times):
            return Verdict.STALLED
    else:
        connection.progress.end()
        if not connection.has_requests:
            if _is_idle(connection, now, times):
                return Verdict.IDLE
        elif not connection.is_http2:
            return Verdict.PASS
    return _check_heartbeat(connection, now, times) if connection.is_http2 else Verdict.KEEP


def _is_idle(connection: ConnectionState, now: float, times: Times) -> bool:
    if not connection.has_asked:
        return now - connection.opened_at >= times.silent_s
    idle_s = times.idle_s if connection.is_http2 else min(times.silent_s, times.idle_s)
    return now - connection.idle_since >= idle_s


def _check_heartbeat(connection: ConnectionState, now: float, times: Times) -> Verdict:
    if now - connection.received_at < times.ping_s:
        return Verdict.KEEP
    if connection.pinged_at is None or connection.pinged_at < connection.received_at:
        return Verdict.PING
    return Verdict.DEAD if now - connection.pinged_at >= PING_ANSWER_S else Verdict.KEEP
