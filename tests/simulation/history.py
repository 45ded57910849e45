"""What clients did and were told: the only evidence that the checkers of histories use.

An operation is invoked, then ok, fail or info. `fail` is definite: it never happened and never will. `info` is not
known: it may have happened, may still, or never. The classification is half of the test (engine.md 5.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Produced:
    """One produce of one batch."""

    client: str
    partition: str
    values: tuple[str, ...]
    acks: str
    invoked_at: float
    outcome: str = "info"
    code: str = "no answer"
    base_offset: int = -1
    done_at: float = float("inf")


@dataclass(frozen=True)
class Polled:
    """One answer of a fetch: what a consumer saw, where, and where it will go on."""

    client: str
    partition: str
    node_id: int
    asked: int
    records: tuple[tuple[int, str], ...]
    log_start: int
    high_watermark: int
    at: float
    is_full_read: bool = False  # of one that reads everything once all is quiet


@dataclass(frozen=True)
class Latest:
    """A leader's answer to "where is the end?"."""

    client: str
    partition: str
    offset: int
    seen: int  # the greatest end that this client had seen when it asked
    asked_at: float


@dataclass
class History:
    produced: list[Produced] = field(default_factory=list)
    polled: list[Polled] = field(default_factory=list)
    latest: list[Latest] = field(default_factory=list)
    watermarks: list[tuple[str, int, int, int]] = field(default_factory=list)  # partition, node, leader epoch, position
    cuts_below_watermark: list[str] = field(default_factory=list)
    deleted_below: dict[str, int] = field(default_factory=dict)  # by somebody's decision; only that may raise log_start

    def deleted(self, partition: str, log_start: int) -> None:
        self.deleted_below[partition] = max(self.deleted_below.get(partition, 0), log_start)
