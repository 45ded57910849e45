"""A fetched record, decoded from the JSON answer without parsing the values.

The value stays as the node sent it and is parsed only by json(). A value that is not JSON is returned exactly as
stored. JSON may differ in white space, and a stored `null` is indistinguishable from a tombstone. A record keeps the
buffer of its whole fetch in memory: keep `value` instead if you keep it for long.
"""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime
from typing import Any

import msgspec
import orjson

from penstock.errors import UndecodableBatch

Timestamp = int | datetime

TRACE_HEADERS = ("traceparent", "tracestate")  # W3C Trace Context

_LINE_ENDS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
_NULL = msgspec.Raw(b"null")
_NO_HEADERS = msgspec.Raw(b"{}")


class Record(msgspec.Struct, gc=False):
    """Holds one event. `key` and `value` are bytes as stored; None for a missing key and for a tombstone."""

    offset: int
    timestamp: int = -1
    topic: str = ""  # set after decoding: the answer has it once for all its records
    partition: int = -1
    error: str | None = None  # "undecodable": a stored batch that cannot be decoded; its value raises
    last_offset: int | None = None  # of such a batch
    _key: str | None = msgspec.field(name="key", default=None)
    _key_base64: str | None = msgspec.field(name="key_base64", default=None)
    _value: msgspec.Raw = msgspec.field(name="value", default=_NULL)
    _value_base64: str | None = msgspec.field(name="value_base64", default=None)
    _headers: msgspec.Raw = msgspec.field(name="headers", default=_NO_HEADERS)
    _deserializers: Any = None  # Deserializers of the consumer, set after decoding

    def __repr__(self) -> str:
        return f"<Record {self.topic}/{self.partition}@{self.offset}{' ' + self.error if self.error else ''}>"

    @property
    def key(self) -> bytes | None:
        if self._key is not None:
            return self._key.encode()
        return None if self._key_base64 is None else b64decode(self._key_base64)

    @property
    def value(self) -> bytes | None:
        """The stored bytes, except for white space in JSON; with encryption, those that were encrypted.

        Raises UndecodableBatch, EncryptionFailed.
        """
        made = self._deserializers
        if made is None or made.encryption is None:
            return self._stored_value()
        accepted = (self.topic,) if made.first_topics is None else made.first_topics
        return made.encryption.open(  # type: ignore[no-any-return]
            self._stored_headers(), self.key, self._stored_value(), self, accepted
        )

    @property
    def first_topic(self) -> str | None:
        """With encryption, the topic that the value was first sent to; None for a tombstone and a value in the clear.

        It is authenticated with the value, whether the consumer accepts this topic or not. Raises as `value`.
        """
        made = self._deserializers
        if made is None or made.encryption is None:
            return None
        return made.encryption.first_topic(  # type: ignore[no-any-return]
            self._stored_headers(), self.key, self._stored_value(), self
        )

    def _stored_value(self) -> bytes | None:
        if self._value_base64 is not None:
            return b64decode(self._value_base64)
        if self.error is not None:
            raise UndecodableBatch(f"{self!r} up to offset {self.last_offset} cannot be decoded")
        raw = bytes(self._value)
        return None if raw == b"null" else raw

    def json(self) -> Any:
        """Parses the value as JSON; None for a tombstone. Raises ValueError if it is not JSON, and as `value`."""
        value = self.value
        return None if value is None else orjson.loads(value)

    def decoded(self) -> Any:
        """Returns what the consumer's value_deserializer makes of the value, else its bytes; None for a tombstone.

        Raises as `value`, and what the deserializer raises.
        """
        return self._deserialize(self.value, None if self._deserializers is None else self._deserializers.value)

    def decoded_key(self) -> Any:
        """Returns what the consumer's key_deserializer makes of the key, else its bytes; None without a key."""
        return self._deserialize(self.key, None if self._deserializers is None else self._deserializers.key)

    def _deserialize(self, data: bytes | None, deserializer: Any) -> Any:
        return data if data is None or deserializer is None else deserializer.deserialize(self.topic, data)

    @property
    def value_json(self) -> bytes:
        """The stored value as JSON, as in a line of `ndjson=values`; bytes that are not JSON as `value_base64`.

        Encryption is not undone here, nor by line().
        """
        if self._value_base64 is not None:
            return orjson.dumps({"value_base64": self._value_base64})
        return bytes(self._value)

    def line(self, *, has_topic: bool = False) -> bytes:
        """Returns the record as a line of NDJSON in the form of its answer, with its partition first."""
        fields: dict[str, Any] = {"topic": self.topic} if has_topic else {}
        fields |= {"partition": self.partition, "offset": self.offset}
        if self.error is not None:
            return _encode_line({**fields, "last_offset": self.last_offset, "error": self.error}) + b"\n"
        key = {"key": self._key} if self._key_base64 is None else {"key_base64": self._key_base64}
        value = {"value": one_line(self._value)} if self._value_base64 is None else {"value_base64": self._value_base64}
        fields |= {"timestamp": self.timestamp, **key, **value, "headers": one_line(self._headers)}
        return _encode_line(fields) + b"\n"

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Names and values. A name may occur several times. With encryption, without the headers that it added."""
        made, headers = self._deserializers, self._stored_headers()
        if made is None or made.encryption is None:
            return headers
        return made.encryption.without_envelope(headers)  # type: ignore[no-any-return]

    @property
    def trace_context(self) -> dict[str, str]:
        """The context of the trace that the record is of, as OpenTelemetry's propagators take it; empty without one.

        A CloudEvent has it in its extension attributes, which come first.
        """
        by_name = {name.lower(): value for name, value in self._stored_headers() if value is not None}
        for prefix in ("ce_", ""):
            if prefix + TRACE_HEADERS[0] in by_name:
                names = [name for name in TRACE_HEADERS if prefix + name in by_name]
                return {name: by_name[prefix + name].decode("latin-1") for name in names}
        return {}

    def _stored_headers(self) -> list[tuple[str, bytes | None]]:
        return [
            (name, _header_bytes(part))
            for name, value in orjson.loads(bytes(self._headers)).items()
            for part in (value if isinstance(value, list) else [value])
        ]

    @property
    def next_offset(self) -> int:
        """The offset from which to continue after this record."""
        return (self.offset if self.last_offset is None else self.last_offset) + 1


class _Fetched(msgspec.Struct):
    topic: str
    partition: int
    records: list[Record]


_decode = msgspec.json.Decoder(_Fetched).decode
_encode_line = msgspec.json.Encoder().encode


_decode_line = msgspec.json.Decoder(Record).decode


def one_line(json: msgspec.Raw | bytes) -> msgspec.Raw:
    """Returns JSON without line ends, which are white space in it."""
    return msgspec.Raw(bytes(json).translate(_LINE_ENDS_TO_SPACES))


def decode_line(line: bytes) -> Record:
    """Decodes one line of an NDJSON answer, which has neither topic nor partition. Raises ValueError."""
    return _decode_line(line)


def with_deserializers(records: list[Record], deserializers: Any) -> list[Record]:
    """Gives records the deserializers of their consumer."""
    for record in records:
        record._deserializers = deserializers
    return records


def decode_records(body: bytes) -> list[Record]:
    """Decodes the records of one JSON answer to a fetch. Raises ValueError if it is not one."""
    fetched = _decode(body)
    topic, partition = fetched.topic, fetched.partition
    for record in fetched.records:
        record.topic = topic
        record.partition = partition
    return fetched.records


def _header_bytes(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return None if value is None else str(value).encode()


def milliseconds(timestamp: Timestamp) -> int:
    """Returns milliseconds since 1970. Raises ValueError for a datetime without a time zone."""
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise ValueError("a timestamp needs a time zone")
        return round(timestamp.timestamp() * 1000)
    return int(timestamp)
