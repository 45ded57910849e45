"""Parses times of requests: milliseconds, or RFC 3339 without the other forms of ISO 8601. Pure.

RFC 3339 excludes dates alone, weeks, and times without seconds or without an offset; without an offset, the moment
would depend on the reader's time zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from engine.runtime.clock import is_in_seconds
from gateway.http.problems import Problem

# RFC 3339 5.6: `t` and `z` may be lower case, a fraction has a point and any number of digits.
_FORM = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_SECOND = slice(17, 19)
_LEAP_DAYS = ((6, 30), (12, 31))  # a leap second is the last second of one of these days, in UTC
_HINT = "Penstock-Hint"


def parse_timestamp(text: str, name: str = "timestamp") -> int:
    """Returns milliseconds since 1970, from milliseconds or RFC 3339. Raises Problem invalid_query."""
    if text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) < 2**53:
        return int(text)
    if re.fullmatch("-[0-9]{1,16}", text):
        raise Problem("invalid_query", f"{name} {text} is before 1970", parameter=name)
    moment = rfc3339_ms(text.replace(" ", "+"))  # a bare + in a query means a space
    if moment is None:
        raise Problem("invalid_query", f"{name} is {text!r}; give milliseconds or RFC 3339", parameter=name)
    return moment


def time_of_body(given: int | str) -> int:
    """Returns milliseconds since 1970, from milliseconds or RFC 3339. Raises ValueError, which says what is wrong."""
    moment = given if isinstance(given, int) else rfc3339_ms(given)
    if moment is None or not 0 <= moment < 2**53:
        is_early = moment is not None and moment < 0
        raise ValueError("is before 1970" if is_early else "is neither milliseconds nor RFC 3339")
    return moment


def hint_of_time(moment: object) -> dict[str, str]:
    """Returns the header of an answer whose request gives a time that is probably in seconds; none for others, such
    as None, a word or text of RFC 3339.
    """
    if not isinstance(moment, int) or not is_in_seconds(moment):
        return {}
    return {_HINT: f"{moment} is a time in {datetime.fromtimestamp(moment / 1000, UTC):%B %Y}: give milliseconds"}


def rfc3339_ms(text: str) -> int | None:
    """Returns milliseconds since 1970; None if not a time of RFC 3339. A leap second maps to the second after it."""
    if not _FORM.fullmatch(text):
        return None
    try:
        if text[_SECOND] == "60":
            return _after_leap_second(text)
        return round(datetime.fromisoformat(text.upper()).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _after_leap_second(text: str) -> int:
    """Returns the second after a leap second. Raises ValueError if there is no leap second at this time."""
    moment = datetime.fromisoformat(f"{text[:17]}59{text[19:]}".upper()).astimezone(UTC)
    if (moment.hour, moment.minute) != (23, 59) or (moment.month, moment.day) not in _LEAP_DAYS:
        raise ValueError("no leap second is ever inserted there")
    return round((moment + timedelta(seconds=1)).timestamp() * 1000)
