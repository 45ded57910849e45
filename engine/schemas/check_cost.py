"""Bounds how long one value may be checked: the validator holds the process until it is done with a value.

The estimate is made of the schema once, and of counts of a value that need no parsing. A unit is about 20 ns. Integers
and doubles are compared exactly, so a number costs more than a text, most of all beside an exponent or many digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import penstock_codec
from engine.schemas.schema_text import Schema, resolve

UNITS_MAX = 50_000_000  # of one value: about 1 s at worst, and most take a tenth
_NUMBER, _BOUND, _ITEM = 64, 8, 16
_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
_CLASS_STATES = 50  # of a class of Unicode, such as \p{L}
STATES_MAX = 20_000  # of a schema; compiled they take about 25 MB
_STATES_OF_UNIT, _QUICK_STATES = 10, 16  # of a regular expression, for each byte
EXACT_FACTOR = 8
_LARGE = re.compile(rb"[0-9][Ee](?=\+?[0-9][0-9])")
_EXACT = re.compile(rb"[0-9][Ee]|[0-9]{17}")
_LARGE_UNITS = 1500  # msgspec reads a double of more than about 1e22 in 30 us
_REPEATS = re.compile(r"\{(\d+)?,?(\d+)?\}")
_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE_NAMED = ("dependentSchemas", "dependencies")
_EACH = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "unevaluatedItems",
         "unevaluatedProperties")  # fmt: skip


class Cost(NamedTuple):
    """Units of a value: once, for each member and item, and for each byte; and states of all regular expressions."""

    once: float = 0
    each: float = 0
    byte: float = 0
    states: int = 0

    def beside(self, other: Cost) -> Cost:
        """Returns the cost of both, for the same value."""
        once, each, byte, states = other
        return Cost(self.once + once, self.each + each, self.byte + byte, self.states + states)

    def of(self, text: bytes | bytearray, values: int | None = 1, enough: float = 0) -> float:
        """Returns the units of a text with so many values, at most; None: each of its elements may be a value.

        Where they are surely fewer than `enough`, it does not look for exact numbers.
        """
        elements = 1 + text.count(b",") + text.count(b"[") + text.count(b"{") + text.count(b"\n")
        units = self.once * (elements if values is None else values) + self.each * elements + self.byte * len(text)
        return units * numbers_of(bytes(text)).factor if units * EXACT_FACTOR >= enough else units

    def of_size(self, size_bytes: int) -> float:
        """Returns the units of this number of bytes of unknown values, at most but for exact numbers."""
        return (self.once + self.each) * (size_bytes // 2 + 1) + self.byte * size_bytes

    def bytes_of(self, units: int) -> int:
        """Returns the size that takes so many units."""
        return min(units, int(units / max(1, (self.once + self.each) / 2 + self.byte)))


def cost_of(schema: Any, root: Schema) -> Cost:
    """Returns the cost of a subschema of a schema that `read_schema` has returned."""
    if not isinstance(schema, dict):
        return Cost(1)
    in_place = [schema[word] for word in _IN_PLACE if word in schema]
    in_place += [item for word in _IN_PLACE_LISTS for item in _list(schema, word)]
    in_place += [item for word in _IN_PLACE_NAMED for item in _members(schema, word).values()]
    if "$ref" in schema:
        in_place.append(resolve(root, schema["$ref"])[1])
    cost = _sum_of(cost_of(item, root) for item in in_place)
    if "unevaluatedItems" in schema or "unevaluatedProperties" in schema:  # they ask the others again
        cost = Cost(4 * cost.once, 4 * cost.each + cost.once, 4 * cost.byte, cost.states)
    cost = cost.beside(_own_cost(schema))
    named = [*_members(schema, "properties").values(), *_list(schema, "prefixItems"), *_list(schema, "items")]
    for child in (cost_of(item, root) for item in named):  # each is of another part of the value
        each, byte = max(cost.each, child.each), max(cost.byte, child.byte)
        cost = Cost(cost.once + child.once, each, byte, cost.states + child.states)
    repeated = [schema[word] for word in _EACH if word in schema and not isinstance(schema[word], list)]
    for child in (cost_of(item, root) for item in (*repeated, *_members(schema, "patternProperties").values())):
        cost = cost.beside(Cost(0, child.once + child.each, child.byte, child.states))
    return cost


def _sum_of(costs: Iterable[Cost]) -> Cost:
    total = Cost()
    for cost in costs:
        total = total.beside(cost)
    return total


def _own_cost(schema: dict[str, Any]) -> Cost:
    once = (
        1.0
        + len(schema)
        + len(_list(schema, "required"))
        + sum(_bound_cost(schema[word]) for word in _BOUNDS & schema.keys())
    )
    dependent = _members(schema, "dependentRequired")
    once += sum(len(_list(dependent, name)) for name in dependent)
    once += _literal_cost(schema.get("enum", [])) + _literal_cost(schema.get("const"))
    once += _NUMBER * ("multipleOf" in schema)
    patterns = [*_members(schema, "patternProperties"), *([str(schema["pattern"])] if "pattern" in schema else ())]
    each = 2 * len(patterns) + _ITEM * ("uniqueItems" in schema)
    states = list(map(_states_of, patterns))
    byte = sum(0.1 + max(0, of_pattern - _QUICK_STATES) / _STATES_OF_UNIT for of_pattern in states)
    sizes = [_CLASS_STATES if "\\p" in pattern.lower() else 1 for pattern in patterns]
    compiled = sum(size * count for size, count in zip(sizes, states, strict=True))
    return Cost(once, each, byte, compiled)


class Numbers(NamedTuple):
    """Units that it takes to decode the numbers of a text, and how many times as long as others they take to check."""

    units: int = 0
    factor: int = 1


def numbers_of(text: bytes) -> Numbers:
    """Returns what the numbers of a text may take: large doubles are slow to read, exact ones to compare."""
    native = penstock_codec.native
    large, has_exact = number_shapes_plainly(text) if native is None else native.number_shapes(text)
    return Numbers(_LARGE_UNITS * large, EXACT_FACTOR if has_exact else 1)


def number_shapes_plainly(text: bytes) -> tuple[int, bool]:
    """Returns how many numbers have a large exponent, and whether one is compared exactly. The twin of the codec's."""
    return len(_LARGE.findall(text)), _EXACT.search(text) is not None


def _bound_cost(bound: Any) -> int:
    return _BOUND if type(bound) is int and abs(bound) < 2**53 else _NUMBER


def _list(schema: dict[str, Any], word: str) -> list[Any]:
    """Returns the list of a keyword; none if it has another meaning in the draft of the schema."""
    found = schema.get(word)
    return found if isinstance(found, list) else []


def _members(schema: dict[str, Any], word: str) -> dict[str, Any]:
    found = schema.get(word)
    return found if isinstance(found, dict) else {}


def _literal_cost(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_literal_cost, value))
    if isinstance(value, dict):
        return 1 + sum(map(_literal_cost, value.values()))
    return _NUMBER if type(value) in (int, float) else 1


def _states_of(pattern: str) -> int:
    """Returns about how many states a regular expression has: repetitions count as often as they may."""
    counts = [max(int(most or 0), int(least or 0)) for least, most in _REPEATS.findall(pattern)]
    is_nested = "){" in pattern
    return len(pattern) // 4 + (math.prod(max(count, 1) for count in counts) if is_nested else sum(counts))
