"""Checks values against the schema of their topic, whichever form they came in. A problem has no part of a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.schemas.value_schema import Violation, value_schema
from engine.settings import TopicSettings
from gateway.http.offload import OFF_LOOP_BYTES, TIMED_BYTES
from gateway.http.problems import Problem

QUICK_UNITS = TIMED_BYTES  # a body of fewer is not looked at


def check_bytes(body: bytes | bytearray, settings: TopicSettings) -> int:
    """Returns the size of a body, or of a body that takes as long as its values take to check. Raises InvalidConfig."""
    if not settings.value_schema:
        return len(body)
    cost = value_schema(settings.value_schema).cost
    if len(body) * (cost.once + cost.each + cost.byte) < QUICK_UNITS:
        return len(body)
    if b"base64" in body:  # the parts of values are not seen
        return max(len(body), int(cost.of_size(len(body))))
    return max(len(body), int(cost.of(body, None)))


def quick_bytes(settings: TopicSettings) -> int:
    """Returns how many bytes of values are checked in the time of a loop callback. Raises InvalidConfig."""
    return (
        OFF_LOOP_BYTES
        if not settings.value_schema
        else value_schema(settings.value_schema).cost.bytes_of(OFF_LOOP_BYTES)
    )


def do_lines_follow(body: bytes, count: int, settings: TopicSettings) -> bool:
    """Returns True if a body of `count` lines, each one JSON value, surely follows the schema. Raises InvalidConfig."""
    return value_schema(settings.value_schema).do_lines_follow(body, count)


def check_values(values: Sequence[bytes | None], settings: TopicSettings) -> None:
    """Raises Problem schema_mismatch for the first value that does not follow the schema; InvalidConfig."""
    violation = _find_violation(values, settings)
    if violation is not None:
        raise _mismatch(violation, violation.record, settings)


def find_mismatches(
    values: Iterable[tuple[int, bytes | None]], settings: TopicSettings
) -> Iterable[tuple[int, Problem]]:
    """Yields the position and the problem of each value that does not follow the schema. Raises InvalidConfig."""
    for position, value in values:
        violation = _find_violation((value,), settings)
        if violation is not None:
            yield position, _mismatch(violation, position, settings)


def _find_violation(values: Sequence[bytes | None], settings: TopicSettings) -> Violation | None:
    return value_schema(settings.value_schema).find_violation(values, is_null_allowed=settings.is_compacted)


def _mismatch(violation: Violation, record: int, settings: TopicSettings) -> Problem:
    version, place = settings.value_schema_version, violation.pointer or "the whole value"
    text = f"record {record} does not follow version {version} of the schema: {place}: {violation.text}"
    return Problem("schema_mismatch", text, record=record, pointer=violation.pointer, schema_version=version)
