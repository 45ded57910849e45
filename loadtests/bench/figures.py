"""Computes the figures of a report from measured rounds. Pure.

Rates are the median of the rounds; latencies are those of all rounds together. A ratio is computed within each round,
between adjacent cells, and then the median is taken. On a shared machine only such ratios are reliable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadtests.generators.load import Outcome
from loadtests.generators.percentiles import Latency, latency_of, median

GENERATOR_BOUND_SHARE = 0.9  # of the one core that a generator can use


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one cell. `others_share` is the part of the machine that neither server nor generator used."""

    outcome: Outcome
    records_each: float
    body_bytes_each: float
    server_cpu_s: float
    rss_bytes: int
    others_share: float

    @property
    def requests_per_s(self) -> float:
        return self.outcome.good / self.outcome.seconds

    @property
    def cpu_us_per_request(self) -> float:
        return self.server_cpu_s * 1e6 / max(1, self.outcome.good)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one cell. Latency is the time in flight of a closed loop, or counts from the schedule."""

    key: str
    title: str
    peer: str
    acks: str
    loop: str
    rounds: int
    requests_per_s: float
    records_per_s: float
    megabytes_per_s: float
    latency: Latency
    cpu_us_per_request: float
    rss_megabytes: float
    ratio_to_bare: float | None
    cpu_ratio_to_bare: float | None
    others_share: float
    is_generator_bound: bool
    flush_delay_ms: int = 0
    asked_per_s: float | None = None
    produce_latency: Latency | None = None


def row_of(
    key: str, title: str, peer: str, acks: str, rounds: Sequence[Round], bare: Sequence[Round], flush_delay_ms: int = 0
) -> Row:
    """Returns the row of a closed loop. `bare` has the bare function's rounds of the same group, or is empty."""
    rates = [sample.requests_per_s for sample in rounds]
    pairs = list(zip(rounds, bare, strict=False))
    return Row(
        key=key,
        title=title,
        peer=peer,
        acks=acks,
        loop="closed",
        rounds=len(rounds),
        requests_per_s=median(rates),
        records_per_s=median([sample.requests_per_s * sample.records_each for sample in rounds]),
        megabytes_per_s=median([sample.requests_per_s * sample.body_bytes_each / 1e6 for sample in rounds]),
        latency=latency_of(duration for sample in rounds for duration in sample.outcome.durations_us),
        cpu_us_per_request=median([sample.cpu_us_per_request for sample in rounds]),
        rss_megabytes=max(sample.rss_bytes for sample in rounds) / 1e6,
        ratio_to_bare=median([ours.requests_per_s / other.requests_per_s for ours, other in pairs]) if pairs else None,
        cpu_ratio_to_bare=_cpu_ratio(pairs),
        others_share=max(sample.others_share for sample in rounds),
        is_generator_bound=median([sample.outcome.generator_cpu_s / sample.outcome.seconds for sample in rounds])
        > GENERATOR_BOUND_SHARE,
        flush_delay_ms=flush_delay_ms,
    )


def open_row(row: Row, asked_per_s: float, produce_us: Sequence[int]) -> Row:
    """Returns the row of an open loop: its latency is that of the delivery, `produce_us` that of the ack."""
    return replace(row, loop="open", asked_per_s=asked_per_s, produce_latency=latency_of(produce_us))


def _cpu_ratio(pairs: Sequence[tuple[Round, Round]]) -> float | None:
    ratios = [ours.cpu_us_per_request / other.cpu_us_per_request for ours, other in pairs if other.server_cpu_s > 0]
    return median(ratios) if ratios else None
