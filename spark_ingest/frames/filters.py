"""Narrows a read by the filters of a query, for Spark's filter push-down.

Only comparisons of the partition, the offset and the timestamp narrow it. Spark evaluates every filter all the same, so
a filter that is not understood costs time and changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from spark_ingest.frames.read_options import ReadOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS = (EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual)


def narrowed(options: ReadOptions, filters: Iterable[Filter], prefix: str) -> ReadOptions:
    """Returns options for at least the records that pass all filters. `prefix` is before the names of columns."""
    return reduce(lambda narrower, condition: _narrowed(narrower, condition, prefix), filters, options)


def _narrowed(options: ReadOptions, condition: Filter, prefix: str) -> ReadOptions:
    if not isinstance(condition, _COMPARISONS) or len(condition.attribute) != 1:
        return options
    values = list(condition.value) if isinstance(condition, In) else [condition.value]
    match condition.attribute[0].removeprefix(prefix) if condition.attribute[0].startswith(prefix) else None:
        case "partition" if _are_integers(values):
            return _with_partitions(options, condition, values)
        case "offset" if _are_integers(values):
            lower, upper = _bounds(condition, values)
            starts = options.starts if lower is None else options.starts.raised(lower)
            return replace(options, starts=starts, ends=options.ends if upper is None else options.ends.lowered(upper))
        case "timestamp" if values and all(isinstance(value, datetime) and value.tzinfo for value in values):
            return _with_times(options, condition, [(value - _EPOCH) // timedelta(microseconds=1) for value in values])
    return options


def _are_integers(values: list[object]) -> bool:
    return bool(values) and all(type(value) is int for value in values)


def _with_partitions(options: ReadOptions, condition: Filter, values: list[int]) -> ReadOptions:
    if not isinstance(condition, EqualTo | In):
        return options
    numbers = frozenset(values)
    return replace(options, partitions=numbers if options.partitions is None else options.partitions & numbers)


def _with_times(options: ReadOptions, condition: Filter, times_us: list[int]) -> ReadOptions:
    """Timestamps of records are whole milliseconds, and those of a query are microseconds."""
    lower_us, upper_us = _bounds(condition, times_us)
    start_ms = None if lower_us is None else -(-lower_us // 1000)
    end_ms = None if upper_us is None else -(-upper_us // 1000)
    starts = [time for time in (options.start_ms, start_ms) if time is not None]
    ends = [time for time in (options.end_ms, end_ms) if time is not None]
    return replace(options, start_ms=max(starts, default=None), end_ms=min(ends, default=None))


def _bounds(condition: Filter, values: list[int]) -> tuple[int | None, int | None]:
    """Returns the smallest value that can pass the filter, and the first one above all that can."""
    match condition:
        case GreaterThan():
            return values[0] + 1, None
        case GreaterThanOrEqual():
            return values[0], None
        case LessThan():
            return None, values[0]
        case LessThanOrEqual():
            return None, values[0] + 1
    return min(values), max(values) + 1
