"""What is done to a record before it is a line: interceptors first, serializers then.

A producer with neither does not come here. Knows nothing of batches or requests; penstock/producer/producer.py calls
the interceptors again when a record has its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.producer.lines import Headers, Line, line_of
from penstock.producer.serializers import Serializer
from penstock.records import Timestamp


class OutgoingRecord(NamedTuple):
    """A record as the caller gave it; `_replace` makes another."""

    topic: str
    value: Any
    key: Any = None
    headers: Headers | None = None
    timestamp: Timestamp | None = None
    partition: int | None = None


class Interceptor(Protocol):
    """Sees every record of a producer, in the order of the list. Called where send() is called, so it must be quick."""

    def before_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record, or another in its place. What it raises, send() raises, and nothing is sent."""

    def on_delivery(self, record: OutgoingRecord, result: Any) -> None:
        """`result` is the RecordPosition, or the ClientError that the record failed with. Must not raise."""


class Prepared(NamedTuple):
    """A record that is ready for its batch."""

    topic: str
    line: Line
    key: Any
    partition: int | None
    record: OutgoingRecord | None  # kept only for interceptors


class Preparation:
    """The interceptors and serializers of one producer. Sync; the sync producer calls it in the caller's thread."""

    def __init__(self, key: Serializer | None, value: Serializer | None, interceptors: Sequence[Interceptor]) -> None:
        self._key = key
        self._value = value
        self.interceptors = tuple(interceptors)

    @property
    def is_needed(self) -> bool:
        return bool(self._key or self._value or self.interceptors)

    def prepare(self, record: OutgoingRecord) -> Prepared:
        for interceptor in self.interceptors:
            record = interceptor.before_send(record)
        topic, value, key, headers, timestamp, partition = record
        if self._key is not None and key is not None:
            key = self._key.serialize(topic, key)
        if self._value is not None and value is not None:
            value = self._value.serialize(topic, value)
            headers = _with_content_type(headers, self._value.content_type)
        kept = record if self.interceptors else None
        return Prepared(topic, line_of(value, key, headers, timestamp), key, partition, kept)

    def tell(self, record: OutgoingRecord, result: Any) -> list[Exception]:
        """The record has its result. What interceptors raise is given back: it must not cost the others theirs."""
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
