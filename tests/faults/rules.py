"""The faults of an exchange between a client and a node, and their rates: drawn from a seeded random.Random.

This file only decides; tests/faults/proxy.py carries it out. Each link has its own rules and dice, so that clients do
not affect each other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    NONE = "none"
    DELAY = "delay"  # the request arrives late
    DELAY_REPLY = "delay_reply"
    DROP = "drop"  # the request never arrives; the connection is closed
    CUT_REQUEST = "cut_request"  # the node gets the first n bytes, then the connection is closed
    CUT_REPLY = "cut_reply"  # the client gets the first n bytes of the reply
    LOSE_REPLY = "lose_reply"  # executed, and the reply is dropped
    DUPLICATE = "duplicate"  # the complete request twice, at the same time over two connections
    REPLAY = "replay"  # answered as usual; the complete request is repeated later
    REORDER = "reorder"  # held until another request of the link has overtaken it
    DELIVER_LATE = "deliver_late"  # the client's connection is closed at once, and the request arrives later


EVERY_FAULT: Mapping[Fault, float] = dict.fromkeys(Fault, 1.0) | {Fault.NONE: 12.0}


@dataclass(frozen=True)
class Rules:
    """`weights`: relative rates of the faults. Connections that are not HTTP/1.1 are only cut."""

    weights: Mapping[Fault, float] = field(default_factory=lambda: EVERY_FAULT)
    delay_ms_max: int = 20
    late_ms_max: int = 200  # longest delay of a replay or late delivery
    overtake_ms_max: int = 50  # longest wait of a held request for another one
    stream_cut_share: float = 0.0  # of connections that are not HTTP/1.1: the share that is cut after some bytes
    stream_cut_bytes_max: int = 4_000


NO_FAULTS = Rules(weights={Fault.NONE: 1.0})


@dataclass(frozen=True)
class Fate:
    """The fault of one exchange. `cut_share`: where in the message the cut is, 0 <= share < 1. `is_reset`: RST instead
    of FIN.
    """

    fault: Fault
    delay_s: float
    late_s: float
    cut_share: float
    is_reset: bool


class Dice:
    """The dice of one link. Every fate takes the same number of draws."""

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
        """Return after how many bytes, in both directions, a connection that is not HTTP/1.1 is cut; None for never."""
        is_cut = self._random.random() < self.rules.stream_cut_share
        after = self._random.randint(1, self.rules.stream_cut_bytes_max)
        return after if is_cut else None

    def some_of(self, requests: list[bytes], count: int) -> list[bytes]:
        return self._random.sample(requests, min(count, len(requests)))
