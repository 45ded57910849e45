"""Limits on a JSON value that a producer sends: levels of nesting and the length of a number.

JSON allows any depth and any number, parsers do not: serde_json reads 128 levels, .NET 64, Jackson numbers of 1,000
characters. A value beyond the limits could be stored, but not read by every consumer: it is rejected with its position.

Not a parser: the value has been parsed as JSON. Most values are too short to break a limit and cost one `len`; a longer
one costs a count of its brackets and a look at one byte in sixty. Only a value with more brackets than the limit has
levels is reduced to its brackets, which costs as much as to parse it, at any depth.
"""

from __future__ import annotations

import json
import re
from array import array
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Any

from msgspec import DecodeError, Raw
from msgspec.json import decode as json_decode

from gateway.http.problems import Problem

DEPTH_CEILING = 512  # upper bound of the setting; msgspec's decoder gives up at about 900 levels

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACKETS = re.compile(_STRING + rb"|[\[{]|[\]}]")
_NUMBERS = re.compile(_STRING + rb"|[0-9][0-9.eE+-]*+")
_OF_NUMBERS = b"0123456789.eE+-"
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS_OR_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))
_NUMBERS_TO_ZERO = bytes(ord("0") if byte in _OF_NUMBERS else ord(" ") for byte in range(256))
_PASSES = 2  # each removes the innermost pairs of all brackets: most values have no more levels
_MANY = 64 * 1024  # brackets: a pass over them costs half as much as to count their levels
_TOGETHER = 256  # values: enough that a call for all of them costs nothing
_SAMPLES = 16  # of a number that is too long
# No alternative within may backtrack: CPython before 3.11.5 matches these wrongly (gh-106052).
_BEFORE_CONSTANT = re.compile(rb'(?:[^"NI]++|' + _STRING + rb")*+")
_UNICODE_ESCAPES = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})(?:\\u([dD][c-fC-F][0-9A-Fa-f]{2}))?|.)", re.DOTALL)
_HIGH, _LOW = re.compile(rb"[dD][89abAB]"), re.compile(rb"[dD][c-fC-F]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_OPEN = ord("[")
_TO_STEPS = bytes.maketrans(b"[]", b"\x01\xff")
_COUNTED_MAX = 1_000_000  # brackets before an error: to count the records among them takes 0.1 s
_TO_BITS = bytes.maketrans(b"[]", b"10")
_STEPS = [list(accumulate((1 if bits >> at & 1 else -1 for at in range(7, -1, -1)), initial=0)) for bits in range(256)]
_RISES = bytes(steps[-1] & 0xFF for steps in _STEPS)  # of the eight brackets in a byte: the change of depth
_PEAKS = bytes(map(max, _STEPS))  # and the greatest depth within


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """`depth_max`: levels of nesting; a scalar has none. `digits_max`: digits of a number, with its point
    and its exponent.

    A value of up to `harmless_bytes` breaks no limit: each level takes two brackets.
    """

    depth_max: int = 128
    digits_max: int = 1000
    harmless_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "harmless_bytes", min(2 * self.depth_max + 1, self.digits_max))


DEFAULT_LIMITS = JsonLimits()


def check_values(values: Sequence[bytes | Raw], limits: JsonLimits) -> None:
    """Checks the values of a request. Raises Problem json_too_complex, which names the record and the byte.

    Checks many together, since a call for each value costs as much as the check: joined they are nested no deeper than
    the deepest of them, and commas keep their digits apart. With escapes, a joint check costs more than a call for
    each.
    """
    harmless = limits.harmless_bytes
    if not values or max(map(len, values)) <= harmless:
        return
    for start in range(0, len(values), _TOGETHER):
        text = b",".join(values[start : start + _TOGETHER])
        if b"\\" in text or _may_have_long_number(text, limits.digits_max) or _is_too_deep(text, limits.depth_max):
            for position, value in enumerate(values[start : start + _TOGETHER], start):
                if len(value) > harmless:
                    check_value(value, limits, position)


def check_value(value: bytes | Raw, limits: JsonLimits, position: int) -> None:
    """Checks the value of the record at a position of the body. Raises Problem json_too_complex."""
    text, depth_max, digits_max = bytes(value), limits.depth_max, limits.digits_max
    if len(text) - len(text.translate(None, b"[{")) > depth_max and _is_too_deep(text, depth_max):
        at = _first_too_deep(text, depth_max)
        assert at is not None
        raise _too_deep(f"record {position}", at, depth_max, record=position)
    if len(text) > digits_max and _may_have_long_number(text, digits_max):
        at = _first_long_number(text, digits_max)
        if at is not None:
            where = f"record {position}: the number at byte {at} of its value"
            what = f"{where} has more than {digits_max} digits, with its point and exponent"
            raise Problem("json_too_complex", what, record=position, byte=at, limit=digits_max)


def stack_exhausted(text: bytes, where: str = "the body", **members: Any) -> Problem:
    """Returns the problem for JSON on which the decoder gave up because of its depth, whatever the limit is."""
    at = _first_too_deep(text, DEPTH_CEILING)
    return _too_deep(where, len(text) if at is None else at, DEPTH_CEILING, **members)


def _too_deep(where: str, byte: int, depth_max: int, **members: Any) -> Problem:
    what = f"{where}: byte {byte} is nested more than {depth_max} levels deep"
    return Problem("json_too_complex", what, byte=byte, limit=depth_max, **members)


def _is_too_deep(text: bytes, depth_max: int) -> bool:
    """Returns whether brackets outside of strings nest deeper. Removing all innermost pairs at once removes one level.

    Once escaped quotes are removed, a bracket is outside of strings if the number of quotes before it is even, which
    the removal of two neighbouring quotes does not change.
    """
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    brackets = plain.translate(_TO_SQUARE, _NO_BRACKETS_OR_QUOTES).replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    passes = min(_PASSES, depth_max) if len(brackets) < _MANY else 0
    for _ in range(passes):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return _levels(brackets) > depth_max - passes


def _levels(brackets: bytes) -> int:
    """Returns the depth of nesting. Eight brackets at a time: one pass for each level would cost size times depth."""
    brackets += b"]" * (-len(brackets) % 8)
    if not brackets:
        return 0
    eights = int(brackets.translate(_TO_BITS), 2).to_bytes(len(brackets) // 8, "big")
    before = accumulate(array("b", eights.translate(_RISES)), initial=0)
    deepest: int = max(map(add, before, eights.translate(_PEAKS)))
    return deepest


def _may_have_long_number(text: bytes, digits_max: int) -> bool:
    """False for nearly all without one: a number that is too long has this many bytes of a sample in a row."""
    stride = max(1, (digits_max + 1) // _SAMPLES)
    return b"0" * ((digits_max + 1) // stride) in text[stride - 1 :: stride].translate(_NUMBERS_TO_ZERO)


def _first_too_deep(text: bytes, depth_max: int) -> int | None:
    depth = 0
    for token in _BRACKETS.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
            if depth > depth_max:
                return token.start()
        elif first in b"]}":
            depth -= 1
    return None


def _first_long_number(text: bytes, digits_max: int) -> int | None:
    """Returns the position of the first number that is too long; None if there is none."""
    sampled = range(digits_max, len(text), digits_max + 1)
    if not any(_run_around(text, at, digits_max) > digits_max for at in sampled if text[at] in _OF_NUMBERS):
        return None
    for token in _NUMBERS.finditer(text):
        if token.end() - token.start() > digits_max and token[0][:1] != b'"':
            return token.start()
    return None


def _run_around(text: bytes, at: int, digits_max: int) -> int:
    """Returns how many bytes of a number are around a byte; lengths beyond the limit are not distinguished."""
    before, behind = text[max(0, at - digits_max) : at], text[at : at + digits_max + 1]
    return len(before) - len(before.rstrip(_OF_NUMBERS)) + len(behind) - len(behind.lstrip(_OF_NUMBERS))


def check_utf8(body: bytes) -> None:
    """Checks that the body is UTF-8: msgspec does not check the bytes of a raw value. Raises Problem invalid_utf8."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem("invalid_utf8", f"byte {error.start} of the body is not UTF-8", byte=error.start) from None


def malformed_json(body: bytes, records_level: int | None = None) -> Problem:
    """Returns the problem of a body that is not JSON, with line and column of the error, both from 1, in bytes.

    `records_level`: how many brackets are open around a record; then the problem also has its index.
    """
    try:
        at, what = _fault_of(body)
    except RecursionError:
        return stack_exhausted(body)
    line, column = body.count(b"\n", 0, at) + 1, at - body.rfind(b"\n", 0, at)
    members: dict[str, Any]
    where, members = f"line {line}, column {column}", {"line": line, "column": column}
    record = None if records_level is None else _record_at(body, at, records_level)
    if record is not None:
        where, members = f"{where}, in record {record}", members | {"record": record}
    return Problem("malformed_json", f"{where}: {what}", **members)


def malformed_line(body: bytes, number: int, record: int) -> Problem:
    """Returns the problem of the line of this number, from 1, which is not one JSON value."""
    line = body.split(b"\n")[number - 1].rstrip(b" \t\r")
    at, what = _fault_of(line)
    text = f"line {number} is not one JSON value: column {at + 1}, in record {record}: {what}"
    return Problem("malformed_ndjson", text, line=number, column=at + 1, record=record)


def reject_lines(body: bytes) -> None:
    """Raises Problem unsupported_media_type for lines of JSON values that were sent as one value."""
    first, _, rest = body.strip().partition(b"\n")
    try:
        json_decode(first, type=Raw)
    except (DecodeError, RecursionError):
        return
    if rest:
        text = "the body is lines of JSON, and its Content-Type is application/json"
        raise Problem("unsupported_media_type", f"{text}: send them as application/x-ndjson") from None


def _fault_of(text: bytes) -> tuple[int, str]:
    """Returns the first byte that is not JSON as RFC 8259 has it, and why. Raises RecursionError.

    Python's parser takes NaN, Infinity and halves of surrogate pairs, which are looked for apart.
    """
    if text.startswith(BOM_UTF8):
        return 0, "a byte order mark; send UTF-8 without it"
    decoded = text.decode("utf-8", "replace")  # as text: from bytes with a NUL json would guess UTF-16
    try:
        json.loads(decoded, parse_int=str, parse_float=str, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        at = len(decoded[: error.pos].encode())
        is_cut = not text[at:].strip() or error.msg.startswith("Unterminated")
        return at, f"{error.msg}; the text ends too early" if is_cut else error.msg
    except _ConstantFound as constant:
        before = _BEFORE_CONSTANT.match(text)
        at = 0 if before is None else before.end() - str(constant).startswith("-")
        return at, f"{constant} is not a value of JSON; send null, or a text"
    for escape in _UNICODE_ESCAPES.finditer(text):
        first, second = escape.groups()
        if first is not None and (_HIGH.match(first) is not None) != (second is not None):
            return escape.start(), "half of a surrogate pair"
        if first is not None and _LOW.match(first) is not None:
            return escape.start(), "half of a surrogate pair"
    return 0, "the text is not JSON as RFC 8259 has it"


class _ConstantFound(Exception):
    """NaN or Infinity."""


def _reject_constant(name: str) -> None:
    raise _ConstantFound(name)


def _record_at(body: bytes, at: int, level: int) -> int | None:
    """Returns the index of the record that a byte is in; None outside of the list of records, and far within it."""
    brackets = re.sub(_STRING, b"", body[:at]).partition(b'"')[0].translate(_TO_SQUARE, _NO_BRACKETS)
    depth_at_end = 2 * brackets.count(b"[") - len(brackets)
    if depth_at_end < level or len(brackets) > _COUNTED_MAX:
        return None
    depths = accumulate(array("b", brackets.translate(_TO_STEPS)), initial=0)
    begun = sum(1 for depth, bracket in zip(depths, brackets, strict=False) if depth == level and bracket == _OPEN)
    return begun - 1 if depth_at_end > level else begun
