"""Parses event times to microseconds since 1970, UTC. Pure.

`parse` takes one value and `parse_column` an Arrow array; tests check that both give the same result. Text is ISO 8601
or RFC 3339 (UTC without a zone), or digits. A number is an epoch in s, ms, us or ns; its magnitude decides. Fractions
below a microsecond are truncated.

Returns None for an unreadable time, never a default; the caller applies the fallback.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
EARLIEST_US = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
LATEST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

# An epoch in seconds is between 1973 and 5138; a smaller number may be a counter. Each finer unit starts where the
# coarser one ends, so a magnitude has one meaning.
_SECONDS_MIN = 10**8
_SCALES = ((10**11, 1_000_000, 1), (10**14, 1_000, 1), (10**17, 1, 1), (2**63, 1, 1_000))

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?\s*(Z|z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"\d{9,19}(\.\d+)?", re.ASCII)


def parse(value: object) -> int | None:
    """Returns microseconds since 1970 of one value; None if it is not a time."""
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            return _from_number(float(text) if "." in text else int(text))
        return _from_text(text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _from_number(value)
    return None


def _from_number(number: float) -> int | None:
    if not _SECONDS_MIN <= number < _SCALES[-1][0]:
        return None
    for below, times, divided_by in _SCALES:
        if number < below:
            microseconds = int(number) // divided_by if isinstance(number, int) else int(number / divided_by)
            microseconds = int(number * times) if times > 1 else microseconds
            return microseconds if microseconds <= LATEST_US else None
    return None


def _from_text(text: str) -> int | None:
    match = _ISO.fullmatch(text)
    if not match:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.group(1, 2, 3, 4, 5, 6))
    leap, second = (1, 59) if second == 60 else (0, second)
    try:
        zone = _zone_of(match.group(8))
        moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None
    fraction = int((match.group(7) or "0")[:6].ljust(6, "0"))
    microseconds = (moment - _EPOCH) // _MICROSECOND + leap * 1_000_000 + fraction
    return microseconds if EARLIEST_US <= microseconds <= LATEST_US else None


def _zone_of(text: str | None) -> timezone:
    """Raises ValueError for an offset of a day or more."""
    if text in (None, "Z", "z"):
        return UTC
    assert text is not None
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if minutes > 59:
        raise ValueError(text)
    shift = timedelta(hours=hours, minutes=minutes)
    return timezone(-shift if text[0] == "-" else shift)


def parse_column(values: pa.Array, read: Callable[[object], int | None] | None = None) -> pa.Array:
    """Returns int64 microseconds for a column of strings or integers; null without a time.

    `read` parses single values by other rules than those of this file.
    """
    if read is not None:
        return _one_by_one(values, read)
    bulk = _strings_in_bulk(values) if pa.types.is_string(values.type) else _numbers_in_bulk(values)
    return bulk if bulk is not None else _one_by_one(values, parse)


def _one_by_one(values: pa.Array, read: Callable[[object], int | None]) -> pa.Array:
    encoded = values.dictionary_encode()  # times repeat; each form is read once
    times = pa.array([read(value) for value in encoded.dictionary.to_pylist()], pa.int64())
    return times.take(encoded.indices)


def _strings_in_bulk(values: pa.Array) -> pa.Array | None:
    """Uses Arrow's parser, which needs one form: all values with a zone or all without, at most microseconds."""
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            times = values.cast(kind).cast(pa.int64())
        except pa.ArrowInvalid:
            continue
        return times if _is_within_calendar(times) else None
    return None


def _is_within_calendar(times: pa.Array) -> bool:
    bounds = pc.min_max(times).as_py()
    return bounds["min"] is None or (bounds["min"] >= EARLIEST_US and bounds["max"] <= LATEST_US)


def _numbers_in_bulk(values: pa.Array) -> pa.Array | None:
    """Converts a column whose numbers have one unit; None for mixed units."""
    if not pa.types.is_integer(values.type):
        return None
    bounds = pc.min_max(values).as_py()
    low, high = bounds["min"], bounds["max"]
    if low is None:
        return pa.nulls(len(values), pa.int64())
    for above, (below, times, divided_by) in zip((_SECONDS_MIN, 10**11, 10**14, 10**17), _SCALES, strict=True):
        if above <= low and high < below:
            numbers = np.asarray(values.fill_null(above)) * times // divided_by
            times_us = pa.array(numbers, pa.int64(), mask=np.asarray(values.is_null()))
            return times_us if _is_within_calendar(times_us) else None
    return None
