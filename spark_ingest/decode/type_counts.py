"""Counts the types of the values of members in a sample, and chooses a column's type from the counts. Pure.

    1 All values have one type, or numbers that one type holds exactly: that type.
    2 Values of other types are fewer than the limit: the type of the others. They go to `_extra`, and are counted.
    3 Numbers that neither bigint nor double holds: decimal. It holds both exactly, so that no sum misses a value.
    4 Texts of several declared types: string.
    5 Else JSON text.
The limit is that of misfits, so that a run commits what its plan chose. Elements of arrays are not counted: one of
another type would send the whole array to `_extra`, so they become JSON text.

Invariant: the counts are the same with the compiled codec, which reads whole blocks with the types of the blocks before
(`settle`). It reads integers in a column of doubles, so both count the numbers of such a block as `number`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spark_ingest.types.json_types import (
    LEAVES_MAX,
    NESTED_MEMBERS_MAX,
    TEXTS,
    Members,
    Type,
    leaves,
    merge,
    merge_all,
    merge_members,
)
from spark_ingest.types.numbers import DECIMAL, is_decimal

_NUMBER = "number"  # an integer or a fraction that a double holds
_POOLED = {"double": {"bigint": _NUMBER, "double": _NUMBER}, "long": {"bigint": "long"}}
_INTEGERS, _NUMBERS = ("bigint", "long"), ("bigint", "long", "double", _NUMBER, DECIMAL)
MINORITY_MAX_PERCENT = 50.0


class Mixed(NamedTuple):
    """A column whose values have several types: its type, all values, and those that are not of the majority's type.

    `path` has the names of a member, from the first level on. `place` is that of one such value.
    """

    path: tuple[str, ...]
    kind: Type
    values: int
    others: int
    other_kinds: tuple[str, ...]
    place: object


class TypeCounts:
    """The types of the values of one member, and of its members."""

    __slots__ = ("_counts", "_elements", "_first", "_is_map", "_is_settled", "_members", "_settled")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, object] = {}
        self._settled: Type = "null"
        self._elements: Type = "null"
        self._members: dict[str, TypeCounts] = {}
        self._is_map = False
        self._is_settled = True

    def add(self, kind: Type, origin: object) -> None:
        """Counts a value by its inferred type."""
        if kind == "null":
            return
        name = kind if isinstance(kind, str) else kind[0]
        if isinstance(self._settled, str) and self._settled in _POOLED:
            name = _POOLED[self._settled].get(name, name)
        self._counts[name] += 1
        self._is_settled = False
        self._first.setdefault(name, origin)
        if name == "array":
            self._elements = merge(self._elements, kind[1])
        elif name == "struct" and not self._is_map:
            for inner, member in kind[1]:
                self.member(inner).add(member, origin)

    def add_known(self, count: int) -> None:
        """Counts values of the type that `settle` returned; members of structs count by themselves."""
        kind = self._settled if isinstance(self._settled, str) else self._settled[0]
        if count:
            self._counts[_POOLED.get(kind, {}).get(kind, kind)] += count

    def member(self, name: str) -> TypeCounts:
        return self._members.setdefault(name, TypeCounts())

    def settle(self) -> Type:
        """Returns the type that holds all values so far, after a block."""
        if self._is_settled:
            return self._settled
        self._is_settled = True
        if self._counts["struct"] and not self._is_map:
            inner: Members = [[name, member.settle()] for name, member in self._members.items()]
            self._is_map = len(inner) > NESTED_MEMBERS_MAX or leaves(inner) > LEAVES_MAX  # its names have no end
            if self._is_map:
                self._members.clear()
        self._settled = merge_all(self._type_of(name) for name, count in self._counts.items() if count)
        return self._settled

    def _type_of(self, name: str) -> Type:
        if name == "array":
            return ["array", self._elements]
        if name == "struct":
            return (
                "json"
                if self._is_map
                else ["struct", [[name, member._settled] for name, member in self._members.items()]]
            )
        return "double" if name == _NUMBER else name

    def chosen(self, path: tuple[str, ...], limit_percent: float, mixed: list[Mixed]) -> Type:
        """Returns the type of the column, and adds it and its members to `mixed` if their values have several types."""
        counts = {name: count for name, count in self._counts.items() if count}
        total = sum(counts.values())
        if not total:
            return "null"
        numbers = {name: count for name, count in counts.items() if name in _NUMBERS or is_decimal(name)}
        groups = [[name] for name in counts if name not in numbers] + ([list(numbers)] if numbers else [])
        best = max(groups, key=lambda group: sum(counts[name] for name in group))
        others = {name: count for name, count in counts.items() if name not in best}
        kind: Type
        if others and (best == ["json"] or not _is_minority(sum(others.values()), total, limit_percent)):
            kind = "string" if counts.keys() <= TEXTS else "json"
            mixed.append(self._mixed(path, kind, others))
            return kind
        if best == ["struct"] and not self._is_map:
            inner = [
                [name, member.chosen((*path, name), limit_percent, mixed)] for name, member in self._members.items()
            ]
            kind = ["struct", inner] if leaves(inner) <= LEAVES_MAX else "json"
        elif numbers and best[0] in numbers:
            kind, odd = _number_type(numbers, limit_percent)
            others |= odd
        else:
            kind = self._type_of(best[0])
        if others:
            mixed.append(self._mixed(path, kind, others))
        return kind

    def _mixed(self, path: tuple[str, ...], kind: Type, others: dict[str, int]) -> Mixed:
        origin = next((self._first[name] for name in others if name in self._first), None)
        total = self._counts.total() - (self._counts[_NUMBER] if set(others) == {"double"} else 0)
        return Mixed(path, kind, total, sum(others.values()), tuple(sorted(others)), origin)


def _number_type(counts: dict[str, int], limit_percent: float) -> tuple[Type, dict[str, int]]:
    """Returns the type of numbers, and the counts of those that it does not hold or that changed it."""
    total = sum(counts.values())
    if any(is_decimal(name) and name != DECIMAL for name in counts):
        most = max(counts, key=lambda name: counts[name])
        kind = merge_all("double" if name == _NUMBER else name for name in counts)
        return kind, {name: count for name, count in counts.items() if kind == "json" and name != most}
    no_integers = {name: count for name, count in counts.items() if name not in _INTEGERS}
    no_doubles = {name: count for name, count in counts.items() if name in ("long", DECIMAL)}
    if not no_integers:
        return merge_all(counts), {}
    if not no_doubles:
        distinct = counts.get("double", 0) + counts.get("bigint", 0)
        is_odd = "bigint" in counts and _is_minority(counts.get("double", 0), distinct, limit_percent)
        return "double", {"double": counts["double"]} if is_odd else {}
    few, kind = min((no_doubles, "double"), (no_integers, "bigint"), key=lambda choice: sum(choice[0].values()))
    if _is_minority(sum(few.values()), total, limit_percent):
        return kind, few
    return DECIMAL, few if len(counts) > 1 else {}


def _is_minority(count: int, total: int, limit_percent: float) -> bool:
    return count * 100 < min(limit_percent, MINORITY_MAX_PERCENT) * total


def seen_members(published: Members, sampled: Members, last: Members) -> Members:
    """Returns the types of the sample, and of members that only the last commit has seen.

    A fraction of the last commit widens a published bigint, if the job wants that.
    """
    bigints, merged = {name for name, kind in published if kind == "bigint"}, dict(merge_members(sampled, last))
    return [[name, merged[name] if name in bigints else kind] for name, kind in prefer_members(sampled, last)]


def prefer(sampled: Type, seen: Type) -> Type:
    """Returns the sampled type with the members of `seen`, which does not change it otherwise."""
    if sampled == "null":
        return seen
    if isinstance(sampled, str) or isinstance(seen, str) or sampled[0] != seen[0]:
        return sampled
    if sampled[0] == "array":
        return ["array", prefer(sampled[1], seen[1])]
    return ["struct", prefer_members(sampled[1], seen[1])]


def prefer_members(sampled: Members, seen: Members) -> Members:
    others = dict(seen)
    members = [[name, prefer(kind, others.pop(name, "null"))] for name, kind in sampled]
    return [*members, *([name, kind] for name, kind in others.items())]


def flattened(counts: dict[str, TypeCounts], members: Members) -> Iterator[TypeCounts]:
    """Yields the counts of members level by level, as `described` of json_types.py has them."""
    levels: deque[tuple[dict[str, TypeCounts], Members]] = deque([(counts, members)])
    while levels:
        by_name, level = levels.popleft()
        for name, kind in level:
            yield by_name[name]
            if not isinstance(kind, str):
                levels.append((by_name[name]._members, kind[1]))


def is_new(path: Sequence[str], before: Members, after: Members) -> bool:
    """Returns whether a member has a column that it did not have before."""
    return bool(kind_at(before, path) == "null" != kind_at(after, path))


def kind_at(members: Members, path: Sequence[str]) -> Type:
    """Returns the type of a member, null without one."""
    kind: Type = dict(members).get(path[0], "null")
    if len(path) == 1 or kind == "null":
        return kind
    return kind_at(kind[1], path[1:]) if kind[0] == "struct" else kind
