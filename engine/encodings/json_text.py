"""Makes the JSON text of a decoded value without loss.

Bytes are base64 text, times ISO 8601 text, decimals exact numbers. JSON has no NaN and no infinity: they are the text
`NaN`, `Infinity` and `-Infinity`, as Protobuf's mapping to JSON has it.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.encodings.undecodable import Undecodable

TEXT_BYTES_MAX = 256 << 20  # of one value: a small value may repeat a large one by reference


def json_text(value: Mapping[Any, Any]) -> bytes:
    """Returns the text of an object. Raises Undecodable, TypeError, RecursionError."""
    if not isinstance(value, Mapping):
        raise Undecodable("not_an_object", f"the value is {type(value).__name__}, not an object with members")
    return text_of(value)


def text_of(value: Any) -> bytes:
    """Returns the text of any value. Raises Undecodable, TypeError, RecursionError."""
    text: bytes = _ENCODER.encode(value)
    if b"null" in text:  # msgspec writes NaN as null
        text = _ENCODER.encode(_without_nan(value))
    if len(text) > TEXT_BYTES_MAX:
        raise Undecodable("too_large", f"the value has {len(text):,} bytes as JSON; the limit is {TEXT_BYTES_MAX:,}")
    return text


def _without_nan(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {name: _without_nan(member) for name, member in value.items()}
        case list() | tuple():
            return [_without_nan(item) for item in value]
    return value


def _other(value: object) -> object:
    if isinstance(value, msgspec.msgpack.Ext):
        return {"type": value.code, "data": b64encode(value.data).decode()}
    raise TypeError(f"a value of the type {type(value).__name__} has no JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_other, decimal_format="number")
