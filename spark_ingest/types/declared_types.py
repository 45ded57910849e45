"""Types that payloads declare for their members, and what columns take of such values. Pure.

A schema may repeat its types without end, so a declared type has the bounds of an inferred one: a struct of more
members or leaves is JSON text. A type is null if it comes from the values, as of a map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from spark_ingest.types.json_types import LEAVES_MAX, NESTED_MEMBERS_MAX, TEXTS, Members, Type, columns, leaves_of
from spark_ingest.types.numbers import PRECISION, decimal_kind

_SCHEMAS_KEPT = 100

ValueT = TypeVar("ValueT")


def struct(members: Members) -> Type:
    """Returns the type of an object; null without any declared member, JSON text beyond the bounds."""
    if not columns(members):
        return "null"
    total = 0
    for _, kind in members:
        total += leaves_of(kind)
        if total > LEAVES_MAX or len(members) > NESTED_MEMBERS_MAX:
            return "json"
    return ["struct", members]


def array(element: Type) -> Type:
    return "null" if element == "null" else ["array", element]


def decimal(precision: object, scale: object) -> Type:
    """Returns the type of a decimal, JSON text if no column holds its digits."""
    is_held = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= PRECISION
    return decimal_kind(precision, scale) if is_held else "json"  # type: ignore[arg-type]


class OfSame(Generic[ValueT]):
    """Makes something of declared types once for each object: those of a schema are the same object for all values."""

    def __init__(self, make: Callable[[Members], ValueT]) -> None:
        self._make = make
        self._made: dict[int, tuple[Members, ValueT]] = {}

    def __call__(self, members: Members) -> ValueT:
        if id(members) not in self._made:
            if len(self._made) >= _SCHEMAS_KEPT:
                self._made.clear()
            self._made[id(members)] = members, self._make(members)  # the object is kept, so its id stays its own
        return self._made[id(members)][1]


def refused(published: Members, declared: Members) -> frozenset[str]:
    """Returns the members whose values have no place in their columns, though their JSON may look as if they had.

    A text may look like bytes, and one without a zone like a timestamp, so the types that the payload declares decide.
    """
    kinds = dict(declared)
    return frozenset(name for name, kind in published if _is_refused(kind, kinds.get(name, "null")))


def _is_refused(kind: Type, declared: Type) -> bool:
    if declared in ("null", kind):
        return False
    if isinstance(kind, str):
        return kind != "string" and kind in TEXTS
    inner = [["", kind[1]]] if kind[0] == "array" else kind[1]
    if isinstance(declared, str) or declared[0] != kind[0]:
        return any(_is_refused(member, "json") for _, member in inner)
    return bool(refused(inner, [["", declared[1]]] if kind[0] == "array" else declared[1]))
