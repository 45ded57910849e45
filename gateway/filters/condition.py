"""Parses a condition on a record: `key=eu-7`, `header.type^=order.`, `value/customer/id=42`.

A condition is a subject, an operator and a literal. The subject ends at the first `=` or `^=`. A key and a header are
compared with the literal as UTF-8; a part of a JSON value (a JSON pointer, RFC 6901) with a literal in JSON, so that
the text "42" and the number 42 differ.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import NamedTuple

from engine.format.batch import RESERVED_PREFIX

CHARACTERS_MAX = 1024  # of a condition
STEPS_MAX = 8  # of a pointer, as in penstock_codec/src/pointer.h

FORM = "expected key=TEXT, header.NAME=TEXT or value/POINTER=JSON; ^= instead of = for what begins with it"

Scalar = str | int | float | bool | None

_LITERALS = 'a value is compared with JSON: "text" in double quotes, 42, true, false or null'


class Subject(Enum):
    """The part of a record that a condition compares."""

    KEY = "key"
    HEADER = "header"
    VALUE = "value"


class InvalidCondition(ValueError):
    """A text is not a condition. The message says what is wrong."""


class Condition(NamedTuple):
    """One condition. `name` is a header's, `steps` a pointer's; `literal` is text for a key and a header."""

    subject: Subject
    name: str
    steps: tuple[str, ...]
    is_prefix: bool
    literal: Scalar


def parse_condition(text: str) -> Condition:
    """Returns the condition that a text has. Raises InvalidCondition."""
    if len(text) > CHARACTERS_MAX:
        raise _invalid(text, f"it has more than {CHARACTERS_MAX} characters")
    at = text.find("=")
    if at < 1:
        raise _invalid(text, FORM)
    if text[at - 1] in "<>!":  # a pointer to a member `n>` is valid, and never what its author means
        raise _invalid(text, f"there is no {text[at - 1]}=: = and ^= are the operators")
    is_prefix = text[at - 1] == "^"
    subject, literal = text[: at - is_prefix], text[at + 1 :]
    if subject == "key":
        return Condition(Subject.KEY, "", (), is_prefix, literal)
    if subject.startswith("header."):
        return Condition(Subject.HEADER, _header_name(text, subject), (), is_prefix, literal)
    if subject == "value" or subject.startswith("value/"):
        return Condition(Subject.VALUE, "", _steps(text, subject), is_prefix, _scalar(text, literal, is_prefix))
    raise _invalid(text, FORM)


def _header_name(text: str, subject: str) -> str:
    name = subject.removeprefix("header.")
    if not name or name.startswith(RESERVED_PREFIX):
        raise _invalid(text, f"a header has a name, which does not begin with {RESERVED_PREFIX}")
    return name


def _steps(text: str, subject: str) -> tuple[str, ...]:
    """Returns the unescaped steps of a pointer."""
    steps = subject.split("/")[1:]
    if len(steps) > STEPS_MAX:
        raise _invalid(text, f"the pointer has more than {STEPS_MAX} steps")
    if any("~" in step.replace("~0", "").replace("~1", "") for step in steps):
        raise _invalid(text, "in a pointer ~ is followed by 0 or 1 (RFC 6901)")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def _scalar(text: str, literal: str, is_prefix: bool) -> Scalar:
    try:
        value: object = json.loads(literal, parse_constant=_reject)
    except (ValueError, RecursionError):
        raise _invalid(text, _LITERALS) from None
    if not isinstance(value, Scalar):
        raise _invalid(text, _LITERALS)
    if isinstance(value, float) and value - value != 0:
        raise _invalid(text, "the number is too large")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise _invalid(text, "the text has half of a surrogate pair")
    if is_prefix and not isinstance(value, str):
        raise _invalid(text, "only a text can begin with another: ^= takes a text in double quotes")
    return value


def _reject(constant: str) -> None:
    raise ValueError(constant)


def _invalid(text: str, what: str) -> InvalidCondition:
    return InvalidCondition(f"the condition {text[:80]!r}: {what}")
