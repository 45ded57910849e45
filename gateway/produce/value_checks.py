"""Checks values against the schema of their topic, whichever form they came in. A problem has no part of a value.

The schema is the topic's own JSON Schema, or the one of a registry whose id a value begins with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from engine.encodings.framed_values import FramedValues
from engine.encodings.registry import schema_id_of
from engine.schemas.value_schema import REQUEST_UNITS_MAX, Violation, value_schema
from engine.topic_settings import TopicSettings
from gateway.http.offload import OFF_LOOP_BYTES, TIMED_BYTES
from gateway.http.problems import Problem
from gateway.registry.registered_schemas import RegisteredSchemas, SchemaText

T = TypeVar("T")

FRAMED_QUICK_BYTES = 64 * 1024  # of values of a registry: parsing them takes about 2 ms
IDS_AT_ONCE_MAX = 16  # of those that are asked for
FETCHES_MAX = 3  # of one request: a producer has a few schemas
ANY_SUBJECT = "*"


class TakesLong(Exception):
    """Values may not follow their schema, and to see it exactly may take longer than a loop has."""


class NeedsSchemas(TakesLong):
    """Values name schemas that this process does not know yet, or come with some that are not registered."""

    def __init__(self, schema_ids: Sequence[int], texts: Sequence[SchemaText] = ()) -> None:
        super().__init__(schema_ids, texts)
        self.schema_ids = schema_ids
        self.texts = texts


class ValueRules(NamedTuple):
    """The rules that values of a topic must follow."""

    settings: TopicSettings
    topic_name: str
    schemas: RegisteredSchemas | None  # None: the node has no registry

    @property
    def subject(self) -> str | None:
        """The subject that must have the schema of a value; None: any."""
        given = self.settings.value_schema_subject
        return None if given == ANY_SUBJECT else given or f"{self.topic_name}-value"


def must_check(settings: TopicSettings) -> bool:
    """Returns whether values of a topic have a schema."""
    return bool(settings.value_schema) or settings.value_schema_type != "none"


def check_bytes(body: bytes | bytearray, settings: TopicSettings) -> int:
    """Returns the size of a body, or of a body that takes as long as its values take to check. Raises InvalidConfig."""
    size_bytes = len(body)
    if settings.value_schema_type != "none":
        return max(size_bytes, OFF_LOOP_BYTES)
    if not settings.value_schema or size_bytes >= OFF_LOOP_BYTES:
        return size_bytes
    cost = value_schema(settings.value_schema).cost
    if size_bytes * (cost.once + cost.each + cost.byte) < TIMED_BYTES:
        return size_bytes
    if b"base64" in body:  # the parts of values are not seen
        return max(size_bytes, int(cost.of_size(size_bytes)))
    return max(size_bytes, int(cost.of(body, None, TIMED_BYTES)))


def quick_bytes(settings: TopicSettings) -> int:
    """Returns how many bytes of values are checked in the time of a loop callback. Raises InvalidConfig."""
    if settings.value_schema_type != "none":
        return FRAMED_QUICK_BYTES
    return (
        OFF_LOOP_BYTES
        if not settings.value_schema
        else value_schema(settings.value_schema).cost.bytes_of(OFF_LOOP_BYTES)
    )


def do_lines_follow(body: bytes, count: int, settings: TopicSettings, *, is_quick: bool) -> bool:
    """Returns True if a body of `count` lines, each one JSON value, surely follows the schema. Raises InvalidConfig."""
    if not settings.value_schema:
        return False
    units_max = OFF_LOOP_BYTES if is_quick else REQUEST_UNITS_MAX
    return value_schema(settings.value_schema).do_lines_follow(body, count, units_max)


def check_values(values: Sequence[bytes | None], rules: ValueRules, *, is_quick: bool = False) -> None:
    """Raises Problem schema_mismatch for the first value that does not follow the schema; NeedsSchemas; InvalidConfig.

    If it `is_quick`, it raises TakesLong for values that need an exact look.
    """
    settings = rules.settings
    if not settings.value_schema:
        _check_framed(dict(enumerate(values)), rules, is_quick=is_quick)
        return
    schema, is_null_allowed = value_schema(settings.value_schema), settings.is_compacted
    if is_quick:
        if not schema.do_values_follow(values, OFF_LOOP_BYTES, is_null_allowed=is_null_allowed):
            raise TakesLong
        return
    violation = schema.find_violation(values, is_null_allowed=is_null_allowed)
    if violation is not None:
        raise _mismatch(violation, violation.record, settings)


def find_mismatches(values: Mapping[int, bytes | None], rules: ValueRules) -> Iterator[tuple[int, Problem]]:
    """Yields the position and the problem of each value that does not follow. Raises NeedsSchemas, InvalidConfig."""
    settings = rules.settings
    if not settings.value_schema:
        for problems in _framed_problems(values, rules):
            yield from problems
        return
    positions, schema = list(values), value_schema(settings.value_schema)
    for violation in schema.violations(list(values.values()), is_null_allowed=settings.is_compacted):
        position = positions[violation.record]
        yield position, _mismatch(violation, position, settings)


async def with_schemas(schemas: RegisteredSchemas | None, work: Callable[[], Awaitable[T]]) -> T:
    """Returns what `work` returns, with the schemas that it needs. Raises Problem registry_unavailable."""
    for _ in range(FETCHES_MAX):
        try:
            return await work()
        except NeedsSchemas as needs:
            schema_ids, texts = needs.schema_ids, needs.texts
        assert schemas is not None, schema_ids
        for text in texts:
            await schemas.register(text)
        if schema_ids:
            await schemas.fetch(schema_ids)
    raise Problem("registry_unavailable", "the values name too many schemas that are not known here yet")


def _mismatch(violation: Violation, record: int, settings: TopicSettings) -> Problem:
    version, place = settings.value_schema_version, violation.pointer or "the whole value"
    text = f"record {record} does not follow version {version} of the schema: {place}: {violation.text}"
    return Problem("schema_mismatch", text, record=record, pointer=violation.pointer, schema_version=version)


# Values of a registry


class _Framed(NamedTuple):
    """Values by the schema that they name, and the problems of those that name none of the topic."""

    by_schema: dict[int, dict[int, bytes]]
    values_of: dict[int, FramedValues]
    problems: list[tuple[int, Problem]]


def _check_framed(values: Mapping[int, bytes | None], rules: ValueRules, *, is_quick: bool) -> None:
    if is_quick:
        if sum(map(len, filter(None, values.values()))) > FRAMED_QUICK_BYTES:
            raise TakesLong
        framed = _sort(values, rules)
        if framed.problems or not all(
            framed.values_of[schema_id].do_surely_follow(some) for schema_id, some in framed.by_schema.items()
        ):
            raise TakesLong
        return
    firsts = [first for problems in _framed_problems(values, rules) if (first := next(problems, None)) is not None]
    if firsts:
        raise min(firsts, key=lambda first: first[0])[1]


def _framed_problems(values: Mapping[int, bytes | None], rules: ValueRules) -> Iterator[Iterator[tuple[int, Problem]]]:
    """Yields problems by the schema that values name, each time in the order of the values."""
    framed = _sort(values, rules)
    yield iter(framed.problems)
    for schema_id, some in framed.by_schema.items():
        wrong = framed.values_of[schema_id].find_wrong(some)
        yield (
            (record, _refusal(record, f"does not follow schema {schema_id}: {text}", schema_id))
            for record, text in wrong
        )


def _sort(values: Mapping[int, bytes | None], rules: ValueRules) -> _Framed:
    """Raises NeedsSchemas, Problem registry_unavailable."""
    if rules.schemas is None:
        text = "values of the topic name schemas of a registry, and this node has none: set schema_registry_url"
        raise Problem("registry_unavailable", text)
    framed, missing, reasons = _Framed({}, {}, []), [], {}
    for record, value in values.items():
        if value is None and rules.settings.is_compacted:
            continue
        schema_id = schema_id_of(value or b"")
        if schema_id is None or value is None:
            text = "must begin with a zero byte and the four bytes of a schema's id in the registry"
            framed.problems.append((record, _refusal(record, text, None)))
            continue
        same = framed.by_schema.get(schema_id)
        if same is not None:
            same[record] = value
            continue
        if schema_id not in reasons:
            asked = rules.schemas.find(schema_id, rules.subject)
            if asked is None:
                missing.append(schema_id)
                if len(missing) >= IDS_AT_ONCE_MAX:
                    raise NeedsSchemas(missing)
                reasons[schema_id] = ""
                continue
            found, reason = asked.found, asked.reason
            if found is not None and found.kind.lower() != rules.settings.value_schema_type:
                reason = f"it is of the type {found.kind}, and the topic takes {rules.settings.value_schema_type}"
            elif found is not None and rules.subject is not None and rules.subject not in found.subjects:
                reason = f"the subject {rules.subject} does not have it"
            elif found is not None:
                framed.by_schema[schema_id], framed.values_of[schema_id] = {record: value}, found.values
                continue
            reasons[schema_id] = reason
        framed.problems.append((record, _refusal(record, f"names schema {schema_id}: {reasons[schema_id]}", schema_id)))
    if missing:
        raise NeedsSchemas(missing)
    return framed


def _refusal(record: int, text: str, schema_id: int | None) -> Problem:
    return Problem("schema_mismatch", f"record {record} {text}", record=record, schema_id=schema_id)
