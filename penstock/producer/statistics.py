"""The counts of a producer since it was made: updated per batch, never per record, and returned as a frozen value.

Durations take bounded memory: counts in buckets that grow by a fifth. A quantile is the upper bound of its bucket, so
it is at most a fifth too large and never too small. Pure: takes durations, reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

_BUCKETS_PER_OCTAVE = 4
_SMALLEST_MS = 0.01
PERIOD_MS = 600_000  # ten minutes, as nodes and ingestion count
ACCEPTED_MAX = 10_000  # topics and periods that are counted until they are taken; further ones are not
_BUCKETS = 120  # 30 octaves: from 10 us to three hours


@dataclass(frozen=True)
class Durations:
    """Summarizes durations, in milliseconds. All zero if there are none."""

    count: int = 0
    mean_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0


class Timings:
    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self._count = 0
        self._total_ms = 0.0
        self._max_ms = 0.0

    def __repr__(self) -> str:
        return f"<Timings {self.durations()}>"

    def add(self, duration_ms: float) -> None:
        octaves = log2(max(duration_ms, _SMALLEST_MS) / _SMALLEST_MS)
        self._counts[min(int(octaves * _BUCKETS_PER_OCTAVE), _BUCKETS - 1)] += 1
        self._count += 1
        self._total_ms += duration_ms
        self._max_ms = max(self._max_ms, duration_ms)

    def durations(self) -> Durations:
        if self._count == 0:
            return Durations()
        mean_ms = self._total_ms / self._count
        return Durations(self._count, mean_ms, self._quantile_ms(0.5), self._quantile_ms(0.99), self._max_ms)

    def _quantile_ms(self, quantile: float) -> float:
        rank, seen = quantile * self._count, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return min(_SMALLEST_MS * 2 ** ((bucket + 1) / _BUCKETS_PER_OCTAVE), self._max_ms)
        raise AssertionError("the buckets hold fewer than were counted")


@dataclass(frozen=True)
class AcceptedCount:
    """Records of a topic that were acknowledged in ten minutes from `from_ms` on, by the clock of the node."""

    topic: str
    from_ms: int
    records: int


@dataclass(frozen=True)
class ProducerStatistics:
    """Counts since the producer was made. Bytes are those of bodies; retries do not count again."""

    records_acknowledged: int
    records_failed: int
    batches: int
    body_bytes: int  # of the batches sent, as lines
    compressed_bytes: int  # of the same bodies after `compression`
    requests: int
    retries: int
    duplicates: int  # retried batches that the node had already stored
    epochs_raised: int  # how often batches were renumbered, after a permanent failure or because a node lost its state
    buffered_bytes: int  # of records without a result
    queue_time: Durations  # from a batch's first record to its first request
    delivery_time: Durations  # from a batch's first record to its acknowledgement, retries included


class Tally:
    def __init__(self) -> None:
        self.records_acknowledged = 0
        self.records_failed = 0
        self.batches = 0
        self.body_bytes = 0
        self.compressed_bytes = 0
        self.duplicates = 0
        self.epochs_raised = 0
        self._accepted: dict[tuple[str, int], int] = {}
        self._queue_time = Timings()
        self._delivery_time = Timings()

    def on_sent(self, waited_s: float, body_bytes: int, compressed_bytes: int) -> None:
        """Counts a batch that is sent for the first time."""
        self.batches += 1
        self.body_bytes += body_bytes
        self.compressed_bytes += compressed_bytes
        self._queue_time.add(waited_s * 1000)

    def on_acknowledged(self, records: int, took_s: float, topic: str, timestamp_ms: int | None) -> None:
        """Counts a batch. `timestamp_ms` is when the node took it; None if it did not say."""
        self.records_acknowledged += records
        self._delivery_time.add(took_s * 1000)
        if timestamp_ms is not None:
            key = topic, timestamp_ms // PERIOD_MS * PERIOD_MS
            if key in self._accepted or len(self._accepted) < ACCEPTED_MAX:
                self._accepted[key] = self._accepted.get(key, 0) + records

    def take_accepted(self) -> list[AcceptedCount]:
        """Returns the counts since the last call."""
        taken, self._accepted = self._accepted, {}
        return [AcceptedCount(topic, from_ms, records) for (topic, from_ms), records in sorted(taken.items())]

    def snapshot(self, requests: int, retries: int, buffered_bytes: int) -> ProducerStatistics:
        return ProducerStatistics(
            self.records_acknowledged,
            self.records_failed,
            self.batches,
            self.body_bytes,
            self.compressed_bytes,
            requests,
            retries,
            self.duplicates,
            self.epochs_raised,
            buffered_bytes,
            self._queue_time.durations(),
            self._delivery_time.durations(),
        )
