"""`penstock consume --output`: formats each record by a template such as `{partition}/{offset} {time} {value}`."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from string import Formatter

from penstock.cli.output import format_time
from penstock.records import Record

_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\0": "\0", r"\\": "\\"}
_ESCAPE = re.compile(r"\\[nt0\\]")

Shown = Callable[[Record], str]

FIELDS: dict[str, Shown] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: str(record.partition),
    "offset": lambda record: str(record.offset),
    "time": lambda record: format_time(record.timestamp),
    "timestamp": lambda record: str(record.timestamp),
    "key": lambda record: _text(record.key),
    "value": lambda record: _text(record.value) if record.error is None else f"({record.error})",
    "headers": lambda record: _headers(record.headers),
}


def parse_template(text: str) -> Shown:
    """Returns a function that formats a record by the template. `{{` is a brace; \\n, \\t, \\0 and \\\\ are escapes.

    Raises ValueError for a field that records do not have.
    """
    parts: list[Shown] = []
    for literal, name, how, conversion in Formatter().parse(_ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)):
        if literal:
            parts.append(_constant(literal))
        if name is not None:
            if name not in FIELDS or how or conversion:
                raise ValueError(f"no field {{{name}}}; there are {', '.join(FIELDS)}")
            parts.append(FIELDS[name])
    return lambda record: "".join([part(record) for part in parts])


def _constant(text: str) -> Shown:
    return lambda _: text


def _text(data: bytes | None) -> str:
    """Returns bytes as text, or as base64 if they are not UTF-8. None (no key, or a tombstone) is empty."""
    if data is None:
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return b64encode(data).decode()


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> str:
    return ",".join(f"{name}={_text(value)}" for name, value in headers)
