"""The table of works and cells: what is measured, and of each server the forms.

A work is one row of the comparison, such as producing 1000 records of 100 B a request. A cell is one server that does
it, Penstock in several forms. The cells of a work are measured one after the other in every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["produce", "read", "delivery"]
PENSTOCK, SHARDS, KAFKA, NATS, REDIS, BARE = "penstock", "penstock-shards-2", "kafka", "nats", "redis", "bare"
SLOW = {"penstock-2ms": 2, "penstock-10ms": 10}  # added to each fdatasync: no power-loss protection, a slow drive
TITLES = {
    PENSTOCK: "Penstock",
    SHARDS: "Penstock, `--shards 2`",
    **{server: f"Penstock, fdatasync + {ms} ms" for server, ms in SLOW.items()},
    BARE: "bare function",
    KAFKA: "Kafka",
    NATS: "NATS JetStream",
    REDIS: "Redis streams",
}
PEERS = (KAFKA, NATS, REDIS)
BESIDE_PEERS = (PENSTOCK, SHARDS, *PEERS)
# No segment is closed within a round: its upload would run in the next cell's round. Tiering has its own figures.
TOPIC_CONFIG: dict[str, object] = {"segment_bytes": 1 << 30, "segment_ms": 3_600_000}
SINGLE_RECORDS_MAX = 60_000
PLAIN, KEYED, SEQUENCED = "without", "Idempotency-Key", "sequences"
MESSAGES, ATOMIC = "messages", "atomic batches"  # of NATS
BATCH, NDJSON, JSON, HTTP2, HTTP1 = "batch", "NDJSON", "JSON", "HTTP/2", "HTTP/1.1"


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of work. `records_each` is that of a request, or of a stored batch where a log is read."""

    key: str
    title: str
    kind: Kind
    records_each: int
    record_bytes: int = 100
    is_fsync: bool = False
    forms: tuple[str, ...] = ("",)  # of Penstock
    peers: tuple[str, ...] = PEERS
    has_shards: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One server at one work. `form` is empty where the server has only one."""

    work: Work
    server: str
    form: str = ""

    @property
    def key(self) -> str:
        return key_of(self.work.key, self.server, self.form)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. Seconds are aims for one round of one cell."""

    name: str
    rounds: int
    round_s: float
    warm_up_s: float
    jvm_warm_up_s: float  # at most, until a JVM compiles no more
    delivery_s: float
    delivery_rate: int
    filled_records: int  # of the logs that are read
    has_shards: bool = True


PLANS = {
    plan.name: plan
    for plan in (
        Plan("quick", 1, 0.5, 0.3, 6.0, 2.0, 1000, filled_records=20_000),
        Plan("full", 5, 2.0, 2.0, 40.0, 5.0, 1000, filled_records=300_000),
    )
}

_FORMS_OF_MANY = {NATS: (MESSAGES, ATOMIC)}

WORKS = (
    Work("batch", "produce 1000 x 100 B, page cache", "produce", 1000, forms=(BATCH, NDJSON, JSON), has_shards=True),
    Work("batch-fsync", "produce 1000 x 100 B, fsync", "produce", 1000, is_fsync=True, forms=(BATCH, NDJSON, JSON)),
    Work("kilobyte", "produce 1000 x 1 kB, page cache", "produce", 1000, 1000, forms=(BATCH, NDJSON), has_shards=True),
    Work("single", "1 record of 100 B a request, 64 in flight", "produce", 1, forms=(HTTP2, HTTP1), has_shards=True),
    Work("single-fsync", "the same, fsync", "produce", 1, is_fsync=True, forms=(HTTP2,)),
    Work("keys", "1 record of 100 B, safe to retry", "produce", 1, forms=(PLAIN, KEYED, SEQUENCED), peers=()),
    Work(
        "keys-batch",
        "1000 x 100 B as NDJSON, safe to retry",
        "produce",
        1000,
        forms=(PLAIN, KEYED, SEQUENCED),
        peers=(),
    ),
    Work("delivery", "1,000 records/s one by one, produce to consumer", "delivery", 1),
    Work("read", "read what came as 1000 x 100 B", "read", 1000, forms=(BATCH, JSON, NDJSON), has_shards=True),
    Work("read-single", "read what came one by one", "read", 1, forms=(BATCH, JSON, NDJSON), peers=(KAFKA,)),
)


def key_of(work: str, server: str, form: str = "") -> str:
    return "/".join(part for part in (work, server, form) if part)


def filled_records(plan: Plan, work: Work) -> int:
    """Returns the records of the log that a work reads; fewer where each is written by a request of its own."""
    return plan.filled_records if work.records_each > 1 else min(plan.filled_records, SINGLE_RECORDS_MAX)


def cells_of(work: Work, servers: Sequence[str]) -> list[Cell]:
    """Returns the cells of a work, of these servers."""
    penstock_cells = [Cell(work, server, form) for server in _nodes(work) for form in work.forms]
    others = [Cell(work, peer, form) for peer in work.peers for form in _forms(work, peer)]
    return [cell for cell in (*penstock_cells, *_bare(work), *others) if cell.server in servers]


def _forms(work: Work, peer: str) -> tuple[str, ...]:
    """Returns the forms of 1000 records: of NATS messages and atomic batches."""
    if work.kind == "produce" and work.records_each > 1:
        return _FORMS_OF_MANY.get(peer, ("",))
    return ("",)


def _nodes(work: Work) -> list[str]:
    """Returns Penstock's servers at a work. A slow disk shows where answers wait for it."""
    return [PENSTOCK, *([SHARDS] if work.has_shards else ()), *(SLOW if work.is_fsync else ())]


def _bare(work: Work) -> list[Cell]:
    """Returns the cells of the bare function, which syncs nothing and knows no keys."""
    if work.is_fsync or work.kind == "delivery" or not work.peers or work.key == "read-single":
        return []
    return [Cell(work, BARE, form) for form in (work.forms if work.kind == "produce" else ("",))]
