"""Encrypts the values of a client's producers and decrypts those of its consumers.

Keeps the data key in use, which is replaced after a time and a number of records, and the unwrapped keys of records
that were read. Not the format, which is envelope.py's, nor the keys that wrap, which are the key ring's. Any number of
threads may call. Invariant: at most `key_records_max` values are encrypted with one data key, each with a random nonce
of 96 bits; NIST SP 800-38D allows 2^32 of them.
"""

from __future__ import annotations

import os
import threading
import time
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.encryption.envelope import (
    HEADER_NAMES,
    KEY_BYTES,
    NONCE_BYTES,
    VERSION,
    Envelope,
    additional_data,
    decrypt,
    encrypt,
    envelope_of,
    headers_of,
)
from penstock.encryption.key_ring import KeyRing
from penstock.errors import EncryptionFailed

_CACHED_KEYS_MAX = 1024  # an untrusted writer may send records with many keys; each costs some 500 bytes

ValueT = TypeVar("ValueT")
StoredHeaders = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True)
class EncryptionStatistics:
    """Counts the data keys of an Encryption. The fields of the present key are None before the first record."""

    key_id: str | None  # of the key that wrapped the data key in use
    key_age_s: float | None  # a new key of the ring is used once the data key is replaced
    key_records: int | None  # encrypted with the data key in use
    keys_made: int
    keys_unwrapped: int


class Sealed(NamedTuple):
    """Holds a value as it is stored, and the headers that open it."""

    value: bytes
    headers: list[tuple[str, str]]


class _DataKey:
    """A data key in use. `records` changes under the lock of its Encryption."""

    def __init__(self, cipher: AESGCM, key_id: str, wrapped: str, made_at: float) -> None:
        self.cipher = cipher
        self.key_id = key_id
        self.wrapped = wrapped
        self.made_at = made_at
        self.records = 0


