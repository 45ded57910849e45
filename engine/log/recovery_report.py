"""The report of the recovery of logs (engine/log/recovery.py); the sum over partitions is that of a start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of a recovery, for the log and the metrics."""

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    dropped_segments: int = 0
    mid_log_truncations: int = 0  # truncations with valid batches behind them, after a power loss
    new_logs: int = 0  # in directories without a file

    def __add__(self, other: RecoveryReport) -> RecoveryReport:
        return RecoveryReport(
            self.scanned_bytes + other.scanned_bytes,
            self.truncated_bytes + other.truncated_bytes,
            self.dropped_segments + other.dropped_segments,
            self.mid_log_truncations + other.mid_log_truncations,
            self.new_logs + other.new_logs,
        )
