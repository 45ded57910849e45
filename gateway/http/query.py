"""Query strings, strictly: an unknown name or a value out of bounds is a 400, never ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from aiohttp import web

from gateway.http.context import HTTP
from gateway.http.problems import Problem

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


class Number(NamedTuple):
    """A whole number within bounds."""

    default: int | None
    minimum: int
    maximum: int

    def parse(self, name: str, text: str) -> int:
        if not _NUMBER.fullmatch(text) or not self.minimum <= int(text) <= self.maximum:
            wanted = f"a whole number from {self.minimum} to {self.maximum}"
            raise Problem("invalid_query", f"{name} is {text!r}; give {wanted}", parameter=name)
        return int(text)


class Word(NamedTuple):
    """One of a few words."""

    default: str | None
    choices: tuple[str, ...]

    def parse(self, name: str, text: str) -> str:
        if text not in self.choices:
            raise Problem("invalid_query", f"{name} is {text!r}; give {' or '.join(self.choices)}", parameter=name)
        return text


class Text(NamedTuple):
    """Any text up to a length."""

    default: str | None
    length_max: int = 4096  # the node's query_value_chars_max may be less

    def parse(self, name: str, text: str) -> str:
        if len(text) > self.length_max:
            raise Problem("invalid_query", f"{name} has more than {self.length_max} characters", parameter=name)
        return text


Rules = Mapping[str, Number | Word | Text]


def read_query(request: web.Request, rules: Rules) -> dict[str, Any]:
    """Every name of the rules with its value or default. Raises Problem unknown_query or invalid_query."""
    values: dict[str, Any] = {name: rule.default for name, rule in rules.items()}
    if not request.query_string:
        return values
    _check_utf8(request.rel_url.raw_query_string)
    seen = set()
    length_max = request.app[HTTP].query_value_chars_max
    for name, text in request.query.items():
        if len(text) > length_max:
            raise Problem("invalid_query", f"{name:.64} has more than {length_max} characters", parameter=name[:64])
        rule = rules.get(name)
        if rule is None:
            known = ", ".join(sorted(rules)) or "none"
            raise Problem("unknown_query", f"{name!r} is not a query name here; known: {known}", parameter=name)
        if name in seen:
            raise Problem("invalid_query", f"{name} is given twice", parameter=name)
        seen.add(name)
        values[name] = rule.parse(name, text)
    return values


def _check_utf8(query_string: str) -> None:
    """yarl would put U+FFFD in place of other bytes: a key would become another key, in silence."""
    try:
        unquote_to_bytes(query_string).decode()
    except UnicodeDecodeError:
        raise Problem("invalid_query", "the query is not UTF-8; send other keys as key_base64 in the body") from None


def path_partition(request: web.Request) -> int:
    """The partition number in the path. Raises Problem unknown_partition for what is no number."""
    return partition_number(request.match_info["partition"])


def partitions_named(request: web.Request) -> int:
    """How many partitions a topic must have for the path to be one of it."""
    text = request.match_info.get("partition", "")
    return int(text) + 1 if _PARTITION.fullmatch(text) else 1


def partition_number(text: str) -> int:
    """One number is written in one way: 00 is none. Raises Problem unknown_partition."""
    if not _PARTITION.fullmatch(text):
        raise Problem("unknown_partition", f"{text[:64]!r} is no partition number")
    return int(text)
