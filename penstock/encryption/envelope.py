"""The format of an encrypted record: its headers, and what AES-256-GCM authenticates beside the value.

Pure. docs/reference/encryption-format.md describes the format with a worked example. The encrypted value is the nonce,
the ciphertext and the tag. Invariant: a nonce is never used twice with one data key, which the caller sees to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError as error:
    raise ImportError("encryption needs the library cryptography: pip install 'penstock[encryption]'") from error

VERSION = "1"
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16

VERSION_HEADER = "encryption-version"
KEY_ID_HEADER = "encryption-key-id"
KEY_HEADER = "encryption-key"
TOPIC_HEADER = "encryption-topic"
HEADER_NAMES = frozenset({VERSION_HEADER, KEY_ID_HEADER, KEY_HEADER, TOPIC_HEADER})

_LENGTH = struct.Struct(">I")
_NO_KEY = b"\xff\xff\xff\xff"  # in place of the length of a key: the record has none


class Envelope(NamedTuple):
    """Holds what the headers of an encrypted record say."""

    version: str
    key_id: str
    wrapped_key: str  # base64
    topic: str  # the one that the record was first sent to


def envelope_of(headers: Iterable[tuple[str, bytes | None]]) -> Envelope | None:
    """Return what the headers say; None if one is missing. Raises ValueError if one is not UTF-8."""
    found = {name: value for name, value in headers if name in HEADER_NAMES and value is not None}
    if len(found) < len(HEADER_NAMES):
        return None
    return Envelope(*(found[name].decode() for name in (VERSION_HEADER, KEY_ID_HEADER, KEY_HEADER, TOPIC_HEADER)))


def headers_of(envelope: Envelope) -> list[tuple[str, str]]:
    return [
        (VERSION_HEADER, envelope.version),
        (KEY_ID_HEADER, envelope.key_id),
        (KEY_HEADER, envelope.wrapped_key),
        (TOPIC_HEADER, envelope.topic),
    ]


def additional_data(envelope: Envelope, key: bytes | None) -> bytes:
    """Return what is authenticated and not encrypted: first topic, header version, key id, record key."""
    fields = b"".join(_field(text.encode()) for text in (envelope.topic, envelope.version, envelope.key_id))
    return fields + (_NO_KEY if key is None else _field(key))


def encrypt(cipher: AESGCM, nonce: bytes, value: bytes, additional: bytes) -> bytes:
    return nonce + cipher.encrypt(nonce, value, additional)


def decrypt(cipher: AESGCM, stored: bytes, additional: bytes) -> bytes:
    """Return the value. Raises ValueError if it, its key or its headers are not those that were encrypted."""
    if len(stored) < NONCE_BYTES + TAG_BYTES:
        raise ValueError(f"{len(stored)} bytes are too few for a nonce and a tag")
    try:
        return cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], additional)
    except InvalidTag:
        raise ValueError("the tag does not match") from None


def _field(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data
