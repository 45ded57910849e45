"""Parses durations and sizes as people write them: `7d`, `1.5h`, `64MiB`. Pure.

Settings hold whole numbers of milliseconds and bytes, with the unit in their names: `retention_ms`, `segment_bytes`. If
the value has a unit, the name may omit it: `retention=7d` is `retention_ms`, `retention=50GiB` is `retention_bytes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Kind = Literal["ms", "bytes"]

_SECOND_MS = 1000
_DURATIONS_MS = {
    "ms": 1,
    "s": _SECOND_MS,
    "m": 60 * _SECOND_MS,
    "min": 60 * _SECOND_MS,
    "h": 3600 * _SECOND_MS,
    "d": 86_400 * _SECOND_MS,
    "w": 7 * 86_400 * _SECOND_MS,
}
_SIZES = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)},
}
_QUANTITY = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,6})?) ?([A-Za-z]{1,3})")
_DISPLAY_UNITS: dict[Kind, tuple[str, ...]] = {
    "ms": ("d", "h", "min", "s"),
    "bytes": ("PiB", "TiB", "GiB", "MiB", "KiB"),
}
MEANING = {"ms": "a duration such as 90s, 12h or 7d", "bytes": "a size such as 512KiB or 64MiB"}


class Quantity(NamedTuple):
    """Holds a whole number of milliseconds or of bytes."""

    amount: int
    kind: Kind


def parse_quantity(text: str) -> Quantity | None:
    """Parses a number with a unit; None for any other text.

    Units of sizes ignore case, those of durations do not: `64M` could mean both. Raises ValueError for a fraction of a
    millisecond or of a byte.
    """
    match = _QUANTITY.fullmatch(text)
    unit = "" if match is None else match[2]
    factor = _DURATIONS_MS.get(unit) or _SIZES.get(unit.lower())
    if match is None or factor is None:
        return None
    kind: Kind = "ms" if unit in _DURATIONS_MS else "bytes"
    whole, _, fraction = match[1].partition(".")
    amount, rest = divmod(int(whole + fraction) * factor, 10 ** len(fraction))
    if rest:
        raise ValueError(f"{text} is not a whole number of {'milliseconds' if kind == 'ms' else 'bytes'}")
    return Quantity(amount, kind)


def time_before(text: str, now_ms: int) -> int | None:
    """Returns the time, in ms since 1970, that lies a duration such as `1h` before now; None for any other text.

    Raises ValueError for a fraction of a millisecond.
    """
    age = parse_quantity(text)
    return now_ms - age.amount if age is not None and age.kind == "ms" else None


def kind_of(name: str) -> Kind | None:
    """Returns the unit in the name of a setting, or None."""
    parts = name.split("_")
    return "ms" if "ms" in parts else "bytes" if "bytes" in parts else None


def with_units(given: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """Returns settings with quantities as numbers, under their full names; `names` are those of all settings.

    A text that is not a quantity is unchanged. Raises ValueError if a unit does not fit its setting, or if a name
    without its unit has a value without one.
    """
    full_names = frozenset(names)
    resolved: dict[str, object] = {}
    for name, value in given.items():
        full, plain = _resolve(name, value, full_names)
        if full in resolved or (full != name and full in given):
            raise ValueError(f"{full} is given twice")
        resolved[full] = plain
    return resolved


def _resolve(name: str, value: object, full_names: frozenset[str]) -> tuple[str, object]:
    quantity = parse_quantity(value) if isinstance(value, str) else None
    if quantity is None:
        units: tuple[Kind, ...] = ("ms", "bytes")
        kinds = [unit for unit in units if any(_short(full_name, unit) == name for full_name in full_names)]
        if kinds and name not in full_names:
            raise ValueError(f"{name} is {value!r}; give {' or '.join(MEANING[kind] for kind in kinds)}")
        return name, value
    if name not in full_names:
        (name,) = [full_name for full_name in full_names if _short(full_name, quantity.kind) == name] or [name]
    kind = kind_of(name)
    if name in full_names and kind is None:
        return name, value
    if kind is not None and kind != quantity.kind:
        raise ValueError(f"{name} is {MEANING[kind]}, not {value}")
    return name, quantity.amount


def _short(name: str, kind: Kind) -> str | None:
    """Returns the name without its unit, or None if it does not have this unit."""
    parts = name.split("_")
    return "_".join(part for part in parts if part != kind) if kind in parts else None


def format_quantity(name: str, value: int) -> str:
    """Returns the value in the largest unit that divides it, such as `64MiB` or `7d`, or as a plain number."""
    kind = kind_of(name)
    for unit in _DISPLAY_UNITS[kind] if kind and value else ():
        factor = _DURATIONS_MS[unit] if kind == "ms" else _SIZES[unit.lower()]
        if value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)
