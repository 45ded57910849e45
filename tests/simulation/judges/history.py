"""What clients did and were told: the only evidence that the checkers of histories use.

An operation is invoked, then ok, fail or info. `fail` is definite: it never happened and never will. `info` is not
known: it may have happened, may still, or never. The classification is half of the test (engine.md 5.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from engine.format import batch as record_batch

_BATCHES_KEPT = 4096  # more than one run stores; consumers, replicas and judges look at the same ones


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
    asked_at: float = float("nan")  # where it is known


@dataclass(frozen=True)
class Latest:
    """A leader's answer to "where is the end?"."""

    client: str
    partition: str
    offset: int
    seen: int  # the greatest end that this client had seen when it asked
    asked_at: float


@dataclass(frozen=True)
class Refused:
    """A node said that a position lies above what is committed, and the client took it as final (416)."""

    client: str
    partition: str
    node_id: int
    position: int
    asked_at: float


def records_of(data: bytes) -> list[tuple[int, str]]:
    """Offsets and values of whole batches, as they are in these bytes."""
    batches = (data[at : at + header.size_bytes] for at, header in record_batch.walk(data))
    return [record for batch in batches for record in _records_of_batch(batch)]


@lru_cache(_BATCHES_KEPT)
def _records_of_batch(batch: bytes) -> list[tuple[int, str]]:
    return [(record.offset, bytes(record.value or b"").decode()) for record in record_batch.decode_one(batch)]


@dataclass
class History:
    produced: list[Produced] = field(default_factory=list)
    polled: list[Polled] = field(default_factory=list)
    latest: list[Latest] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    watermarks: list[tuple[str, int, int, int]] = field(default_factory=list)  # partition, node, leader epoch, position
    cuts_below_watermark: list[str] = field(default_factory=list)
    deleted_below: dict[str, int] = field(default_factory=dict)  # by somebody's decision; only that may raise log_start

    def deleted(self, partition: str, log_start: int) -> None:
        self.deleted_below[partition] = max(self.deleted_below.get(partition, 0), log_start)
