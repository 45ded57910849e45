"""Prepares a record before it becomes a line: interceptors first, then serializers, then encryption.

A serializer encodes a value or a key as bytes: JSON, text, bytes, or a form that another package provides as an entry
point of the group `penstock.serializers`, found by its name. None is never serialized: it is a missing key, or a
tombstone. penstock/producer/lines.py puts the bytes on a line; penstock/producer/dispatch.py calls interceptors again
with the result of each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from penstock.producer.lines import Headers, HeaderValue, Line, key_bytes, line_of, pairs_of, value_bytes
from penstock.records import Timestamp

if TYPE_CHECKING:
    from penstock.encryption.encryption import Encryption

ENTRY_POINTS = "penstock.serializers"


class Serializer(Protocol):
    content_type: str | None
    """The record's `content-type` header unless the caller gives one; None: no header, as for JSON."""

    def serialize(self, topic: str, value: Any) -> bytes:
        """Returns the bytes of a value. Raises TypeError or ValueError if it has no such form; send() raises it too."""


class JsonSerializer:
    """Serializes any value that orjson accepts. Bytes are not accepted: JSON text as bytes needs no serializer."""

    content_type: str | None = None

    def serialize(self, topic: str, value: Any) -> bytes:
        return orjson.dumps(value, None, orjson.OPT_NON_STR_KEYS)


class StringSerializer:
    content_type: str | None = "text/plain; charset=utf-8"

    def serialize(self, topic: str, value: Any) -> bytes:
        """Encodes text as UTF-8. Raises TypeError for anything else."""
        if not isinstance(value, str):
            raise TypeError(f"the string serializer takes text, not {type(value).__name__}")
        return value.encode()


class BytesSerializer:
    """Passes bytes through and rejects anything else: protects against values that would silently become JSON."""

    content_type: str | None = None

    def serialize(self, topic: str, value: Any) -> bytes:
        """Returns the bytes. Raises TypeError for anything else."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"the bytes serializer takes bytes, not {type(value).__name__}")
        return bytes(value)


_OWN: dict[str, Callable[..., Serializer]] = {
    "json": JsonSerializer,
    "string": StringSerializer,
    "bytes": BytesSerializer,
}


def load_serializer(name: str, **settings: Any) -> Serializer:
    """Makes the serializer of this name with these settings. Raises ValueError if no package provides it."""
    if name in _OWN:
        return _OWN[name](**settings)
    brought = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in brought:
        names = ", ".join(sorted({*_OWN, *brought}))
        raise ValueError(
            f"no serializer {name!r}; available: {names}. Install a package with an entry point {name!r} in the group "
            f"{ENTRY_POINTS}"
        )
    made: Serializer = brought[name].load()(**settings)
    return made


def as_serializer(given: str | Serializer | None) -> Serializer | None:
    return load_serializer(given) if isinstance(given, str) else given


class OutgoingRecord(NamedTuple):
    """Holds a record as the caller gave it; `_replace` makes a changed copy."""

    topic: str
    value: Any
    key: Any = None
    headers: Headers | None = None
    timestamp: Timestamp | None = None
    partition: int | None = None


class Interceptor(Protocol):
    """Sees every record of a producer, in the order of the list. Must be fast: it runs in send()'s thread."""

    def before_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Returns the record, or another in its place. send() raises its errors, and nothing is sent."""

    def on_delivery(self, record: OutgoingRecord, result: Any) -> None:
        """Receives the RecordPosition, or the ClientError that the record failed with. Must not raise."""


def _with_default_headers(
    headers: Headers | None, defaults: Sequence[tuple[str, HeaderValue]]
) -> list[tuple[str, HeaderValue]]:
    given = pairs_of(headers or ())
    names = {name for name, _ in given}
    return [*given, *(header for header in defaults if header[0] not in names)]


def encrypted(
    encryption: Encryption, topic: str, value: Any, key: Any, headers: Headers | None
) -> tuple[bytes | None, Headers | None]:
    """Returns the encrypted value of a record, and its headers with those that open it. A tombstone stays one.

    Raises as line_of(), ValueError for the headers of another encryption, and what the key ring raises.
    """
    if value is None:
        return None, headers
    pairs = pairs_of(headers or ())
    if len(encryption.without_envelope(pairs)) < len(pairs):
        raise ValueError("the record has headers of an encryption; decrypt it first, or send it without encryption")
    sealed = encryption.seal(topic, None if key is None else key_bytes(key), value_bytes(value))
    return sealed.value, [*pairs, *sealed.headers]


Prepared = tuple[str, Line, Any, int | None, OutgoingRecord | None]
"""Topic, line, key, partition, and the record for interceptors if there are any. Bare: a named tuple costs more."""


class Preparation:
    """Applies a producer's interceptors, serializers and encryption.

    Synchronous; the sync producer uses the caller's thread.
    """

    def __init__(
        self,
        key: Serializer | None,
        value: Serializer | None,
        interceptors: Sequence[Interceptor],
        headers: Headers = (),
        encryption: Encryption | None = None,
    ) -> None:
        """`headers` are those of every record that has none of their name."""
        self._key = key
        self._value = value
        self.interceptors = tuple(interceptors)
        self._headers = pairs_of(headers)
        self._encryption = encryption
        self._is_needed = bool(key or value or self.interceptors or self._headers or encryption)

    def prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        timestamp: Timestamp | None,
        partition: int | None,
    ) -> Prepared:
        """Makes the line of a record. Raises TypeError, ValueError, and the errors of interceptors."""
        if self._is_needed:
            if self._headers:
                headers = _with_default_headers(headers, self._headers)
            return self._with_interceptors(OutgoingRecord(topic, value, key, headers, timestamp, partition))
        return topic, line_of(value, key, headers, timestamp), key, partition, None

    def _with_interceptors(self, record: OutgoingRecord) -> Prepared:
        for interceptor in self.interceptors:
            record = interceptor.before_send(record)
        topic, value, key, headers, timestamp, partition = record
        if self._key is not None and key is not None:
            key = self._key.serialize(topic, key)
        if self._value is not None and value is not None:
            value = self._value.serialize(topic, value)
            headers = _with_content_type(headers, self._value.content_type)
        if self._encryption is not None:
            value, headers = encrypted(self._encryption, topic, value, key, headers)
        original = record if self.interceptors else None
        return topic, line_of(value, key, headers, timestamp), key, partition, original

    def notify(self, record: OutgoingRecord, result: Any) -> list[Exception]:
        """Calls every interceptor with the result of a record. Returns the errors that they raise."""
        raised: list[Exception] = []
        for interceptor in self.interceptors:
            try:
                interceptor.on_delivery(record, result)
            except Exception as error:
                raised.append(error)
        return raised


def _with_content_type(headers: Headers | None, content_type: str | None) -> Headers | None:
    if content_type is None:
        return headers
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    if any(name.lower() == "content-type" for name, _ in pairs):
        return headers if isinstance(headers, Mapping) else pairs
    return (
        {**headers, "content-type": content_type}
        if isinstance(headers, Mapping)
        else [*pairs, ("content-type", content_type)]
    )


def with_keys(values: Iterable[Any], keys: Iterable[Any] | None) -> Iterable[tuple[Any, Any]]:
    """Pairs values with their keys, or with None. Raises ValueError, while iterating, if their numbers differ."""
    return zip(values, repeat(None), strict=False) if keys is None else zip(values, keys, strict=True)
