"""How a value or a key becomes bytes: JSON, text, bytes, or a form that another package brings.

Not how bytes travel: penstock/producer/lines.py puts them on a line. A package offers a form, say Avro, as an entry
point of the group `penstock.serializers`, whose name is the form's; it is found by that name and given the caller's
settings. Rule of all: None is never serialized, because it is the absence of a key, and a tombstone as a value.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol

import orjson

ENTRY_POINTS = "penstock.serializers"


class Serializer(Protocol):
    content_type: str | None
    """What the record's `content-type` header says unless the caller gives one; None: nothing, as for JSON."""

    def serialize(self, topic: str, value: Any) -> bytes:
        """Raises TypeError or ValueError for a value that has no such form; send() passes it on."""


class JsonSerializer:
    """Anything that orjson takes. Not bytes: whoever has JSON text as bytes needs no serializer."""

    content_type: str | None = None

    def serialize(self, topic: str, value: Any) -> bytes:
        return orjson.dumps(value, None, orjson.OPT_NON_STR_KEYS)


class StringSerializer:
    content_type: str | None = "text/plain; charset=utf-8"

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"the string serializer takes text, not {type(value).__name__}")
        return value.encode()


class BytesSerializer:
    """Bytes as they are, and nothing else: a guard against values that would silently become JSON."""

    content_type: str | None = None

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"the bytes serializer takes bytes, not {type(value).__name__}")
        return bytes(value)


_OWN: dict[str, Callable[..., Serializer]] = {
    "json": JsonSerializer,
    "string": StringSerializer,
    "bytes": BytesSerializer,
}


def load_serializer(name: str, **settings: Any) -> Serializer:
    """The serializer of this name, made with these settings. Raises ValueError when nobody brings one."""
    if name in _OWN:
        return _OWN[name](**settings)
    brought = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in brought:
        known = ", ".join(sorted({*_OWN, *brought}))
        raise ValueError(
            f"no serializer {name!r}; there are {known}. Install a package with an entry point {name!r} in the group "
            f"{ENTRY_POINTS}"
        )
    made: Serializer = brought[name].load()(**settings)
    return made


def as_serializer(given: str | Serializer | None) -> Serializer | None:
    return load_serializer(given) if isinstance(given, str) else given
