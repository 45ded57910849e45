"""Reads query strings and path parameters strictly: an unknown name or a value out of bounds is a 400, never ignored.

The query of a route is a frozen Struct. Its annotations are the rules, its defaults the values of missing names. A
field whose name is a keyword of Python ends in an underscore, which its name in the query does not have.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar, get_type_hints
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from yarl import query_to_pairs

from gateway.http.problems import Problem
from gateway.http.request import Request

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


class Number(NamedTuple):
    """A whole number within bounds."""

    minimum: int
    maximum: int

    def parse(self, name: str, text: str) -> int:
        """Returns the number. Raises Problem invalid_query."""
        if not _NUMBER.fullmatch(text) or not self.minimum <= int(text) <= self.maximum:
            expected = f"a whole number from {self.minimum} to {self.maximum}"
            raise Problem("invalid_query", f"{name} is {text!r}; give {expected}", parameter=name)
        return int(text)


class Word(NamedTuple):
    """One of a few words."""

    choices: tuple[str, ...]

    def parse(self, name: str, text: str) -> str:
        """Returns the word. Raises Problem invalid_query."""
        if text not in self.choices:
            raise Problem("invalid_query", f"{name} is {text!r}; give {' or '.join(self.choices)}", parameter=name)
        return text


class Text(NamedTuple):
    """Any text up to a length in characters."""

    length_max: int = 4096  # the node's query_value_chars_max may be less

    def parse(self, name: str, text: str) -> str:
        """Returns the text. Raises Problem invalid_query."""
        if len(text) > self.length_max:
            raise Problem("invalid_query", f"{name} has more than {self.length_max} characters", parameter=name)
        return text


class Texts(NamedTuple):
    """A parameter that may be given several times, each with any text. Its values are a tuple."""

    def parse(self, _: str, text: str) -> str:
        """Returns the text."""
        return text


Rule = Number | Word | Text | Texts
Q = TypeVar("Q", bound=Struct)


class NoQuery(Struct, frozen=True):
    """The query of a route that takes none."""


@cache
def rules_of(shape: type[Struct]) -> dict[str, tuple[str, Rule]]:
    """Returns the field and the rule of each name of a query."""
    hints = get_type_hints(shape, include_extras=True)
    return {field.rstrip("_"): (field, hints[field].__metadata__[0]) for field in shape.__struct_fields__}


def read_query(request: Request, shape: type[Q]) -> Q:
    """Returns the query of a request as `shape`. Raises Problem unknown_query, invalid_query."""
    if not request.query:
        return shape()
    raw = request.query
    if "%" in raw:
        _check_utf8(raw)
    rules = rules_of(shape)
    values: dict[str, int | str | tuple[str, ...]] = {}
    length_max = request.http.query_value_chars_max
    for name, text in query_to_pairs(raw):
        if len(text) > length_max:
            raise Problem("invalid_query", f"{name:.64} has more than {length_max} characters", parameter=name[:64])
        field_rule = rules.get(name)
        if field_rule is None:
            names = ", ".join(sorted(rules)) or "none"
            raise Problem("unknown_query", f"{name!r} is not a query parameter here; known: {names}", parameter=name)
        field, rule = field_rule
        if isinstance(rule, Texts):
            before = values.get(field, ())
            assert isinstance(before, tuple)
            values[field] = (*before, rule.parse(name, text))
        elif field in values:
            raise Problem("invalid_query", f"{name} is given twice", parameter=name)
        else:
            values[field] = rule.parse(name, text)
    query = shape(**values)
    return query if request.space is None else request.space.stored_in(query)


def _check_utf8(query_string: str) -> None:
    """Raises Problem invalid_query: yarl would replace other bytes by U+FFFD, and so change a key."""
    try:
        unquote_to_bytes(query_string).decode()
    except UnicodeDecodeError:
        raise Problem("invalid_query", "the query is not UTF-8; send other keys as key_base64 in the body") from None


def path_partition(request: Request) -> int:
    """Returns the partition number in the path. Raises Problem unknown_partition if it is malformed."""
    return partition_number(request.names["partition"])


@lru_cache(maxsize=1024)
def min_partitions(text: str) -> int:
    """Returns how many partitions a topic must have for a path with this text to name one of them."""
    return int(text) + 1 if _PARTITION.fullmatch(text) else 1


@lru_cache(maxsize=1024)
def partition_number(text: str) -> int:
    """Returns a partition number. It has one form: 00 is malformed. Raises Problem unknown_partition."""
    if not _PARTITION.fullmatch(text):
        raise Problem("unknown_partition", f"{text[:64]!r} is not a partition number")
    return int(text)
