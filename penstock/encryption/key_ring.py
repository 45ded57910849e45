"""Key rings: they wrap the data keys that encrypt values, and unwrap them for consumers.

A key ring has a current key for wrapping and may have older ones for unwrapping. FileKeyRing keeps them in a file;
another one asks a key management service, as docs/encrypt.md shows. The client caches data keys, so a ring is asked
once for each of them.
"""

from __future__ import annotations

import tomllib
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from penstock.encryption.envelope import KEY_BYTES

_READABLE_BY_OTHERS = 0o007


class WrappedKey(NamedTuple):
    """Holds a data key as it is stored in records, and the id of the key that wrapped it."""

    key_id: str
    wrapped: bytes


class KeyRing(Protocol):
    """Both methods may be called from several threads, and block their caller."""

    def wrap(self, data_key: bytes) -> WrappedKey:
        """Wrap a data key of 32 bytes with the current key."""

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the data key. Raises KeyError without such a key, ValueError if it did not wrap these bytes."""


class FileKeyRing:
    """Keeps keys of 32 bytes in a TOML file, and wraps by AES key wrap (RFC 3394)."""

    def __init__(self, path: str | Path) -> None:
        """Read the file once. Raises OSError, ValueError if it is not a key ring, or others may read it."""
        path = Path(path)
        if path.stat().st_mode & _READABLE_BY_OTHERS:
            raise ValueError(f"{path}: every user of this machine can read the keys; run: chmod 600 {path}")
        try:
            document = tomllib.loads(path.read_text())
            self._keys = _keys_of(document)
            self._current = str(document["current"])
            _ = self._keys[self._current]
        except KeyError as error:
            raise ValueError(f"{path}: {error} is missing; a key ring has `current`, and this key in [keys]") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def __repr__(self) -> str:
        return f"<FileKeyRing current={self._current} keys={len(self._keys)}>"

    def wrap(self, data_key: bytes) -> WrappedKey:
        return WrappedKey(self._current, aes_key_wrap(self._keys[self._current], data_key))

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the data key. Raises KeyError without such a key, ValueError if it did not wrap these bytes."""
        try:
            return aes_key_unwrap(self._keys[key_id], wrapped)
        except InvalidUnwrap:
            raise ValueError("the key did not wrap these bytes") from None


def _keys_of(document: Mapping[str, object]) -> dict[str, bytes]:
    """Return the keys of a file. Raises KeyError, ValueError, both without the bytes of a key."""
    found = document["keys"]
    if not isinstance(found, dict):
        raise ValueError("[keys] is not a table")
    keys: dict[str, bytes] = {}
    for key_id, text in found.items():
        try:
            keys[key_id] = b64decode(text, validate=True)
        except (TypeError, ValueError):
            raise ValueError(f"key {key_id!r} is not base64") from None
        if len(keys[key_id]) != KEY_BYTES:
            raise ValueError(f"key {key_id!r} has {len(keys[key_id])} bytes, not {KEY_BYTES}")
    return keys
