"""A schema of a topic, ready to check values: the door to jsonschema-rs.

A value is JSON text. It is decoded as the msgspec type of its schema, and what the type leaves to check is checked by
jsonschema-rs, for many values at once. A value that does not pass is parsed and checked alone, exactly: that says what
is wrong. Formats are annotations, as the drafts have them; regular expressions match in linear time, so some are
refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import orjson

from engine.schemas.check_cost import STATES_MAX, UNITS_MAX, Numbers, cost_of, numbers_of
from engine.schemas.schema_text import DIALECTS, Schema, escape, read_schema, resolve, unusable
from engine.schemas.value_type import Typed, any_value, parts_of, type_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

CACHED_SCHEMAS_MAX = 256  # of a process; compiled they take about ten times their text
TOGETHER_UNITS_MAX = 500_000  # of values that are checked at once, about 10 ms
REQUEST_UNITS_MAX = 4 * UNITS_MAX  # of all values of a request that are not lines
CHUNK_BYTES = 32 * 1024  # of lines whose values are decoded and dropped at once
CHUNK_VALUES = 256
REGEX_BYTES_MAX = 1024 * 1024  # of a compiled expression: `(a{1000}){1000}` would take 40 MB
TEXT_MAX = 500  # of what is wrong: a schema may list thousands of names
_ROOT = "urn:penstock:schema"
_FLAT = frozenset((str, int, float, bool, type(None)))  # a value of these is one element, whatever is around it
_REFUSED = (msgspec.MsgspecError, RecursionError, ValueError)


class Violation(NamedTuple):
    """The first value that does not follow a schema. The pointer is into the value; the text has no part of it."""

    record: int
    pointer: str
    text: str


class ValueSchema:
    """Immutable; any thread may use it."""

    def __init__(self, text: str) -> None:
        """Raises InvalidConfig."""
        schema = read_schema(text)
        self.cost = cost_of(schema, schema)
        if self.cost.once + self.cost.each > UNITS_MAX:
            raise unusable("a value of a few bytes could be checked for seconds")
        if self.cost.states > STATES_MAX:
            raise unusable(f"its regular expressions have more than about {STATES_MAX} states: repeat fewer times")
        self._validator = _validator_of(schema)
        typed, self._decoder = _decoder_of(schema)
        self._has_doubles = typed.has_doubles
        self._rests = typed.rests
        self._names = [str(number) for number in range(len(typed.rests))]
        self._rest_validator = _validator_of(_rests_of(schema, typed)) if typed.rests else None
        costs = [cost_of(resolve(schema, rest.pointer)[1], schema) for rest in typed.rests]
        self._flat_units = [cost.once + cost.each for cost in costs]

    def __repr__(self) -> str:
        return f"ValueSchema(rests={len(self._rests)})"

    @property
    def is_typed(self) -> bool:
        """True if each value that decodes follows the schema."""
        return not self._rests

    def do_lines_follow(self, body: bytes, count: int, units_max: float = REQUEST_UNITS_MAX) -> bool:
        """Returns True if a body of `count` lines surely follows the schema. Each line must be one JSON value."""
        begin, total, units = 0, 0, 0.0
        try:
            while begin < len(body):
                end = body.find(b"\n", begin + CHUNK_BYTES) + 1 or len(body)
                lines = body[begin:end]
                numbers = self._numbers_of(lines)
                units += numbers.units
                if numbers.units > TOGETHER_UNITS_MAX or units > units_max:
                    return False
                _check_utf8(lines)
                decoded = self._decoder.decode_lines(lines)
                if self._rests:
                    units += self._check_rests(decoded, lines, numbers.factor)
                    if units > units_max:
                        return False
                total += len(decoded)
                begin = end
        except _REFUSED:
            return False
        return total == count

    def do_values_follow(
        self, values: Sequence[bytes | None], units_max: float = REQUEST_UNITS_MAX, *, is_null_allowed: bool
    ) -> bool:
        """Returns True if values surely follow the schema. None: a tombstone if that is allowed, or null."""
        units = 0.0
        for present in _chunks(values, is_null_allowed=is_null_allowed):
            chunk_units, doubtful = self._find_doubtful(present)
            units += chunk_units
            if doubtful or units > units_max:
                return False
        return True

    def find_violation(self, values: Sequence[bytes | None], *, is_null_allowed: bool) -> Violation | None:
        """Returns the first value that does not follow the schema. None: a tombstone if that is allowed, or null."""
        return next(self.violations(values, is_null_allowed=is_null_allowed), None)

    def violations(self, values: Sequence[bytes | None], *, is_null_allowed: bool) -> Iterator[Violation]:
        """Yields each value that does not follow the schema, or that is left when the time of a request is over."""
        units_left: float = REQUEST_UNITS_MAX
        for present in _chunks(values, is_null_allowed=is_null_allowed):
            units, doubtful = self._find_doubtful(present)
            units_left -= units
            for index in doubtful:
                units = self.cost.of(present[index])
                if units > UNITS_MAX:
                    yield Violation(index, "", "the value is too large: checking it by this schema takes too long")
                    continue
                units_left -= units
                if units_left < 0:
                    text = "the values before it take as long to check as those of a request may: send fewer at once"
                    yield Violation(index, "", text)
                elif violation := self._look(index, present[index]):
                    yield violation

    def _find_doubtful(self, values: dict[int, bytes]) -> tuple[float, list[int]]:
        """Returns the units of the rests, and which values may not follow: these do not decode, or a rest is wrong."""
        text = b"\n".join(values.values())
        units: float
        units, factor = self._numbers_of(text)
        if units > TOGETHER_UNITS_MAX:
            return 0, list(values)
        decode, is_ascii, decoded = self._decoder.decode, text.isascii(), {}
        for index, value in values.items():
            try:
                if not is_ascii:
                    _check_utf8(value)
                decoded[index] = decode(value)
            except _REFUSED:
                continue
        units += self._check_rests(list(decoded.values()), text, factor) if self._rests else 0
        if units == math.inf:
            return 0, list(values)
        return units, [index for index in values if index not in decoded]

    def _numbers_of(self, text: bytes) -> Numbers:
        """Returns what the numbers of a text take, as far as they are looked at."""
        if not (self._has_doubles or self._rests):
            return Numbers()
        numbers = numbers_of(text)
        return numbers if self._has_doubles else Numbers(0, numbers.factor)

    def _check_rests(self, decoded: list[Any], text: bytes, factor: int) -> float:
        """Returns how many units it took to check the rests; infinity if one may be wrong, or needs too many."""
        assert self._rest_validator is not None
        parts = [parts_of(decoded, rest.steps) for rest in self._rests]
        units = len(text) * self.cost.byte
        for weight, values in zip(self._flat_units, parts, strict=True):
            units += len(values) * weight if _FLAT.issuperset(map(type, values)) else math.inf
        units = self.cost.of(text, len(decoded)) if units == math.inf else units * factor
        try:
            do_follow = units <= TOGETHER_UNITS_MAX and self._rest_validator.is_valid(
                dict(zip(self._names, parts, strict=True))
            )
        except ValueError:  # a number or a text cannot be held exactly
            do_follow = False
        return units if do_follow else math.inf

    def _look(self, index: int, value: bytes) -> Violation | None:
        from jsonschema_rs import ValidationError

        try:
            parsed = orjson.loads(value)
        except (orjson.JSONDecodeError, RecursionError):
            return Violation(index, "", "the value is not JSON")
        try:
            self._validator.validate(parsed)
        except ValidationError as error:
            cause = _cause_of(error)
            return Violation(index, _pointer_of(cause), cause.message[:TEXT_MAX])
        except ValueError as error:  # it cannot be held exactly
            return Violation(index, "", str(error)[:TEXT_MAX])
        return None


def _check_utf8(text: bytes) -> None:
    """Raises UnicodeDecodeError. The decoder does not look into texts that no type names."""
    if not text.isascii():
        text.decode()


def _chunks(values: Sequence[bytes | None], *, is_null_allowed: bool) -> Iterator[dict[int, bytes]]:
    """Yields values by their index, but for tombstones."""
    for begin in range(0, len(values), CHUNK_VALUES):
        yield {
            index: b"null" if value is None else value
            for index, value in enumerate(values[begin : begin + CHUNK_VALUES], begin)
            if value is not None or not is_null_allowed
        }


@lru_cache(CACHED_SCHEMAS_MAX)
def value_schema(text: str) -> ValueSchema:
    """Returns the schema of a text, which is compiled once. Raises InvalidConfig."""
    return ValueSchema(text)


def _validator_of(schema: Schema) -> Validator:
    import jsonschema_rs  # here: it is 14 MB, and most nodes have no schema

    try:
        return jsonschema_rs.validator_cls_for(schema)(
            schema,
            validate_formats=False,
            offline=True,
            mask="the value",
            pattern_options=jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES_MAX, dfa_size_limit=REGEX_BYTES_MAX),
        )
    except jsonschema_rs.ValidationError as error:
        raise unusable(f"at {_pointer_of(error) or 'its top'}: {error.message}") from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise unusable(str(error)) from None


def _cause_of(error: ValidationError) -> ValidationError:
    """Returns what is wrong within the alternative that the value comes closest to: the one that fails deepest."""
    while branches := getattr(error.kind, "context", None):
        deepest = max((cause for branch in branches for cause in branch), key=_depth_of, default=error)
        if _depth_of(deepest) <= _depth_of(error):
            break
        error = deepest
    return error


def _depth_of(error: ValidationError) -> int:
    return len(error.instance_path)


def _pointer_of(error: ValidationError) -> str:
    return "".join(f"/{escape(str(step))}" for step in error.instance_path)


def _decoder_of(schema: Schema) -> tuple[Typed, msgspec.json.Decoder[Any]]:
    try:
        typed = type_of(schema)
        return typed, msgspec.json.Decoder(typed.kind, float_hook=float)
    except (TypeError, ValueError):  # msgspec refuses some unions, and bounds beyond 64 bits
        return any_value(), msgspec.json.Decoder(float_hook=float)  # which reads large doubles in time


def _rests_of(schema: Schema, typed: Typed) -> Schema:
    """Returns the schema of an object with the values of each rest. References stay within the topic's schema."""
    if isinstance(schema, bool):
        return {"additionalProperties": {"items": schema}}
    lists = {str(number): {"items": {"$ref": _ROOT + rest.pointer}} for number, rest in enumerate(typed.rests)}
    definitions = {"root": {**schema, "$id": _ROOT}}
    return {"$schema": schema.get("$schema", DIALECTS[0]), "definitions": definitions, "properties": lists}
