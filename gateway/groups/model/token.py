"""The token of a delivery as text: what the next poll sends to commit exactly that delivery.

Self-contained, so that no node has to remember a delivery. The checksum finds damage, not forgery: a client may commit
any of its positions anyway.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from crc32c import crc32c

from gateway.groups.model.errors import InvalidToken
from gateway.groups.model.values import Token

VERSION = 1
OFFSET_MAX = 2**63 - 1
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Token).decode


def encode_token(token: Token) -> str:
    """Returns the token as base64url text: a version, MessagePack, and CRC-32C over both."""
    data = bytes([VERSION]) + _encode(token)
    return base64.urlsafe_b64encode(data + crc32c(data).to_bytes(4, "big")).rstrip(b"=").decode()


def decode_token(text: str) -> Token:
    """Decodes a token. Raises InvalidToken."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise _invalid() from None
    if len(data) < 5 or data[0] != VERSION or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise _invalid()
    try:
        token = _decode(data[1:-4])
    except msgspec.MsgspecError:
        raise _invalid() from None
    if not all(0 <= position.offset <= OFFSET_MAX for position in token.positions):
        raise _invalid()
    return token


def _invalid() -> InvalidToken:
    hint = "send the token of the last answer unchanged, or none"
    return InvalidToken("the token is damaged or of another version", hint=hint, recover={"token": None})
