"""The values between a case, a generator and a report: what to send, and the outcome."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop: `in_flight` requests are in flight at any time until `requests` have been answered.

    `targets` are used in turn. With a body file the requests are POSTs.
    """

    url: str
    targets: tuple[str, ...]
    requests: int
    connections: int
    streams: int
    body_file: Path | None = None
    headers: tuple[tuple[str, str], ...] = ()
    is_http1: bool = False  # h2load speaks HTTP/2 with prior knowledge otherwise

    @property
    def in_flight(self) -> int:
        return self.connections * self.streams


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a load. Durations are those of 2xx responses, in microseconds."""

    good: int
    bad: int
    seconds: float
    durations_us: list[int]
    answer_bytes: int
    generator_cpu_s: float
    what_went_wrong: str = ""


class GeneratorFailed(Exception):
    """A generator failed or did not end: the figures of this round are invalid."""


def ended_children_cpu_s() -> float:
    """Returns the CPU of those children of this process that have ended: generators among them."""
    times = os.times()
    return times.children_user + times.children_system
