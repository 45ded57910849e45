"""Counts records by ten minutes of time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ingest.decode.event_time import LATEST_US

PERIOD_MS = 600_000
NO_TIME = -1  # records without a readable time


def counts_of(times: pa.Array | pa.ChunkedArray, units_per_ms: int = 1) -> dict[int, int]:
    """Returns the number of times in each ten minutes since 1970. The times must not be null."""
    values = np.asarray(times)
    if len(values) and values.min() >= 0 and values.max() <= LATEST_US // 1000 * units_per_ms:
        first, last = (int(bound) // (PERIOD_MS * units_per_ms) for bound in (values.min(), values.max()))
        if first == last:  # most blocks
            return {first: len(values)}
    periods = values // (PERIOD_MS * units_per_ms)
    periods = np.where((values < 0) | (values > LATEST_US // 1000 * units_per_ms), NO_TIME, periods)
    return dict(zip(*(column.tolist() for column in np.unique(periods, return_counts=True)), strict=True))
