"""Encodes a record as one NDJSON line, in one of two forms. Pure, and on the hot path of producing.

A *plain* line is only the record's JSON value (`ndjson=values`). A record with a key, headers, a timestamp, or a value
that is not JSON needs a record object (`ndjson=records`). Plain lines are batched separately, because the node stores
them fastest.

Invariant: a value given as bytes is stored as exactly these bytes. JSON text that a line cannot carry unchanged (line
breaks, outer white space) is therefore sent as base64, like bytes that are not JSON at all.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec
import orjson

from penstock.records import Timestamp, milliseconds

HeaderValue = str | bytes | None
Headers = Mapping[str, HeaderValue | Sequence[HeaderValue]] | Iterable[tuple[str, HeaderValue]]

# The node uses the same parser, so both agree about what is JSON.
_parse_raw = msgspec.json.Decoder(msgspec.Raw).decode
_dumps = orjson.dumps
_NON_STR_KEYS = orjson.OPT_NON_STR_KEYS


Line = tuple[bytes, bool]
"""The text of a line and whether it is plain. A bare tuple, because a named one costs as much as the whole encoding."""


def line_of(value: Any, key: Any = None, headers: Headers | None = None, timestamp: Timestamp | None = None) -> Line:
    """Makes the line of one record. Raises TypeError or ValueError if it cannot be encoded."""
    # 1. Bytes that are one JSON value are sent unchanged. 2. Other bytes are sent as base64. So is a JSON string given
    # as bytes with headers, because a content type may make the node treat it as text. 3. Anything else is encoded as
    # JSON here, so the caller may change the object afterwards.
    if type(value) is bytes:
        is_json = is_json_line(value) and not (headers and value[:1] == b'"')
        text = value if is_json else b64encode(value)
    else:
        is_json = True
        text = _dumps(value, None, _NON_STR_KEYS)
    if key is None and headers is None and timestamp is None and is_json and value is not None:
        return text, True
    fields = [_key_field(key)] if key is not None else []
    fields.append(b'"value":' + text if is_json else b'"value_base64":"' + text + b'"')
    if headers is not None:
        fields.append(b'"headers":' + _headers_object(headers))
    if timestamp is not None:
        fields.append(b'"timestamp":%d' % milliseconds(timestamp))
    return b"{" + b",".join(fields) + b"}", False


def value_bytes(value: Any) -> bytes:
    """Return the bytes that are stored for a value. Raises TypeError if it cannot be encoded."""
    return value if type(value) is bytes else _dumps(value, None, _NON_STR_KEYS)


def as_record_line(plain: bytes) -> bytes:
    """Returns a plain line as a record object, for a batch in which another record needs one."""
    return b'{"value":' + plain + b"}"


def key_bytes(key: Any) -> bytes:
    """Returns the bytes that the node stores for a key. They decide its partition."""
    if type(key) is bytes:
        return key
    return key.encode() if isinstance(key, str) else _dumps(_check_key(key), None, _NON_STR_KEYS)


def _check_key(key: Any) -> Any:
    """Returns a key that is neither text nor bytes.

    Raises TypeError unless it is a JSON value: orjson would store a date or a UUID with quotes around it, and so in
    another partition than the same text. Raises ValueError for NaN and infinities, which would become no key.
    """
    if not isinstance(key, (int, float, dict, list, tuple)):
        text = f"a key is text, bytes or a JSON value, not {type(key).__name__}; give str(key), or a key_serializer"
        raise TypeError(text)
    if isinstance(key, float) and not isfinite(key):
        raise ValueError(f"a key cannot be {key}, which JSON does not have")
    return key


def is_json_line(value: bytes) -> bool:
    """True if these bytes are one JSON value that can be a line unchanged, and not the tombstone `null`."""
    try:
        if len(_parse_raw(value)) != len(value) or b"\n" in value or value == b"null":
            return False
        if not value.isascii():
            value.decode()
    except (ValueError, RecursionError):  # msgspec or the UTF-8 decoder; RecursionError if nested too deeply
        return False
    return True


def _key_field(key: Any) -> bytes:
    if isinstance(key, str):
        return b'"key":' + _dumps(key)
    if type(key) is not bytes:
        return b'"key":' + _dumps(_check_key(key), None, _NON_STR_KEYS)
    try:
        return b'"key":' + _dumps(key.decode())
    except UnicodeDecodeError:
        return b'"key_base64":"' + b64encode(key) + b'"'


def pairs_of(headers: Headers) -> list[tuple[str, HeaderValue]]:
    """Returns the headers as names and values; a name of several values comes as often."""
    if not isinstance(headers, Mapping):
        return list(headers)
    pairs: list[tuple[str, Any]] = []
    for name, value in headers.items():
        pairs += [(name, part) for part in (value if isinstance(value, (list, tuple)) else [value])]
    return pairs


def _headers_object(headers: Headers) -> bytes:
    """Returns the headers as a JSON object. Repeated names become arrays, in the order of their values."""
    grouped: dict[str, list[Any]] = {}
    for name, part in pairs_of(headers):
        grouped.setdefault(name, []).append(_header_value(part))
    return _dumps({name: values[0] if len(values) == 1 else values for name, values in grouped.items()})


def _header_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"a header value is text, bytes or None, not {type(value).__name__}")
