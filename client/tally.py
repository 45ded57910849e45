"""What a producer has done so far: counted per batch, never per record, and shown as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from client.timings import Durations, Timings


@dataclass(frozen=True)
class ProducerStatistics:
    """Since the producer was made. Bytes are those of bodies; a repeat of a request is not counted in them again."""

    records_acknowledged: int
    records_failed: int
    batches: int
    body_bytes: int  # of the batches sent, as lines
    packed_bytes: int  # the same as they travel, after `compression`
    requests: int
    retries: int
    duplicates: int  # batches that the node had already when they were sent again
    epochs_raised: int  # how often batches were numbered anew, after a failure for good or because a node had lost some
    buffered_bytes: int  # of records without a result
    queue_time: Durations  # from a batch's first record to its first request
    delivery_time: Durations  # from a batch's first record to its acknowledgement, retries included


class Tally:
    def __init__(self) -> None:
        self.records_acknowledged = 0
        self.records_failed = 0
        self.batches = 0
        self.body_bytes = 0
        self.packed_bytes = 0
        self.duplicates = 0
        self.epochs_raised = 0
        self._queue_time = Timings()
        self._delivery_time = Timings()

    def on_sent(self, waited_s: float, body_bytes: int, packed_bytes: int) -> None:
        """A batch goes out for the first time."""
        self.batches += 1
        self.body_bytes += body_bytes
        self.packed_bytes += packed_bytes
        self._queue_time.add(waited_s * 1000)

    def on_acknowledged(self, records: int, took_s: float) -> None:
        self.records_acknowledged += records
        self._delivery_time.add(took_s * 1000)

    def shown(self, requests: int, retries: int, buffered_bytes: int) -> ProducerStatistics:
        return ProducerStatistics(
            self.records_acknowledged,
            self.records_failed,
            self.batches,
            self.body_bytes,
            self.packed_bytes,
            requests,
            retries,
            self.duplicates,
            self.epochs_raised,
            buffered_bytes,
            self._queue_time.durations(),
            self._delivery_time.durations(),
        )
