"""The requests and answers of clients: the only evidence for the checkers of histories.

An operation is invoked, then ok, fail or info. `fail` is definite: it never happened and never will. `info` is unknown:
it may have happened, may happen later, or never. The classification is half of the test. All times of a
history are of one clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from engine.format import batch as record_batch

_BATCHES_KEPT = 4096  # more than one run stores; consumers, replicas and judges share the decoded batches


def outcome_of(status: int, problem: Mapping[str, Any]) -> str:
    """Return the outcome of one attempt by its answer; without an answer it is `info`.

    1. Success. 2. A batch older than the window was stored before. 3. The node promises that nothing was stored.
    """
    if 200 <= status < 300 and status != 207:
        return "ok"
    if problem.get("code") == "duplicate_older_than_window":
        return "ok"
    return "fail" if problem.get("no_side_effects") is True else "info"


@dataclass
class Produced:
    """One produce of one batch, with any number of attempts. `base_offset` is -1 while it is unknown.

    `partition` is "" if the client does not know it.
    """

    client: str
    partition: str
    values: Sequence[str]
    acks: str = "all"
    invoked_at: float = 0.0
    outcome: str = "info"
    code: str = "no answer"
    base_offset: int = -1
    done_at: float = float("inf")

    def acknowledge(self, base_offset: int | None, at: float) -> None:
        """Note that it is stored; the offset is unknown if the answer only says that it is a repeat."""
        self.outcome, self.code, self.done_at = "ok", "", at
        self.base_offset = -1 if base_offset is None else base_offset

    @property
    def is_acknowledged(self) -> bool:
        """True if it must not be lost. acks=1 promises nothing over a failover."""
        return self.outcome == "ok" and self.acks == "all"

    @property
    def end(self) -> int:
        return self.base_offset + len(self.values)

    def records(self) -> enumerate[str]:
        """Return offsets and values; `base_offset` must be known."""
        return enumerate(self.values, self.base_offset)


@dataclass(frozen=True)
class Polled:
    """One answer to a fetch: what the consumer read, where, and its next position."""

    client: str
    partition: str
    node_id: int
    asked: int
    records: tuple[tuple[int, str], ...]
    log_start: int
    high_watermark: int
    at: float
    is_full_read: bool = False  # part of the full read at the end of a run
    asked_at: float = float("nan")  # NaN if unknown


@dataclass(frozen=True)
class Latest:
    """A leader's answer to a query for the log end."""

    client: str
    partition: str
    offset: int
    seen: int  # the greatest end that this client had seen when it asked
    asked_at: float


@dataclass(frozen=True)
class Refused:
    """A node reported that a position is above the committed end, and the client took it as final (416)."""

    client: str
    partition: str
    node_id: int
    position: int
    asked_at: float


def records_of(data: bytes) -> list[tuple[int, str]]:
    """Return offsets and values of the whole batches in these bytes."""
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
    gaps_of_oldest: list[str] = field(default_factory=list)  # sequence_gap, of the oldest request without an answer
    # by a request or by retention; nothing else may raise log_start
    deleted_below: dict[str, int] = field(default_factory=dict)

    def begin(self, client: str, values: Sequence[str], partition: object, at: float) -> Produced:
        """Note a produce before any part of it is sent."""
        write = Produced(client, str(partition), values, invoked_at=at)
        self.produced.append(write)
        return write

    def note_deletion(self, partition: str, log_start: int) -> None:
        self.deleted_below[partition] = max(self.deleted_below.get(partition, 0), log_start)
