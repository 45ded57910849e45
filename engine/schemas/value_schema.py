"""A schema of a topic, ready to check values: the door to jsonschema-rs.

A value is JSON text. Where the schema has a type of msgspec, a value that decodes as it is right, and costs no more
than being parsed. All others are parsed into objects and checked by jsonschema-rs, which alone says what is wrong.
Formats are annotations, as the drafts have them; regular expressions match in linear time, so some are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import orjson

from engine.schemas.check_cost import STATES_MAX, UNITS_MAX, cost_of
from engine.schemas.schema_text import Schema, escape, read_schema, unusable
from engine.schemas.value_type import NoType, type_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

CACHED_SCHEMAS_MAX = 256  # of a process; compiled they take about ten times their text
LINES_UNITS_MAX = 500_000  # of a chunk that is checked at once, about 10 ms
CHUNK_BYTES = 64 * 1024  # of lines whose values are decoded and dropped at once
REGEX_BYTES_MAX = 1024 * 1024  # of a compiled expression: `(a{1000}){1000}` would take 40 MB
TEXT_MAX = 500  # of what is wrong: a schema may list thousands of names


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
        self.cost = cost_of(schema)
        if self.cost.once + self.cost.each > UNITS_MAX:
            raise unusable("a value of a few bytes could be checked for seconds")
        if self.cost.states > STATES_MAX:
            raise unusable(f"its regular expressions have more than about {STATES_MAX} states: repeat fewer times")
        self._light_bytes = UNITS_MAX / (8 * (self.cost.once + self.cost.each + self.cost.byte))  # of any value
        self._validator = _validator_of(schema)
        self._decoder = _decoder_of(schema)

    def __repr__(self) -> str:
        return f"ValueSchema(typed={self.is_typed})"

    @property
    def is_typed(self) -> bool:
        """True if most values need no object for each member."""
        return self._decoder is not None

    def do_lines_follow(self, body: bytes, count: int) -> bool:
        """Returns True if a body of `count` lines surely follows the schema. Each line must be one JSON value."""
        begin, total = 0, 0
        try:
            while begin < len(body):
                end = body.find(b"\n", begin + CHUNK_BYTES) + 1 or len(body)
                total += self._count_following(body[begin:end])
                begin = end
        except (msgspec.MsgspecError, orjson.JSONDecodeError, RecursionError, ValueError):
            return False
        return total == count

    def _count_following(self, lines: bytes) -> int:
        """Returns how many lines of a chunk follow; it may stop at one that does not. Raises as the parsers do."""
        if self._decoder is not None:
            return len(self._decoder.decode_lines(lines))
        if self.cost.of(lines, lines.count(b"\n") + 1) > LINES_UNITS_MAX:
            return 0
        values = orjson.loads(b"[%s]" % lines.strip().replace(b"\n", b","))
        return sum(map(self._validator.is_valid, values))

    def find_violation(self, values: Sequence[bytes | None], *, is_null_allowed: bool) -> Violation | None:
        """Returns the first value that does not follow the schema. None: a tombstone if that is allowed, or null."""
        decode = None if self._decoder is None else self._decoder.decode
        for index, value in enumerate(values):
            if value is None:
                if is_null_allowed:
                    continue
                value = b"null"
            if decode is not None:
                try:
                    decode(value)
                    continue
                except (msgspec.MsgspecError, RecursionError, ValueError):
                    pass
            violation = self._look(index, value)
            if violation is not None:
                return violation
        return None

    def _look(self, index: int, value: bytes) -> Violation | None:
        from jsonschema_rs import ValidationError

        if len(value) > self._light_bytes and self.cost.of(value) > UNITS_MAX:
            return Violation(index, "", "the value is too large: checking it by this schema takes too long")
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


def _decoder_of(schema: Schema) -> msgspec.json.Decoder[Any] | None:
    try:
        return msgspec.json.Decoder(type_of(schema))
    except (NoType, TypeError, ValueError):  # msgspec refuses some unions, and bounds beyond 64 bits
        return None
