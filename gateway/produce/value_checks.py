"""Checks values against the schema of their topic, whichever form they came in. A problem has no part of a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from engine.schemas.value_schema import REQUEST_UNITS_MAX, Violation, value_schema
from engine.settings import TopicSettings
from gateway.http.offload import OFF_LOOP_BYTES, TIMED_BYTES
from gateway.http.problems import Problem


class TakesLong(Exception):
    """Values may not follow their schema, and to see it exactly may take longer than a loop has."""


def check_bytes(body: bytes | bytearray, settings: TopicSettings) -> int:
    """Returns the size of a body, or of a body that takes as long as its values take to check. Raises InvalidConfig."""
    size_bytes = len(body)
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
    return (
        OFF_LOOP_BYTES
        if not settings.value_schema
        else value_schema(settings.value_schema).cost.bytes_of(OFF_LOOP_BYTES)
    )


def do_lines_follow(body: bytes, count: int, settings: TopicSettings, *, is_quick: bool) -> bool:
    """Returns True if a body of `count` lines, each one JSON value, surely follows the schema. Raises InvalidConfig."""
    units_max = OFF_LOOP_BYTES if is_quick else REQUEST_UNITS_MAX
    return value_schema(settings.value_schema).do_lines_follow(body, count, units_max)


def check_values(values: Sequence[bytes | None], settings: TopicSettings, *, is_quick: bool = False) -> None:
    """Raises Problem schema_mismatch for the first value that does not follow the schema; InvalidConfig.

    If it `is_quick`, it raises TakesLong for values that need an exact look.
    """
    schema, is_null_allowed = value_schema(settings.value_schema), settings.is_compacted
    if is_quick:
        if not schema.do_values_follow(values, OFF_LOOP_BYTES, is_null_allowed=is_null_allowed):
            raise TakesLong
        return
    violation = schema.find_violation(values, is_null_allowed=is_null_allowed)
    if violation is not None:
        raise _mismatch(violation, violation.record, settings)


def find_mismatches(values: Mapping[int, bytes | None], settings: TopicSettings) -> Iterator[tuple[int, Problem]]:
    """Yields the position and the problem of each value that does not follow the schema. Raises InvalidConfig."""
    positions, schema = list(values), value_schema(settings.value_schema)
    for violation in schema.violations(list(values.values()), is_null_allowed=settings.is_compacted):
        position = positions[violation.record]
        yield position, _mismatch(violation, position, settings)


def _mismatch(violation: Violation, record: int, settings: TopicSettings) -> Problem:
    version, place = settings.value_schema_version, violation.pointer or "the whole value"
    text = f"record {record} does not follow version {version} of the schema: {place}: {violation.text}"
    return Problem("schema_mismatch", text, record=record, pointer=violation.pointer, schema_version=version)
