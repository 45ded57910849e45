"""The directories of a table below its root: made of the start of a period, positions and values, and read back. Pure.

    dt=2026-11-20/hr=05/                 by hour
    dt=2026-11-20/hr=05/min=15/          by 5, 10, 15, 20 or 30 minutes
    week=2026-11-16/ month=2026-11/      by week (its Monday), month, year
    offset=1000000/                      by positions: of the first offset
    dt=2026-11-20/region=DE/             and the value of a field

A wall time is the time that a clock of the layout's zone shows, in seconds since 1970 as if it were UTC. An hour that a
zone has twice is one directory. Values are percent-encoded as Hive does it.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from spark_ingest.layout import DAY, HOUR, MINUTES, MONTH, OFFSET, POSITIONS, TIME_PERIODS, UTC_ZONE, WEEK, Layout

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # Hive's and Spark's name for null
OTHER_VALUES = "__other__"
VALUE_BYTES_MAX = 120  # of an encoded value; names of directories have at most 255 bytes
LENGTHS_S = {**{name: 60 * minutes for name, minutes in MINUTES.items()}, HOUR: 3600, DAY: 86_400, WEEK: 7 * 86_400}

_LAST_YEAR, _LAST_S = 9999, 253_402_300_799  # of the calendar: a period that ends after it ends there
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")  # by Hive (FileUtils.escapePathName)
_DIRECTIVES = {"%Y": r"(?P<Y>\d{4})", "%m": r"(?P<m>\d\d)", "%d": r"(?P<d>\d\d)", "%H": r"(?P<H>\d\d)",
               "%M": r"(?P<M>\d\d)"}  # fmt: skip
_DIRECTIVE = re.compile("%.?")
_PART_OF_ESCAPE = re.compile("%.?$")
_PLAIN_PART = re.compile(r"[A-Za-z0-9=_%+-][A-Za-z0-9=_%+.-]*")


def time_directory(layout: Layout, wall_s: int) -> str:
    """Returns the directory of a period that starts at a wall time; an empty one if the layout has no periods."""
    at = _EPOCH + timedelta(seconds=wall_s)
    values = {"%Y": f"{at.year:04}", "%m": f"{at.month:02}", "%d": f"{at.day:02}", "%H": f"{at.hour:02}",
              "%M": f"{at.minute:02}"}  # fmt: skip
    text = _DIRECTIVE.sub(lambda match: values[match[0]], layout.pattern)
    return f"{text}/" if text else ""


def position_directory(layout: Layout, start: int) -> str:
    return f"{OFFSET}={start}/" if layout.period == POSITIONS else ""


def value_directory(name: str, value: str | None) -> str:
    """Returns the directory of a value. An empty one counts as null, as in Hive; the end of a long one is a digest."""
    if not value:
        return f"{name}={NO_VALUE}/"
    text = _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", value)
    if len(text.encode()) > VALUE_BYTES_MAX:
        start = _PART_OF_ESCAPE.sub("", text.encode()[: VALUE_BYTES_MAX - 40].decode(errors="ignore"))
        text = f"{start}~{hashlib.sha256(value.encode()).hexdigest()[:32]}"
    return f"{name}={text}/"


def end_ms_of(layout: Layout, directory: str) -> int | None:
    """Returns the end of a directory's period; None for a directory without one."""
    start_s = wall_start_of(layout, directory)
    return None if start_s is None else _latest_ms(layout.zone, _next_start(layout.period, start_s))


def day_end_of(layout: Layout, directory: str) -> str | None:
    """Returns the day after a directory's period, as `2026-11-21`; None for a directory without a period."""
    start_s = wall_start_of(layout, directory)
    if start_s is None:
        return None
    end_s = min(_next_start(layout.period, start_s) + 86_399, _LAST_S)
    return (_EPOCH + timedelta(seconds=end_s)).date().isoformat()


def wall_start_of(layout: Layout, directory: str) -> int | None:
    """Returns the wall time at which a directory's period starts; None for a directory without a period."""
    if layout.period not in TIME_PERIODS:
        return None
    match = _expression(layout.pattern).match(directory.split("/", 2)[-1])
    if match is None:
        return None
    parts = {"m": 1, "d": 1, "H": 0, "M": 0} | {name: int(number) for name, number in match.groupdict().items()}
    try:
        start = datetime(parts["Y"], parts["m"], parts["d"], parts["H"], parts["M"], tzinfo=UTC)
    except ValueError:  # of another program
        return None
    return int((start - _EPOCH).total_seconds())


def offset_s(zone: str, at_s: int) -> int:
    """Returns how far the clock of a zone is ahead of UTC; 0 at the ends of the calendar."""
    try:
        moment = (_EPOCH + timedelta(seconds=at_s)).astimezone(ZoneInfo(zone))
    except OverflowError:
        return 0
    offset = moment.utcoffset()
    return int(offset.total_seconds()) if offset else 0


def pattern_problem(pattern: str, period: str) -> str | None:
    """Returns why directories of a pattern do not name each period; None if they do."""
    if wrong := [directive for directive in _DIRECTIVE.findall(pattern) if directive not in _DIRECTIVES]:
        return f"has {wrong[0]!r}; write %Y, %m, %d, %H and %M"
    if not all(_PLAIN_PART.fullmatch(part) for part in pattern.split("/")):
        return "is not a path of letters, digits and = _ + - . below the table; write one like 'hourly/%Y/%m/%d/%H'"
    if hidden := [part for part in pattern.split("/") if part.startswith(("_", "="))]:
        return f"has {hidden[0]!r}; begin it with a letter or a digit, because readers ignore such directories"
    columns = [part.partition("=")[0].lower() for part in pattern.split("/") if "=" in part]
    if len(set(columns)) < len(columns):
        return "has a column twice; write each name before = once"
    needed = ["%Y"] if period not in LENGTHS_S else ["%Y", "%m", "%d"]
    needed += ["%m"] if period == MONTH else []
    needed += ["%H"] if period == HOUR or period in MINUTES else []
    needed += ["%M"] if period in MINUTES else []
    if absent := [directive for directive in needed if directive not in pattern]:
        return f"does not have {absent[0]}, so two periods would have one directory; add it"
    if len(set(_DIRECTIVE.findall(pattern))) < len(_DIRECTIVE.findall(pattern)):
        return "has a directive twice; write each one once"
    return None


@lru_cache
def _expression(pattern: str) -> re.Pattern[str]:
    text = "".join(_DIRECTIVES.get(piece) or re.escape(piece) for piece in re.split("(%.)", pattern))
    return re.compile(text + "/")


def _next_start(period: str, start_s: int) -> int:
    if period in LENGTHS_S:
        return min(start_s + LENGTHS_S[period], _LAST_S)
    start = _EPOCH + timedelta(seconds=start_s)
    if start.year == _LAST_YEAR and (period != MONTH or start.month == 12):
        return _LAST_S
    later = start + timedelta(days=31 if period == MONTH else 366)
    first = later.replace(day=1) if period == MONTH else later.replace(month=1, day=1)
    return int((first - _EPOCH).total_seconds())


def _latest_ms(zone: str, wall_s: int) -> int:
    """Returns the last moment at which the clock of a zone shows a time."""
    if zone == UTC_ZONE:
        return wall_s * 1000
    shown = (_EPOCH + timedelta(seconds=wall_s)).replace(tzinfo=None)
    moments = [shown.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1)]
    try:
        return max(int((moment.astimezone(UTC) - _EPOCH).total_seconds()) for moment in moments) * 1000
    except OverflowError:  # at the ends of the calendar, as offset_s
        return wall_s * 1000
