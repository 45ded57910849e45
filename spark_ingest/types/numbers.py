"""JSON numbers as decimals and doubles, exactly. Pure.

A bigint column whose values turn out to have fractions becomes DECIMAL(38, 18) in new files: 20 digits before the point
hold every bigint, so that Spark reads the BIGINT of older files as this type too. A double could not: Spark reads no
BIGINT file as DOUBLE.

A double holds an integer if it is that integer, and another number if the double, written with as many significant
digits, is that number again: 0.1, and also 0.30000000000000004. It does not hold 9007199254740993, nor
1234567890123456.789. It holds every number of up to 15 digits that is not near the least double, so a search for
longer ones is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from math import isfinite

import msgspec

from engine.format.compiled_batch import has_held_numbers

PRECISION, SCALE = 38, 18
DECIMAL = "decimal"  # a type without precision and scale has those of above
INTEGER_MAX = 2**53  # a double holds every integer up to this
_DIGITS_MAX = 767  # no double has more significant digits
_MARKS = bytes(ord("0" if chr(code) in "0123456789." else "e" if chr(code) in "eE" else " ") for code in range(256))
_LONG_RUNS = (b"0" * 17, b"0" * 16 + b"e")  # 16 digits with a point, or before an exponent
_FAR = re.compile(rb"[eE]-0*(?:29[0-9]|[3-9][0-9]{2}|[1-9][0-9]{3})")  # near the least double, they have fewer digits
_SUSPECT = re.compile(
    rb"(?<=[:\[,\s])-?((?=[0-9.]{16})[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"
    rb"|[0-9]+(?:\.[0-9]+)?[eE]-[0-9]{3,})(?=[,\]}\s])"
)
_LONG = re.compile(rb"[0-9.]{16}|[eE][+-]?[0-9]{3}")


def is_decimal(kind: object) -> bool:
    return isinstance(kind, str) and kind.startswith(DECIMAL)


def decimal_kind(precision: int, scale: int) -> str:
    return DECIMAL if (precision, scale) == (PRECISION, SCALE) else f"{DECIMAL}({precision},{scale})"


@lru_cache(1000)
def precision_of(kind: str) -> tuple[int, int]:
    """Returns the precision and the scale of a decimal type."""
    if kind == DECIMAL:
        return PRECISION, SCALE
    precision, scale = kind.removeprefix(f"{DECIMAL}(").removesuffix(")").split(",")
    return int(precision), int(scale)


def common_decimal(left: str, right: str) -> str | None:
    """Returns the decimal type that holds the values of both; None if there is none."""
    (digits, scale), (other, other_scale) = precision_of(left), precision_of(right)
    most = max(scale, other_scale)
    precision = most + max(digits - scale, other - other_scale)
    return decimal_kind(precision, most) if precision <= PRECISION else None


def decimal_of(raw: msgspec.Raw | None, kind: str = DECIMAL) -> Decimal | None:
    """Returns the decimal of a JSON number; None for null or no value. Raises ValueError if it is not exactly one."""
    text = bytes(raw).decode("ascii", "replace") if raw else "null"
    if text == "null":
        return None
    if text[0] not in "-0123456789":
        raise ValueError(text)
    context, unit = _rules(kind)
    try:
        return context.quantize(Decimal(text), unit)
    except ArithmeticError as error:
        raise ValueError(text) from error


@lru_cache(1000)
def _rules(kind: str) -> tuple[Context, Decimal]:
    precision, scale = precision_of(kind)
    return Context(prec=precision, traps=[Inexact, InvalidOperation]), Decimal(1).scaleb(-scale)


def fits(raw: msgspec.Raw | None, kind: str = DECIMAL) -> bool:
    """True if `decimal_of` returns."""
    try:
        decimal_of(raw, kind)
    except ValueError:
        return False
    return True


def are_rounded(texts: Iterable[bytes | None]) -> bool:
    """Returns whether a double does not hold a number with a point or an exponent in these texts.

    The number may also be part of a text in quotes. Types check what is beyond the largest double.
    """
    if has_held_numbers(texts if isinstance(texts, list) else list(texts)):
        return False
    whole = b" %b " % b" ".join([text for text in texts if text is not None])
    marks = whole.translate(_MARKS)
    is_far = (b"e-" in whole or b"E-" in whole) and _FAR.search(whole)
    if not is_far and not any(run in marks for run in _LONG_RUNS):
        return False
    return any(not is_double(match[1].decode()) for match in _SUSPECT.finditer(whole))


def has_long_number(text: bytes) -> bool:
    """False if a double holds every number of a text, also each integer."""
    return _LONG.search(text) is not None


def is_double(text: str) -> bool:
    """Returns whether a double holds the number of a JSON text, as the head of this file has it."""
    if repr(float(text)) == text:
        return True
    value, exact = float(text), Decimal(text)
    if not isfinite(value):
        return False
    if text.lstrip("-").isdecimal():
        return Decimal(value) == exact
    digits = len("".join(map(str, exact.as_tuple().digits)).rstrip("0")) or 1
    return digits <= _DIGITS_MAX and Decimal(f"{value:.{digits - 1}e}") == exact
