"""JSON numbers as decimals, exactly. Pure.

A bigint column whose values turn out to have fractions becomes DECIMAL(38, 18) in new files: 20 digits before the point
hold every bigint, so that Spark reads the BIGINT of older files as this type too. A double could not: Spark reads no
BIGINT file as DOUBLE.
"""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation

import msgspec

PRECISION, SCALE = 38, 18
DDL = f"DECIMAL({PRECISION},{SCALE})"
_EXACT = Context(prec=PRECISION, traps=[Inexact, InvalidOperation])
_UNIT = Decimal(1).scaleb(-SCALE)


def decimal_of(raw: msgspec.Raw | None) -> Decimal | None:
    """Returns the decimal of a JSON number; None for null or no value. Raises ValueError if it is not exactly one."""
    text = bytes(raw).decode("ascii", "replace") if raw else "null"
    if text == "null":
        return None
    if text[0] not in "-0123456789":
        raise ValueError(text)
    try:
        return _EXACT.quantize(Decimal(text), _UNIT)
    except ArithmeticError as error:
        raise ValueError(text) from error


def fits(raw: msgspec.Raw | None) -> bool:
    """True if `decimal_of` returns."""
    try:
        decimal_of(raw)
    except ValueError:
        return False
    return True
