"""The targets of the project: how many times the cost of another cell a cell of Penstock may have at most. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.bench.figures import Figure, Ratio, Row, ratio_of
from loadtests.bench.works import (
    BATCH,
    HTTP1,
    HTTP2,
    JSON,
    KAFKA,
    KEYED,
    NATS,
    NDJSON,
    PENSTOCK,
    PLAIN,
    SEQUENCED,
    SHARDS,
    WORKS,
    key_of,
)

SHARDS_AT_MOST = 1.15


@dataclass(frozen=True, slots=True)
class Target:
    """`cell` may have at most `at_most` times the figure of `against`. Both are keys of cells."""

    cell: str
    against: str
    at_most: float
    figure: Figure = "cpu"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and the measured ratio."""

    target: Target
    ratio: Ratio
    is_judged: bool = True  # False if a server was still warming up

    @property
    def is_met(self) -> bool:
        return self.is_judged and self.ratio.median <= self.target.at_most

    @property
    def word(self) -> str:
        if not self.is_judged:
            return "not judged ‡"
        if self.is_met:
            return "met"
        return f"not met, by {self.ratio.median / self.target.at_most - 1:.0%}"


def _to_kafka(work: str, form: str, at_most: float) -> Target:
    return Target(key_of(work, PENSTOCK, form), key_of(work, KAFKA), at_most)


def _shards() -> list[Target]:
    return [
        Target(key_of(work.key, SHARDS, form), key_of(work.key, PENSTOCK, form), SHARDS_AT_MOST)
        for work in WORKS
        if work.has_shards
        for form in work.forms
    ]


def _safe_to_retry(form: str, at_most: float) -> list[Target]:
    return [
        Target(key_of(work, PENSTOCK, form), key_of(work, PENSTOCK, PLAIN), at_most) for work in ("keys", "keys-batch")
    ]


def _to_own_batches(work: str, form: str, at_most: float) -> Target:
    return Target(key_of(work, PENSTOCK, form), key_of("read", PENSTOCK, BATCH), at_most)


TARGETS = (
    _to_kafka("batch", BATCH, 1.3),
    _to_kafka("batch", NDJSON, 1.8),
    _to_kafka("batch", JSON, 2.0),
    *(_to_kafka("batch-fsync", form, 1.0) for form in (BATCH, NDJSON, JSON)),
    _to_kafka("kilobyte", BATCH, 1.4),
    _to_kafka("kilobyte", NDJSON, 2.0),
    _to_kafka("single", HTTP2, 1.5),
    _to_kafka("single", HTTP1, 1.5),
    _to_kafka("delivery", "", 0.4),
    Target(key_of("delivery", PENSTOCK), key_of("delivery", NATS), 1.5, "p50"),
    Target(key_of("delivery", PENSTOCK), key_of("delivery", NATS), 1.5, "p99"),
    _to_kafka("read", BATCH, 1.1),
    _to_own_batches("read", JSON, 4.0),
    _to_own_batches("read", NDJSON, 4.0),
    _to_own_batches("read-single", JSON, 8.0),
    _to_own_batches("read-single", NDJSON, 8.0),
    *_shards(),
    *_safe_to_retry(KEYED, 1.15),
    *_safe_to_retry(SEQUENCED, 1.05),
)


def verdicts_of(rows: Sequence[Row]) -> list[Verdict]:
    """Returns a verdict for each target whose two cells were measured."""
    by_key = {row.cell.key: row for row in rows}
    verdicts = []
    for target in TARGETS:
        if target.cell in by_key and target.against in by_key:
            measured, other = by_key[target.cell], by_key[target.against]
            ratio = ratio_of(measured.rounds, other.rounds, target.figure)
            if ratio is not None:
                verdicts.append(Verdict(target, ratio, is_judged=measured.is_warm and other.is_warm))
    return verdicts
