"""Infers the types of JSON members, merges them and derives table columns. Pure; no Arrow, no I/O.

A type is a JSON value itself, because plans and commits carry it:

    "null" "boolean" "bigint" "double" "decimal" "string" "json" ["array", type] ["struct", [[name, type], ...]]

`json` is a value's JSON text; conflicting types become `json`. `decimal` is DECIMAL(38, 18): declared, a widened
bigint, or of numbers that no other type holds. Payloads also declare "decimal(P,S)" "date" "timestamp" "binary". Reads
by the data source also have "tinyint" "smallint" "int" "float", which no table has. Inferred types also have "long", a
bigint that no double holds; it is published as bigint. Members are pairs in the order of first occurrence.

Invariants: merging is commutative except for the order of members, and never narrows. A merged type has a bounded
size. A published type other than null only gains struct members, because files are never rewritten and Spark cannot
read a bigint as a double; a bigint may become a decimal.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from engine.format.compiled_batch import Member, MemberKind
from spark_ingest.types.numbers import (
    DECIMAL,
    INTEGER_MAX,
    are_rounded,
    common_decimal,
    decimal_kind,
    fits,
    is_decimal,
    is_double,
)
from spark_ingest.types.standard_columns import STANDARD_COLUMNS

Type = Any  # the grammar above; mypy knows no recursive alias that msgspec would take
Members = list[list[Any]]  # [[name, type], ...]

DEPTH_MAX = 6  # deeper values become JSON text: query engines handle deep types badly
NESTED_MEMBERS_MAX = 200  # an object with more members is probably a map
LEAVES_MAX = 1000  # of an object at all depths
TABLE_LEAVES_MAX = 5000  # of a table: each is a column of its own in a file
COLUMNS_MAX = 1000  # further members go to _extra
MEMBERS_MAX = 2 * COLUMNS_MAX  # of a schema; it forgets further members without a column
NAME_CHARS_MAX = 255  # of a column
_NOT_IN_A_NAME = re.compile('["\\\\\x00-\x1f]')  # msgspec cannot look up such a member
_INT64 = range(-(2**63), 2**63)
CUT_TIME = re.compile(rb":[0-9]{2}[.,][0-9]{6}0*[1-9]")  # a timestamp column has microseconds
TEXTS = frozenset(("string", "date", "timestamp", "binary"))  # types whose values are texts in JSON
CODEC_KINDS = {
    "boolean": MemberKind.BOOLEAN,
    "tinyint": MemberKind.BIGINT,
    "smallint": MemberKind.BIGINT,
    "int": MemberKind.BIGINT,
    "bigint": MemberKind.BIGINT,
    "long": MemberKind.BIGINT,
    "float": MemberKind.DOUBLE,
    "double": MemberKind.DOUBLE,
    "string": MemberKind.STRING,
    "null": MemberKind.NULL,
}
_BIGINTS = decimal_kind(19, 0)  # holds every bigint
RESERVED = frozenset((*STANDARD_COLUMNS, "dt", "hr"))


class NameRules(NamedTuple):
    """The names that published tables of a job can have: patterns of columns and of members of structs; None: any.

    With `has_paths`, a column `a.b` and a member `b` of a column `a` have one name.
    """

    column: re.Pattern[str] | None = None
    member: re.Pattern[str] | None = None
    has_paths: bool = False

    def can_have(self, name: str) -> bool:
        return self.column is None or bool(self.column.fullmatch(name))

    def can_hold(self, kind: Type) -> bool:
        """Returns whether all members within a type have names that the tables can have."""
        if self.member is None or isinstance(kind, str):
            return True
        if kind[0] == "array":
            return self.can_hold(kind[1])
        return all(self.member.fullmatch(name) and self.can_hold(column) for name, column in columns(kind[1]))

    def paths(self, name: str, kind: Type) -> set[str]:
        """Returns the names of a column and of the members within it, none without `has_paths`."""
        return set(_paths(name.lower(), kind)) if self.has_paths and kind != "null" else set()


def _paths(path: str, kind: Type) -> Iterator[str]:
    yield path
    if kind[0] == "array":  # with the name of the elements, and without
        yield from _paths(f"{path}.element", kind[1])
        yield from (() if isinstance(kind[1], str) else _paths(path, kind[1]))
    elif kind[0] == "struct":
        for name, column in columns(kind[1]):
            yield from _paths(f"{path}.{name.lower()}", column)


ANY_NAMES = NameRules()


def infer(value: object, depth: int = 0, declared: Type = "null") -> Type:
    """Returns the type of one decoded JSON value: the declared one if it holds the value exactly."""
    if isinstance(declared, str) and _is_held(value, declared):
        return declared
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "json" if value not in _INT64 else "bigint" if abs(value) <= INTEGER_MAX else "long"
        case float():
            return "double"
        case Decimal():  # of a number that no double holds
            return DECIMAL if fits(msgspec.Raw(str(value).encode())) else "json"
        case str():
            return "string"
        case list() if depth < DEPTH_MAX:
            inner = declared[1] if declared[0] == "array" else "null"
            return ["array", merge_all(infer(item, depth + 1, inner) for item in value)]
        case dict() if depth < DEPTH_MAX:
            declared_members = dict(declared[1]) if declared[0] == "struct" else {}
            return [
                "struct",
                [
                    [name, infer(member, depth + 1, declared_members.get(name, "null"))]
                    for name, member in value.items()
                ],
            ]
    return "json"


def _is_held(value: object, declared: str) -> bool:
    """Returns whether a declared type holds a value exactly, of the types that values alone do not give."""
    match value:
        case None:
            return False
        case str():
            is_cut = declared == "timestamp" and CUT_TIME.search(value.encode(errors="replace"))
            return declared in ("json", "date", "timestamp", "binary") and not is_cut
        case int() | float() | Decimal() if not isinstance(value, bool) and is_decimal(declared):
            return fits(msgspec.Raw(str(value).encode()), declared)
        case int() if declared == "double" and not isinstance(value, bool):
            return abs(value) <= INTEGER_MAX
    return declared == "json"


def infer_text(text: bytes, declared: Type = "null") -> Type:
    """Returns the type of one JSON text, also with numbers that msgspec rejects: 1e400, integers of any length.

    Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError for text that is not JSON or is nested too deeply.
    """
    try:
        return infer((_EXACT.decode if are_rounded([text]) else msgspec.json.decode)(text), 0, declared)
    except msgspec.ValidationError:  # valid JSON with a number that has no Python value in msgspec
        return infer(json.loads(text.decode(), parse_int=_whole_number, parse_float=_fraction), 0, declared)


def _fraction(text: str) -> float | Decimal:
    """Returns a number as a double if that holds it, or has no end as one: no column holds such a number."""
    return float(text) if is_double(text) or not isfinite(float(text)) else Decimal(text)


_EXACT = msgspec.json.Decoder(float_hook=_fraction)


def _whole_number(digits: str) -> int:
    """Returns an integer, or one out of range for any long text: int() rejects more than 4,300 digits."""
    return int(digits) if len(digits) < 20 else _INT64.stop


def can_be_column(name: str) -> bool:
    """True if a member of this name may have a column. Values of other members go to `_extra`."""
    return len(name) <= NAME_CHARS_MAX and is_decodable(name)


def is_decodable(name: str) -> bool:
    """True if msgspec can look up a member of this name."""
    return _NOT_IN_A_NAME.search(name) is None


def merge_all(types: Iterable[Type]) -> Type:
    merged: Type = "null"
    for kind in types:
        merged = merge(merged, kind)
    return merged


def merge(left: Type, right: Type) -> Type:
    """Returns the narrowest common type: null yields to any, a conflict becomes json.

    Bigints and doubles become doubles, but decimals if no double holds one of the bigints. Bytes, dates and times
    become text.
    """
    if left == right or right == "null":
        return left
    if left == "null":
        return right
    if isinstance(left, str) and isinstance(right, str):
        return _merge_scalars(left, right)
    if isinstance(left, list) and isinstance(right, list) and left[0] == right[0]:
        if left[0] == "array":
            return ["array", merge(left[1], right[1])]
        inner = merge_members(left[1], right[1])
        is_map = len(inner) > NESTED_MEMBERS_MAX or leaves(inner) > LEAVES_MAX  # its names have no end
        return "json" if is_map else ["struct", inner]
    return "json"


def _merge_scalars(left: str, right: str) -> Type:
    kinds = {left, right}
    if kinds <= TEXTS:
        return "string"
    if kinds == {"bigint", "long"}:
        return "long"
    if kinds == {"bigint", "double"}:
        return "double"
    if kinds == {"long", "double"}:
        return DECIMAL
    decimals = [{"bigint": _BIGINTS, "long": _BIGINTS, "double": DECIMAL}.get(kind, kind) for kind in (left, right)]
    return (all(map(is_decimal, decimals)) and common_decimal(*decimals)) or "json"


def leaves(members: Members) -> int:
    """Returns the number of leaf columns of members, those of null members among them."""
    return sum(leaves_of(kind) for _, kind in members)


def leaves_of(kind: Type) -> int:
    """Returns the number of leaf columns of one column, those of null members among them."""
    if isinstance(kind, str):
        return 1
    return leaves_of(kind[1]) if kind[0] == "array" else leaves(kind[1])


def merge_members(left: Members, right: Members) -> Members:
    merged: dict[str, Type] = dict(left)
    add_members(merged, right)
    return [[name, kind] for name, kind in merged.items()]


def add_members(members: dict[str, Type], more: Iterable[Sequence[Any]], limit: int | None = None) -> None:
    """Merges pairs of name and type into `members`; ignores new names beyond the limit."""
    for name, kind in more:
        if name in members:
            members[name] = merge(members[name], kind)
        elif limit is None or len(members) < limit:
            members[name] = kind


def evolve(
    published: Members,
    seen: Members,
    *,
    widens: bool = False,
    reserved: Iterable[str] = (),
    names: NameRules = ANY_NAMES,
) -> Members:
    """Returns the table's next members: the published ones, which only gain inner members, then new ones.

    A member of type null has no column; it may get one later. A member stays null, and its values go to `_extra`, in
    these cases: its values are only null, {} and []; its name is a standard column's or in `reserved`; its name differs
    from another column's only by case, which Spark ignores; the table would have more than TABLE_LEAVES_MAX leaves; the
    rules of published tables do not allow its name. An object with such names within is JSON text in a new column. A
    name that no column can have is left out, and so are null members beyond MEMBERS_MAX. With `widens`, a bigint with
    fractions in `seen` becomes a decimal.
    """
    taken = (
        {name.lower() for name, kind in published if kind != "null"} | RESERVED | {name.lower() for name in reserved}
    )
    before = dict(published)
    total = leaves(columns(published))
    paths = {path for name, kind in columns(published) for path in names.paths(name, kind)}
    members: Members = []
    for name, kind in merge_names(published, _with_columns(seen)):
        published_kind = before.get(name, "null")
        now = grow(published_kind, kind)
        if published_kind != "null" and total + leaves_of(now) - leaves_of(published_kind) > max(
            total, TABLE_LEAVES_MAX
        ):
            now = published_kind
        if not names.can_hold(now) and names.can_hold(published_kind):
            now = "json" if published_kind == "null" else published_kind
        if (names.paths(name, now) - names.paths(name, published_kind)) & paths:
            now = published_kind
        if widens and is_widened(now, kind):
            now = "decimal"
        if published_kind == "null" and now != "null":
            is_free = name and name.lower() not in taken and len(taken) < COLUMNS_MAX and names.can_have(name)
            now = now if is_free and total + leaves_of(now) <= TABLE_LEAVES_MAX else "null"
            taken.add(name.lower())
        if now != published_kind:
            paths |= names.paths(name, now)
        total += leaves(columns([["", now]])) - leaves(columns([["", published_kind]]))
        if now != "null" or len(members) < MEMBERS_MAX:
            members.append([name, now])
    return members


def is_widened(published: Type, seen: Type) -> bool:
    """True if a column of the published type can hold what was seen, or a part of it, once it is a decimal."""
    return bool(published == "bigint" and (seen in ("double", "json") or is_decimal(seen)))


def merge_names(published: Members, seen: Members) -> Members:
    """Returns every name once, published ones first, with the type seen for it."""
    names = dict(seen)
    return [[name, names.pop(name, "null")] for name, _ in published] + [[name, kind] for name, kind in names.items()]


def grow(published: Type, seen: Type) -> Type:
    """Extends a published type: null gets the seen type, a struct gets new members; others do not change."""
    if published == "null":
        return published_type(seen)
    if not (isinstance(published, list) and isinstance(seen, list) and published[0] == seen[0]):
        return published
    if published[0] == "array":
        return ["array", grow(published[1], seen[1])]
    before = dict(published[1])
    members = [
        [name, _published_within(kind) if before.get(name, "null") == "null" else grow(before[name], kind)]
        for name, kind in merge_names(published[1], _with_columns(seen[1]))
    ]
    return ["struct", members] if _is_storable(members) else published


def published_type(kind: Type) -> Type:
    """Returns the type to publish; null if only null, {} or [] were seen."""
    if isinstance(kind, str):
        return "bigint" if kind == "long" else kind
    if kind[0] == "array":
        return "null" if kind[1] == "null" else ["array", _published_within(kind[1])]
    members = [[name, _published_within(column)] for name, column in _with_columns(kind[1])]
    if not columns(members):
        return "null"
    return ["struct", members] if _is_storable(members) else "json"


def _published_within(kind: Type) -> Type:
    """Inside another type, {} and [] become JSON text, because a column cannot be added there later."""
    published = published_type(kind)
    return "json" if published == "null" and kind != "null" else published


def columns(members: Members) -> Members:
    """Returns the members with a column."""
    return [[name, kind] for name, kind in members if kind != "null"]


def fixed_bytes(members: Members) -> int:
    """Returns the bytes that the columns of a row take at least, also if all are null."""
    return sum(_fixed_bytes(kind) for _, kind in columns(members))


def _fixed_bytes(kind: Type) -> int:
    if kind[0] == "struct":
        return fixed_bytes(kind[1])
    return 16 if is_decimal(kind) else 8


def _with_columns(members: Members) -> Members:
    return [[name, kind] for name, kind in members if can_be_column(name)]


def _is_storable(members: Members) -> bool:
    names = [name.lower() for name, _ in columns(members)]
    return len(members) <= NESTED_MEMBERS_MAX and len(set(names)) == len(names) and all(names)


def described(members: Members) -> list[Member] | None:
    """Returns the members for the compiled codec, level by level; None for a type or a name that it does not read."""
    flat: list[Member] = []
    levels: deque[tuple[int, Members]] = deque([(-1, members)])
    while levels:
        parent, level = levels.popleft()
        if parent >= 0:
            flat[parent] = flat[parent]._replace(first=len(flat), length=len(level))
        for name, kind in level:
            is_struct = not isinstance(kind, str) and kind[0] == "struct"
            read_as = MemberKind.STRUCT if is_struct else CODEC_KINDS.get(kind) if isinstance(kind, str) else None
            if read_as is None or not is_decodable(name):
                return None
            if is_struct:
                levels.append((len(flat), kind[1]))
            flat.append(Member(name.encode(), read_as))
    return flat
