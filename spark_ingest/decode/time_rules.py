"""The rules of a recipe for event times: patterns of text, the unit of numbers, bounds around the own timestamp.

Without rules event_time.py decides by the form and the magnitude of a value. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from spark_ingest.decode.event_time import EARLIEST_US, LATEST_US, parse
from spark_ingest.plan import Recipe

AUTO = "auto"
_FACTORS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
UNITS = (AUTO, *_FACTORS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NUMBER = re.compile(r"[+-]?\d{1,19}(\.\d{1,20})?", re.ASCII)


def reader_of(recipe: Recipe) -> Callable[[object], int | None] | None:
    """Returns a function from a value to microseconds since 1970; None if the recipe has no rule for values."""
    formats, unit = recipe.event_time_formats, recipe.event_time_unit
    if not formats and unit == AUTO:
        return None

    def read(value: object) -> int | None:
        if isinstance(value, str):
            if formats:
                return _by_format(value.strip(), formats)
            if not _NUMBER.fullmatch(value.strip()):
                return parse(value)
            value = float(value) if "." in value else int(value)
        if unit == AUTO or isinstance(value, bool) or not isinstance(value, int | float):
            return parse(value)
        return _by_unit(value, unit)

    return read


def _by_format(text: str, formats: Sequence[str]) -> int | None:
    for pattern in formats:
        try:
            moment = datetime.strptime(text, pattern)  # noqa: DTZ007 - the zone follows
        except (ValueError, OverflowError):
            continue
        microseconds = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        return microseconds if EARLIEST_US <= microseconds <= LATEST_US else None
    return None


def _by_unit(number: float, unit: str) -> int | None:
    times, divided_by = _FACTORS[unit]
    try:
        microseconds = int(number * times) // divided_by
    except (OverflowError, ValueError):  # infinite, or not a number
        return None
    return microseconds if EARLIEST_US <= microseconds <= LATEST_US else None


def beyond_bounds(event_times: pa.Array, record_times: pa.Array, recipe: Recipe) -> pa.Array | None:
    """Returns for each time whether it is too far from the record's own timestamp; None without bounds or such a time.

    A record without a timestamp has no bounds. The log's timestamps decide, and no clock, so each attempt agrees.
    """
    past, future = recipe.event_time_past_max_s, recipe.event_time_future_max_s
    if past is None and future is None:
        return None
    ahead = pc.subtract(event_times, record_times)
    beyond = pa.repeat(pa.scalar(False), len(event_times))
    if past is not None:
        beyond = pc.or_(beyond, pc.fill_null(pc.less(ahead, -past * 1_000_000), False))
    if future is not None:
        beyond = pc.or_(beyond, pc.fill_null(pc.greater(ahead, future * 1_000_000), False))
    return beyond if pc.any(beyond).as_py() else None


def format_problem(formats: Sequence[str]) -> str | None:
    """Returns why a list of patterns is wrong, and what to write; None if each can be read."""
    moment = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    for pattern in formats:
        try:
            datetime.strptime(moment.strftime(pattern), pattern)  # noqa: DTZ007 - only tried
        except (ValueError, re.error) as error:
            return f"{pattern!r} is not a pattern of strptime: {error}; write one such as %d/%b/%Y:%H:%M:%S %z"
        if not re.search(r"%(?:[YyGc]|x)", pattern):
            return f"{pattern!r} has no year; write one such as %Y-%m-%d"
    return None
