"""Decoders of lines: CSV, delimited text, and named groups of a regular expression.

Options: `names`, the members in order; `types`, the declared types of members, by which text becomes numbers;
`delimiter`, `quote`; `pattern`. An empty field is null.

A field that is not of its declared type stays text, which is a value of another type than its column.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from engine.encodings.undecodable import Undecodable

try:
    import re2
except ImportError:
    re2 = None

FIELD_CHARS_MAX = 16 << 20  # Python's csv allows 131,072
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_SWITCHES = {"true": True, "false": False}
_JSON = msgspec.json.Decoder(msgspec.Raw)

Decode = Callable[[bytes], dict[str, object]]


def decoder_of(options: Mapping[str, Any]) -> Decode:
    """Returns the decoder of CSV or of a regular expression. Raises ValueError."""
    return _csv(options) if options["payload"] == "csv" else _expression(options)


def delimited_of(options: Mapping[str, Any]) -> Decode:
    """Returns a decoder that splits at each delimiter; there are no quotes."""
    names, delimiter, fields = options["names"], options.get("delimiter", "\t"), _Fields(options)

    def decode(value: bytes) -> dict[str, object]:
        return fields.members(names, value.decode().removesuffix("\n").removesuffix("\r").split(delimiter))

    return decode


def _csv(options: Mapping[str, Any]) -> Decode:
    names, fields = options["names"], _Fields(options)
    form = {"delimiter": options.get("delimiter", ","), "quotechar": options.get("quote", '"'), "strict": True}
    csv.reader([""], **form)

    def decode(value: bytes) -> dict[str, object]:
        csv.field_size_limit(FIELD_CHARS_MAX)
        try:
            rows = list(csv.reader([value.decode()], **form))
        except csv.Error as error:
            raise Undecodable("not_csv", str(error)) from error
        if len(rows) != 1:
            raise Undecodable("wrong_columns", f"the value has {len(rows)} lines instead of one")
        return fields.members(names, rows[0])

    return decode


def _expression(options: Mapping[str, Any]) -> Decode:
    """Raises ValueError for a pattern without named groups, or one that the engine rejects."""
    pattern, fields = options["pattern"], _Fields(options)
    find, names = _compile(pattern)
    if not names:
        raise ValueError("the pattern has no named group, such as (?P<status>[0-9]+)")

    def decode(value: bytes) -> dict[str, object]:
        match = find(value.decode().removesuffix("\n").removesuffix("\r"))
        if match is None:
            raise Undecodable("no_match", "the value does not match the pattern")
        groups = match.groupdict()
        return fields.members(names, [groups[name] for name in names])

    return decode


def _compile(pattern: str) -> tuple[Callable[[str], Any], list[str]]:
    """Returns a function that matches a whole text, in linear time if RE2 is installed, and the names of groups."""
    if re2 is not None:
        settings = re2.Options()
        settings.log_errors = False
        try:
            compiled = re2.compile(pattern, settings)
        except re2.error as error:
            raise ValueError(f"{error}; the syntax is RE2's") from error
        return compiled.fullmatch, list(compiled.groupindex)
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern is wrong: {error}") from error
    return expression.fullmatch, list(expression.groupindex)


class _Fields:
    """Makes members of the texts of fields."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._kinds = dict(options.get("types", {}))

    def members(self, names: Sequence[str], texts: Sequence[str | None]) -> dict[str, object]:
        """Raises Undecodable if there are more or fewer fields than names."""
        if len(texts) != len(names):
            raise Undecodable("wrong_columns", f"the value has {len(texts)} fields, {len(names)} are named")
        kinds = self._kinds
        return {
            name: None if not text else _typed(text, kinds[name]) if name in kinds else text
            for name, text in zip(names, texts, strict=True)
        }


def _typed(text: str, kind: str) -> object:
    """Returns the JSON of a text as a value of a type; the text itself if it is not one."""
    if kind == "boolean":
        return _SWITCHES.get(text.lower(), text)
    if kind == "json":
        try:
            return _JSON.decode(text)
        except msgspec.DecodeError:
            return text
    if kind == "string" or not (_WHOLE if kind == "bigint" else _NUMBER).fullmatch(text):
        return text
    return msgspec.Raw(text.encode())