class Encryption:
    """Give it to a client: `Client(url, encryption=Encryption(FileKeyRing("keys.toml")))`."""

    def __init__(
        self,
        key_ring: KeyRing,
        *,
        is_required: bool = True,
        key_age_s_max: float = 12 * 3600,
        key_records_max: int = 2**20,
        now: Callable[[], float] = time.monotonic,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """With `is_required`, a value that is not encrypted raises when it is read, except for a tombstone.

        `random_bytes` must be fit for keys. Raises ValueError for a bound that is not positive, or over 2^32 records.
        """
        if key_age_s_max <= 0 or not 0 < key_records_max <= 2**32:
            raise ValueError("key_age_s_max must be positive, and key_records_max from 1 to 2**32")
        self._key_ring = key_ring
        self._is_required = is_required
        self._key_age_s_max = key_age_s_max
        self._key_records_max = key_records_max
        self._now = now
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._key: _DataKey | None = None
        self._ciphers: OrderedDict[tuple[str, str], AESGCM] = OrderedDict()  # by key id and wrapped key
        self._keys_made = self._keys_unwrapped = 0

    def __repr__(self) -> str:
        return f"<Encryption {self._key_ring!r} {self.statistics()}>"

    def statistics(self) -> EncryptionStatistics:
        key = self._key
        made, unwrapped = self._keys_made, self._keys_unwrapped
        if key is None:
            return EncryptionStatistics(None, None, None, made, unwrapped)
        return EncryptionStatistics(key.key_id, self._now() - key.made_at, key.records, made, unwrapped)

    def replace_key(self) -> None:
        """Make a new data key for the next record, so that a new current key of the ring is used at once."""
        with self._lock:
            self._key = None

    def seal(self, topic: str, key: bytes | None, value: bytes) -> Sealed:
        """Encrypt a value. Raises what the key ring raises."""
        data_key = self._next_key()
        envelope = Envelope(VERSION, data_key.key_id, data_key.wrapped, topic)
        nonce = self._random_bytes(NONCE_BYTES)
        stored = encrypt(data_key.cipher, nonce, value, additional_data(envelope, key))
        return Sealed(stored, headers_of(envelope))

    def open(
        self,
        headers: StoredHeaders,
        key: bytes | None,
        value: bytes | None,
        record: object,
        first_topics: Collection[str] | None = None,
    ) -> bytes | None:
        """Decrypt a value; None stays None. `record` is what an error names.

        A value that was first sent to none of `first_topics` is refused; None: any topic will do. Raises
        EncryptionFailed, and what else the key ring raises.
        """
        return self._open(headers, key, value, record, first_topics)[0]

    def first_topic(self, headers: StoredHeaders, key: bytes | None, value: bytes | None, record: object) -> str | None:
        """Return the topic that a value was first sent to, after its check; None if it is not encrypted.

        Raises as open().
        """
        return self._open(headers, key, value, record, None)[1]

    def _open(
        self,
        headers: StoredHeaders,
        key: bytes | None,
        value: bytes | None,
        record: object,
        first_topics: Collection[str] | None,
    ) -> tuple[bytes | None, str | None]:
        """Return the value and its first topic."""
        if value is None:  # a tombstone, which compaction must see
            return None, None
        try:
            envelope = envelope_of(headers)
        except ValueError:
            raise EncryptionFailed(
                f"{record!r}: a header of its encryption is not UTF-8", code="value_damaged"
            ) from None
        if envelope is None:
            if self._is_required:
                raise EncryptionFailed(f"{record!r} is not encrypted, and must be", code="not_encrypted")
            return value, None
        if envelope.version != VERSION:
            text = f"{record!r} is encrypted in form {envelope.version!r}; this client knows {VERSION}"
            raise EncryptionFailed(text, code="encryption_version")
        if first_topics is not None and envelope.topic not in first_topics:
            accepted = ", ".join(map(repr, first_topics)) or "none"
            text = f"{record!r} was first sent to topic {envelope.topic!r}; this consumer accepts {accepted}"
            hint = "if records come here from that topic, name it in first_topics"
            raise EncryptionFailed(f"{text}: {hint}", code="first_topic_refused")
        cipher = self._cipher(envelope, record)
        try:
            return decrypt(cipher, value, additional_data(envelope, key)), envelope.topic
        except ValueError as error:
            text = f"{record!r}: its value, key, topic or headers are not those that were encrypted: {error}"
            raise EncryptionFailed(text, code="value_damaged") from error

    def without_envelope(self, headers: Iterable[tuple[str, ValueT]]) -> list[tuple[str, ValueT]]:
        """Return the headers of a record without those of its encryption."""
        return [one for one in headers if one[0] not in HEADER_NAMES]

    def _next_key(self) -> _DataKey:
        """Return the data key for one more value, a new one if it is due."""
        with self._lock:
            key = self._key
            now = self._now()
            is_due = key is None or key.records >= self._key_records_max or now - key.made_at >= self._key_age_s_max
            if key is None or is_due:
                data_key = self._random_bytes(KEY_BYTES)
                key_id, wrapped = self._key_ring.wrap(data_key)
                key = self._key = _DataKey(AESGCM(data_key), key_id, b64encode(wrapped).decode(), now)
                self._keys_made += 1
            key.records += 1
            return key

    def _cipher(self, envelope: Envelope, record: object) -> AESGCM:
        place = envelope.key_id, envelope.wrapped_key
        with self._lock:
            cipher = self._ciphers.get(place)
            if cipher is not None:
                self._ciphers.move_to_end(place)
                return cipher
        cipher = self._unwrapped(envelope, record)
        with self._lock:
            self._keys_unwrapped += 1
            self._ciphers[place] = cipher
            if len(self._ciphers) > _CACHED_KEYS_MAX:
                self._ciphers.popitem(last=False)
        return cipher

    def _unwrapped(self, envelope: Envelope, record: object) -> AESGCM:
        try:
            wrapped = b64decode(envelope.wrapped_key, validate=True)
        except ValueError as error:
            raise EncryptionFailed(f"{record!r}: its wrapped key is not base64", code="value_damaged") from error
        try:
            return AESGCM(self._key_ring.unwrap(envelope.key_id, wrapped))
        except KeyError as error:
            text = f"{record!r} needs key {envelope.key_id!r}, which is not in the key ring"
            raise EncryptionFailed(text, code="key_unknown") from error
        except ValueError as error:
            text = f"{record!r}: key {envelope.key_id!r} of the key ring did not wrap its data key: {error}"
            raise EncryptionFailed(text, code="key_wrong") from error
