"""What may befall an exchange between a client and a node, and how often: drawn from a seeded random.Random.

Decides only; tests/faults/proxy.py carries it out. Each link has rules and dice of its own, so that one
client changes nothing for another.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    NONE = "none"
    DELAY = "delay"  # the request comes late
    DELAY_REPLY = "delay_reply"
    DROP = "drop"  # the request never arrives; the connection is closed
    CUT_REQUEST = "cut_request"  # the node gets the first n bytes, then the connection is closed
    CUT_REPLY = "cut_reply"  # the client gets the first n bytes of the reply
    LOSE_REPLY = "lose_reply"  # carried out, and the client is not told
    DUPLICATE = "duplicate"  # the whole request twice, at the same time over two connections
    REPLAY = "replay"  # answered as usual; the whole request comes once more, later
    REORDER = "reorder"  # held back until another request of the link has overtaken it
    DELIVER_LATE = "deliver_late"  # the client's connection is closed at once, and the request arrives afterwards


EVERY_FAULT: Mapping[Fault, float] = dict.fromkeys(Fault, 1.0) | {Fault.NONE: 12.0}


@dataclass(frozen=True)
class Rules:
    """`weights`: how often each fault is drawn, against each other. Bytes that are no HTTP/1.1 know only the cut."""

    weights: Mapping[Fault, float] = field(default_factory=lambda: EVERY_FAULT)
    delay_ms_max: int = 20
    late_ms_max: int = 200  # a replay or late delivery comes after at most this
    overtake_ms_max: int = 50  # who is held back waits no longer for another one
    stream_cut_share: float = 0.0  # of connections that are no HTTP/1.1: cut after some bytes
    stream_cut_bytes_max: int = 4_000


NO_FAULTS = Rules(weights={Fault.NONE: 1.0})


@dataclass(frozen=True)
class Fate:
    """Of one exchange. `cut_share`: where in the message the cut is, 0 <= share < 1. `is_reset`: RST instead of FIN."""

    fault: Fault
    delay_s: float
    late_s: float
    cut_share: float
    is_reset: bool


class Dice:
    """One link's. Every fate takes the same number of draws, whatever it is."""

    def __init__(self, rules: Rules, seed: str | int) -> None:
        self.rules = rules
        self._random = random.Random(seed)
        self._faults, self._weights = list(rules.weights), list(rules.weights.values())

    def fate(self) -> Fate:
        draw = self._random
        return Fate(
            fault=draw.choices(self._faults, self._weights)[0],
            delay_s=draw.uniform(0, self.rules.delay_ms_max) / 1000,
            late_s=draw.uniform(0, self.rules.late_ms_max) / 1000,
            cut_share=draw.random(),
            is_reset=draw.random() < 0.5,
        )

    def stream_cut(self) -> int | None:
        """After how many bytes, both ways together, a connection that is no HTTP/1.1 is cut; None for never."""
        is_cut = self._random.random() < self.rules.stream_cut_share
        after = self._random.randint(1, self.rules.stream_cut_bytes_max)
        return after if is_cut else None

    def some_of(self, requests: list[bytes], count: int) -> list[bytes]:
        return self._random.sample(requests, min(count, len(requests)))
