"""NDJSON of bare values: a line is a record's value, exactly one JSON value a line.

The compiled codec finds the values in one pass and without an object for each. It declines a body that is not exactly
right; this file is its plain Python twin and says what is wrong.

Here a body is checked in bulk. msgspec's line decoder reads `1 2` on a line as two values and a value over two lines as
one, so its result is compared with the body: as many values as lines, and the same bytes when joined again. Only a body
that differs is checked line by line, to strip white space or to name the bad line.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

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
from gateway.produce.batching import Incoming, IncomingObjects, IncomingRow, IncomingSpans, IncomingValues
from gateway.produce.json_records import key_bytes, numbered_lines

_VALUES = msgspec.json.Decoder(Raw)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_NULL = b"null"
_BAD_ESCAPE = re.compile(r"~(?![01])")
_QUICK_STEPS_MAX = 4  # each needs a new type
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")


def decode_values(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Incoming:
    """Returns a record per line.

    Raises Problem: invalid_utf8, malformed_ndjson with the line's number, json_too_complex.
    """
    native = penstock_codec.native
    found = None if native is None else native.find_lines(body, limits.depth_max, limits.digits_max)
    return decode_values_plainly(body, limits) if not found or not found[1] else IncomingSpans(body, *found)


def decode_values_plainly(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Incoming:
    """Returns what `decode_values` returns, without the compiled codec. Raises as it does."""
    if not body.isascii():
        check_utf8(body)
    raws, may_have_null = _exact_lines(body), _NULL in body
    values = _split_exactly(body) if raws is None or may_have_null else raws
    if len(body) > limits.harmless_bytes:
        check_values(values, limits)
    if may_have_null and _NULL in values:
        return [IncomingRow(None, None if value == _NULL else value, []) for value in values]
    return IncomingValues(values, len(body))


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
    values = _split_exactly(body)
    check_values(values, limits)
    keys = _string_keys(values, tuple(pointer))
    if keys is None:
        keys = [_key_at(value, pointer, position) for position, value in enumerate(values)]
    return [IncomingRow(key, None if value == _NULL else value, []) for key, value in zip(keys, values, strict=True)]


def parse_pointer(text: str) -> list[str]:
    """Parses a JSON pointer into its steps. Raises Problem invalid_query."""
    if not text.startswith("/") or _BAD_ESCAPE.search(text):
        hint = "it begins with '/', and '~' is written ~0, '/' in a name ~1 (RFC 6901)"
        raise Problem("invalid_query", f"key_pointer {text!r} is not a JSON pointer: {hint}", parameter="key_pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]


def _exact_lines(body: bytes) -> list[Raw] | None:
    """Returns the values if each line has exactly one and nothing else; None for any other body."""
    trimmed = body[:-1] if body.endswith(b"\n") else body
    try:
        raws: list[Raw] = _VALUES.decode_lines(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    is_exact = raws and len(raws) == trimmed.count(b"\n") + 1 and b"\n".join(raws) == trimmed
    return raws if is_exact else None


def _split_exactly(body: bytes) -> list[bytes]:
    if _exact_lines(body) is not None:
        return body.removesuffix(b"\n").split(b"\n")
    return [_checked_line(body, record, *line) for record, line in enumerate(numbered_lines(body))]


def _checked_line(body: bytes, record: int, number: int, line: bytes) -> bytes:
    try:
        msgspec.json.decode(line, type=Raw)
    except RecursionError:
        raise stack_exhausted(line, f"line {number}", line=number) from None
    except msgspec.DecodeError:
        raise malformed_line(body, number, record) from None
    return line


def _string_keys(values: list[bytes], pointer: tuple[str, ...]) -> list[bytes | None] | None:
    """Returns the keys if every line is an object with a string at the pointer; None for any other lines.

    One pass in C that skips the other members: 0.4 us a line, where one step at a time takes 2.
    """
    if len(pointer) > _QUICK_STEPS_MAX:
        return None
    try:
        found = _key_decoder(pointer).decode_lines(b"\n".join(values))
        return [key.encode() for key in map(attrgetter(".".join(["key"] * len(pointer))), found)]
    except (ValueError, RecursionError):  # msgspec's errors, and those of a step that it cannot handle
        return None


@lru_cache(maxsize=64)  # bounded: pointers are chosen by clients
def _key_decoder(pointer: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Returns a decoder of the string at a pointer. Raises ValueError for a step with characters to escape."""
    wanted: Any = str
    for step in reversed(pointer):
        wanted = msgspec.defstruct("Step", [("key", wanted)], rename={"key": step})
    return msgspec.json.Decoder(wanted)


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
