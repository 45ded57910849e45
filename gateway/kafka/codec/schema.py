"""Parses the tables of messages (gateway/kafka/codec/tables.py) into fields.

A table is a list of fields, `name:type` or `name[…]` for an array of structs and `name{…}` for one struct. Behind the
name and the type come, as far as they differ from the usual: `?` for one that may be null, with the versions where it
may; `@` and the versions that have it; `#` and its tag, `/` and the versions where it is tagged; `=` and its default.
Versions are `3+` or `3-5`, within those of the struct around. A `topic` or a `group` is a string that names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FIELD = re.compile(
    r"(?P<name>\w+)(?::(?P<type>(?:\[\])?\w+))?(?P<nullable>\?[\d+-]*)?(?:@(?P<versions>[\d+-]+))?"
    r"(?:#(?P<tag>\d+)(?:/(?P<tagged>[\d+-]+))?)?(?:=(?P<default>-?\w+))?(?P<opening>[\[{])?"
)
_TOKEN = re.compile(r"[\]}]|[^\s\[\]{}]+(?:\[\]\w[^\s\[\]{}]*)?[\[{]?")


class Versions(NamedTuple):
    """Versions from the first to the last."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NO_VERSION = Versions(0, -1)


TOPIC, GROUP = "topic", "group"
_ENTITIES = frozenset({TOPIC, GROUP})


class Field(NamedTuple):
    """One field. `fields` are those of its struct. `tag` is None unless it is tagged in the `tagged` versions.

    `entity`: the text names a topic or a group.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: str | None
    fields: tuple[Field, ...]
    entity: str = ""


def parse(text: str, versions: Versions) -> tuple[Field, ...]:
    """Returns the fields of a message. Raises ValueError for a text that is not a table."""
    fields, rest = _parse(iter(_TOKEN.findall(text)), versions)
    if rest:
        raise ValueError(f"{rest!r} closes nothing")
    return fields


def _parse(tokens: Iterator[str], within: Versions) -> tuple[tuple[Field, ...], str]:
    """Returns the fields up to the end of their struct, and the word that ends it."""
    fields: list[Field] = []
    for word in tokens:
        if word in "]}":
            return tuple(fields), word
        found = _FIELD.fullmatch(word)
        if found is None:
            raise ValueError(f"{word!r} is not a field")
        versions = _versions(found["versions"], within)
        tagged = _versions(found["tagged"], versions) if found["tag"] is not None else NO_VERSION
        nullable = NO_VERSION if found["nullable"] is None else _versions(found["nullable"][1:], versions)
        kind, opening = found["type"] or "struct", found["opening"]
        inner: tuple[Field, ...] = ()
        if opening:
            inner, closing = _parse(tokens, versions)
            if opening + closing not in ("[]", "{}"):
                raise ValueError(f"{word!r} is closed by {closing!r}")
        is_array = opening == "[" or kind.startswith("[]")
        kind = kind.removeprefix("[]")
        fields.append(
            Field(
                found["name"],
                "string" if kind in _ENTITIES else kind,
                is_array,
                versions,
                nullable,
                None if found["tag"] is None else int(found["tag"]),
                tagged,
                found["default"],
                inner,
                kind if kind in _ENTITIES else "",
            )
        )
    return tuple(fields), ""


def _versions(text: str | None, within: Versions) -> Versions:
    if not text:
        return within
    if text.endswith("+"):
        return Versions(int(text[:-1]), within.last)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last))
