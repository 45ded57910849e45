"""A filter: all of its conditions hold for a record that passes.

A condition on what a record does not have does not hold: no key, no such header, no JSON, nothing at the pointer. One
value of a repeated header is enough.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

import msgspec

from engine.format.batch import Record
from gateway.filters.condition import Condition, InvalidCondition, Scalar, Subject, parse_condition

CONDITIONS_MAX = 16

_KEY, _HEADER, _TEXT, _WORD, _INTEGER = range(5)  # as numbered in penstock_codec/src/filter.h
_WORDS = {None: b"null", True: b"true", False: b"false"}
_MISSING = object()
_INDEX_DIGITS_MAX = 9


CompiledCondition = tuple[int, bool, bytes, tuple[bytes, ...], bytes]


class RecordFilter(NamedTuple):
    """The conditions of a request, in the order in which they are checked: those on values cost most and come last.

    `compiled` has them for the compiled codec; None if it cannot decide them: it compares no fractions.
    """

    conditions: tuple[Condition, ...]
    compiled: tuple[CompiledCondition, ...] | None

    def passes(self, record: Record) -> bool:
        """Returns whether every condition holds."""
        document: object = _MISSING
        for condition in self.conditions:
            if condition.subject is Subject.VALUE:
                if document is _MISSING:
                    document = _document(record.value)
                if document is _MISSING or not _holds_of_value(condition, document):
                    return False
            elif not _holds_of_bytes(condition, record):
                return False
        return True


@lru_cache(256)
def record_filter(texts: tuple[str, ...]) -> RecordFilter:
    """Returns the filter of some conditions. Raises InvalidCondition."""
    if len(texts) > CONDITIONS_MAX:
        raise InvalidCondition(f"the request has {len(texts)} conditions, {CONDITIONS_MAX} are allowed")
    conditions = [parse_condition(text) for text in texts]
    conditions.sort(key=lambda condition: condition.subject is Subject.VALUE)
    compiled = [_compile(condition) for condition in conditions]
    is_complete = None not in compiled
    return RecordFilter(tuple(conditions), tuple(filter(None, compiled)) if is_complete else None)


def _compile(condition: Condition) -> CompiledCondition | None:
    literal = condition.literal
    if condition.subject is not Subject.VALUE:
        number = _KEY if condition.subject is Subject.KEY else _HEADER
        return number, condition.is_prefix, condition.name.encode(), (), str(literal).encode()
    steps = tuple(step.encode() for step in condition.steps)
    if isinstance(literal, str):
        return _TEXT, condition.is_prefix, b"", steps, literal.encode()
    if literal is None or isinstance(literal, bool):
        return _WORD, False, b"", steps, _WORDS[literal]
    return None if isinstance(literal, float) else (_INTEGER, False, b"", steps, b"%d" % literal)


def _holds_of_bytes(condition: Condition, record: Record) -> bool:
    literal = str(condition.literal).encode()
    if condition.subject is Subject.KEY:
        values = [record.key]
    else:
        values = [value for name, value in record.headers if name == condition.name]
    if condition.is_prefix:
        return any(value is not None and value.startswith(literal) for value in values)
    return literal in values


def _holds_of_value(condition: Condition, document: object) -> bool:
    part = _part(document, condition.steps)
    if condition.is_prefix:
        return isinstance(part, str) and part.startswith(str(condition.literal))
    return _is_equal(part, condition.literal)


def _document(value: bytes | None) -> object:
    """Returns a value that is JSON, None for a tombstone, else _MISSING."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):  # not JSON, or a number that msgspec rejects
        pass
    try:
        return json.loads(value.decode(), parse_constant=_reject)
    except (ValueError, RecursionError):
        return _MISSING


def _part(document: object, steps: tuple[str, ...]) -> object:
    """Returns what the pointer names, _MISSING if nothing is there."""
    for step in steps:
        if isinstance(document, dict):
            document = document.get(step, _MISSING)
        elif isinstance(document, list):
            index = _index(step)
            document = document[index] if index is not None and index < len(document) else _MISSING
        else:
            return _MISSING
    return document


def _index(step: str) -> int | None:
    is_index = step.isascii() and step.isdigit() and len(step) <= _INDEX_DIGITS_MAX
    return int(step) if is_index and (step == "0" or step[0] != "0") else None


def _is_equal(part: object, literal: Scalar) -> bool:
    if isinstance(part, bool) or isinstance(literal, bool):
        return part is literal
    return part == literal


def _reject(constant: str) -> None:
    raise ValueError(constant)
