"""The table of cases: groups of cells with the same body, and the plans with their durations.

A group is one kind of request: one cell for the bare function, one for each guarantee of Penstock. The cells of a group
are measured one after the other in every round, so a change in the load of the machine affects all of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from loadtests.generators.bodies import (
    BATCH_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    Body,
    batch_body,
    json_body,
    json_values,
    ndjson_body,
    raw_body,
)

BATCH_RECORDS = 1000
FETCH_BYTES = 1024 * 1024  # the default of a fetch
GIB = 1 << 30

FLUSH_DELAYS_MS = (2, 10)  # a drive without power-loss protection, and a slow one
SHOWN_WITH_SLOW_FLUSH = ("single", "ndjson", "batch")

PeerName = Literal["penstock", "bare"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the report. `acks` is empty for the bare function and for fetches."""

    key: str
    group: str
    peer: PeerName
    acks: str = ""
    accept: str = ""
    is_extra: bool = False  # measured by --full only
    flush_delay_ms: int = 0  # added to each fdatasync of a node of its own

    @property
    def is_fetch(self) -> bool:
        return self.group.startswith("fetch")


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of request. `connections` times `streams` are in flight."""

    key: str
    title: str
    cells: tuple[Cell, ...]
    connections: int = 4
    streams: int = 16
    is_extra: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. Seconds are aims for one round of one cell; the deadline drops later rounds."""

    name: str
    rounds: int
    round_s: float
    delivery_s: float
    delivery_rate: int
    deadline_s: float
    recovery_bytes: int
    has_extras: bool = False


PLANS = {
    plan.name: plan
    for plan in (
        Plan("quick", rounds=2, round_s=0.6, delivery_s=1.5, delivery_rate=1000, deadline_s=50, recovery_bytes=0),
        Plan("default", rounds=3, round_s=1.6, delivery_s=3.0, delivery_rate=1000, deadline_s=240, recovery_bytes=GIB),
        Plan(
            "full",
            rounds=5,
            round_s=4.0,
            delivery_s=10.0,
            delivery_rate=1000,
            deadline_s=1500,
            recovery_bytes=4 * GIB,
            has_extras=True,
        ),
    )
}

# No segment is sealed within a round: its upload would run in the next cell's round. Tiering has its own figures.
TOPIC_CONFIG: dict[str, object] = {"segment_bytes": GIB, "segment_ms": 3_600_000}


def _produce(key: str, title: str, *, is_extra: bool = False) -> Group:
    guarantees = [Cell(f"{key}-acks-{acks}", key, "penstock", acks=acks) for acks in ("1", "all")]
    if key in SHOWN_WITH_SLOW_FLUSH:
        for ms in FLUSH_DELAYS_MS:
            guarantees.append(Cell(f"{key}-acks-all-{ms}ms", key, "penstock", acks="all", flush_delay_ms=ms))
    fire_and_forget = Cell(f"{key}-acks-0", key, "penstock", acks="0", is_extra=True)
    return Group(key, title, (Cell(f"{key}-bare", key, "bare"), fire_and_forget, *guarantees), is_extra=is_extra)


def _fetch(key: str, title: str, accept: str) -> Group:
    cells = (Cell(f"{key}-bare", key, "bare", accept=accept), Cell(f"{key}-penstock", key, "penstock", accept=accept))
    return Group(key, title, cells, connections=2, streams=4)  # each answer is about a megabyte


GROUPS = (
    _produce("single", "1 record of 100 B"),
    _produce("json", "1000 x 100 B as JSON"),
    _produce("ndjson", "1000 x 100 B as NDJSON"),
    _produce("batch", "1000 x 100 B as a stored batch"),
    _produce("batch-lz4", "1000 x 100 B as a stored batch, lz4", is_extra=True),
    _produce("batch-1mib", "1000 x 1 kB as a stored batch"),
    _produce("batch-10k", "10000 x 100 B as a stored batch", is_extra=True),
    _fetch("fetch-batch", "fetch 1 MiB as stored batches", BATCH_TYPE),
    _fetch("fetch-json", "fetch 1 MiB as JSON", JSON_TYPE),
    _fetch("fetch-ndjson", "fetch 1 MiB as NDJSON", NDJSON_TYPE),
)
DELIVERY_ACKS = ("1", "all")


def groups_of(plan: Plan, only: str = "") -> list[Group]:
    """Returns the groups and cells of a plan; `only` selects groups whose key contains it."""
    chosen = [group for group in GROUPS if only in group.key and (plan.has_extras or not group.is_extra)]
    return [
        replace(group, cells=tuple(cell for cell in group.cells if plan.has_extras or not cell.is_extra))
        for group in chosen
    ]


@cache
def body_of(group: str) -> Body:
    """Returns the request body of a produce group. Raises ValueError for a fetch group."""
    now_ms = time.time_ns() // 1_000_000
    match group:
        case "single":
            return raw_body(json_values(1)[0])
        case "json":
            return json_body(json_values(BATCH_RECORDS))
        case "ndjson":
            return ndjson_body(json_values(BATCH_RECORDS))
        case "batch":
            return batch_body(json_values(BATCH_RECORDS), now_ms)
        case "batch-lz4":
            return batch_body(json_values(BATCH_RECORDS), now_ms, "lz4")
        case "batch-1mib":
            return batch_body(json_values(BATCH_RECORDS, size_bytes=1000), now_ms)
        case "batch-10k":
            return batch_body(json_values(10 * BATCH_RECORDS), now_ms)
    raise ValueError(f"no group {group!r} has a body")
