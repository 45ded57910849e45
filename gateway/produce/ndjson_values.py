"""NDJSON of bare values: a line is a record's value, exactly one JSON value a line.

The compiled codec finds the values in one pass and without an object for each. It declines a body that is not exactly
right; this file is its plain Python twin and says what is wrong.
"""

from __future__ import annotations

import re
from functools import partial

import msgspec
from msgspec import Raw

import penstock_codec
from gateway.http.json_limits import (
    DEFAULT_LIMITS,
    JsonLimits,
    check_utf8,
    check_values,
    malformed_line,
    stack_exhausted,
)
from gateway.http.problems import Problem
from gateway.produce.batching import Incoming, IncomingObjects, IncomingRow, IncomingSpans
from gateway.produce.json_records import key_bytes, numbered_lines

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_NULL = b"null"
_new = tuple.__new__  # of a value without a frame for it
_BAD_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


def decode_values(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Incoming:
    """Returns a record per line.

    Raises Problem: invalid_utf8, malformed_ndjson with the line's number, json_too_complex.
    """
    native = penstock_codec.native
    found = None if native is None else native.find_lines(body, limits.depth_max, limits.digits_max)
    return (
        decode_values_plainly(body, limits) if not found or not found[1] else _new(IncomingSpans, (body, *found, True))
    )


def decode_values_plainly(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> list[IncomingRow]:
    """Returns what `decode_values` returns, without the compiled codec. Raises as it does."""
    check_utf8(body)
    values = _values_of(body)
    check_values(values, limits)
    return [IncomingRow(None, None if value == _NULL else value, []) for value in values]


def decode_keyed_values(body: bytes, pointer: list[str], limits: JsonLimits = DEFAULT_LIMITS) -> Incoming:
    """Returns a record per line, its key taken by a JSON pointer (RFC 6901). Raises as decode_values does."""
    native = penstock_codec.native
    if native is not None:
        steps = tuple(step.encode("utf-8", "surrogatepass") for step in pointer)
        found = native.find_keyed_lines(body, steps, limits.depth_max, limits.digits_max)
        if found is not None and found[1]:
            rows, count, unescaped = found
            plainly = partial(decode_keyed_values_plainly, body, pointer, limits)
            return IncomingObjects(body + unescaped, rows, count, True, plainly)
    return decode_keyed_values_plainly(body, pointer, limits)


def decode_keyed_values_plainly(
    body: bytes, pointer: list[str], limits: JsonLimits = DEFAULT_LIMITS
) -> list[IncomingRow]:
    """Returns what `decode_keyed_values` returns, without the compiled codec. Raises as it does."""
    check_utf8(body)
    values = _values_of(body)
    check_values(values, limits)
    keys = [_key_at(value, pointer, position) for position, value in enumerate(values)]
    return [IncomingRow(key, None if value == _NULL else value, []) for key, value in zip(keys, values, strict=True)]


def parse_pointer(text: str) -> list[str]:
    """Parses a JSON pointer into its steps. Raises Problem invalid_query."""
    if not text.startswith("/") or _BAD_ESCAPE.search(text):
        hint = "it begins with '/', and '~' is written ~0, '/' in a name ~1 (RFC 6901)"
        raise Problem("invalid_query", f"key_pointer {text!r} is not a JSON pointer: {hint}", parameter="key_pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]


def _values_of(body: bytes) -> list[bytes]:
    return [_checked_line(body, record, *line) for record, line in enumerate(numbered_lines(body))]


def _checked_line(body: bytes, record: int, number: int, line: bytes) -> bytes:
    try:
        msgspec.json.decode(line, type=Raw)
    except RecursionError:
        raise stack_exhausted(line, f"line {number}", line=number) from None
    except msgspec.DecodeError:
        raise malformed_line(body, number, record) from None
    return line


def _key_at(value: bytes, pointer: list[str], position: int) -> bytes | None:
    """Returns the key of a value. Decodes one level at a time and keeps bytes, so that a number keeps its digits."""
    for step in pointer:
        child = _child(value, step)
        if child is None:
            text = f"record {position} has nothing at key_pointer /{'/'.join(pointer)}"
            raise Problem("invalid_body", text, record=position)
        value = bytes(child)
    return key_bytes(value)


def _child(value: bytes, step: str) -> Raw | None:
    if value[:1] == b"{":
        return _OBJECT.decode(value).get(step)
    if value[:1] == b"[" and _INDEX.fullmatch(step):
        items = _ARRAY.decode(value)
        return items[int(step)] if int(step) < len(items) else None
    return None
