"""The object store interface of tiering, and `open_store` for its implementations.

Synchronous and thread-safe: callers on an event loop use threads. Not a file system: there is no rename, no append and
no directory, and an object is whole or absent. Keys are relative to the store's own root or prefix; names of objects
are made in engine/format/paths.py and engine/tiering/manifest/keys.py only.

Invariant that the manifest chain relies on: of any number of `put(..., if_absent=True)` to one key, at most one
succeeds, ever. `probe` checks it, because some servers accept the condition and ignore it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from engine.errors import EngineError

PROBE_PREFIX = "_probe/"
_ABANDONED_AFTER_MS = 3_600_000  # of objects of a probe: far longer than one takes
_READ_BACK_BYTES = 8 << 20
MULTIPART_BYTES_MIN = 64 << 20  # a larger file goes up in parts: the default segment_bytes is one PUT
_SSE = ("AES256", "aws:kms", "aws:kms:dsse")
_ENCRYPTION = ("sse", "kms_key", "bucket_key")


class ObjectInfo(NamedTuple):
    """One stored object. `modified_ms` is by the store's own clock.

    `crc32` is the IEEE CRC-32 of the stored bytes as the store itself checked it, from `head` only; None if it stores
    no reliable one. An object that came in parts has `crc32c` instead.
    """

    key: str
    size_bytes: int
    modified_ms: int
    crc32: int | None = None
    crc32c: int | None = None


class UnfinishedUpload(NamedTuple):
    """An upload in parts that was begun and not completed. The store keeps its parts, which no list of objects has."""

    key: str
    upload_id: str
    began_ms: int


class ObjectExists(EngineError):
    """Create-if-absent met an object. Read it to see whose it is; do not retry under this key."""


class NoSuchObject(EngineError):
    """No object of that key. Load the newest manifest again: the objects that it names exist."""


class StoreUnavailable(EngineError):
    """The store did not answer, or cannot serve now. Retry later; a PUT may have taken effect.

    `no_side_effects` stays true because only errors of reads reach our clients.
    """

    code = "store_unavailable"
    retryable = True


class NotMounted(StoreUnavailable):
    """The directory of the store is not the one that was used before. Mount its file system."""


class StoreUnusable(EngineError):
    """The store cannot be used as configured. Retrying does not help; the hint is the repair."""

    code = "start_refused"


class ObjectStore(Protocol):
    """An object store. Every method may raise StoreUnavailable."""

    @property
    def url(self) -> str:
        """Its address, as `open_store` takes it; never holds a secret."""

    @property
    def checks_uploads(self) -> bool:
        """True if `head` returns a CRC-32 that the store has checked itself. Otherwise a put needs no
        checksum: CRC-32 takes a core 0.4 s a GB, CRC-32C a tenth of that.
        """

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Stores a whole object, durably. Raises ObjectExists if it must be absent and is not."""

    def put_file(
        self,
        key: str,
        path: str,
        *,
        size_bytes: int,
        start: int = 0,
        crc32: int | None = None,
        if_absent: bool = False,
    ) -> int | None:
        """Store `size_bytes` of a local file from byte `start` on, streaming.

        Return the CRC-32C of the bytes that are now on the store's disk, if this process wrote them there itself; None
        if the object has to be checked by `head` or read back.

        An S3 store sends a file above MULTIPART_BYTES_MIN in parts, and continues an unfinished upload of the key.
        `crc32` is the IEEE CRC-32 of those bytes: other bytes are rejected, with StoreUnavailable.
        Raises OSError if the local file cannot be read.
        """

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Returns the object, or its bytes from `start` to before `end`, cut short at its end.

        Raises NoSuchObject.
        """

    def head(self, key: str) -> ObjectInfo | None:
        """Returns size, time and checksum of an object; None without one."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yields every object whose key begins with `prefix` and is greater than `start_after`, in byte order of keys.

        Lazy: a caller that stops early costs no more than the current page.
        """

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        """Returns the distinct beginnings of keys under `prefix`, each up to and with its next "/", in byte order."""

    def delete(self, key: str) -> None:
        """Removes an object; no-op if it is absent."""

    def unfinished(self, prefix: str) -> Sequence[UnfinishedUpload]:
        """Returns the unfinished uploads of keys that begin with `prefix`, as far as the store lists them."""

    def abort(self, upload: UnfinishedUpload) -> None:
        """Removes the parts of an unfinished upload; no-op if it has ended."""

    def probe(self) -> str:
        """Verify, by trying, that the store keeps its promises. Raises StoreUnusable with a one-line hint.

        Returns the identity that distinguishes a store that has to be mounted from the directory below it; for any
        other store an empty text.
        """


def url_of(text: str) -> str:
    """Returns a store's URL; a path becomes a `file://` URL."""
    return text if "://" in text else "file://" + quote(os.path.abspath(text))


def open_store(url: str, *, identity: str = "", new_id: Callable[[], str] = secrets.token_hex) -> ObjectStore:
    """Opens the store at `file:///absolute/path` or `s3://bucket/prefix?endpoint=http://host:port&region=name`.

    S3 also takes `sse`, `kms_key` and `bucket_key`: how the server encrypts each object.

    Touches neither disk nor network; `probe` does. S3 credentials come from the AWS environment. `new_id` gives a fresh
    identifier at each call. `identity` is that of an earlier `probe`: a directory without it is a store that is not
    mounted. Raises StoreUnusable for another URL.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme == "file":
        from engine.tiering.store.file_store import FileStore

        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or options:
            shown = url.rpartition("@")[2]  # the text before it may be a password
            raise StoreUnusable(f"{shown!r} is not a file store", hint="write file:///absolute/path")
        return FileStore(unquote(parts.path), new_id=new_id, identity=identity)
    if parts.scheme == "s3":
        from engine.tiering.store.s3 import Encryption, S3Store

        unknown = sorted(set(options) - {"endpoint", "region", *_ENCRYPTION})
        if unknown or not parts.netloc or "@" in parts.netloc:
            hint = "write s3://bucket/prefix?endpoint=URL&region=NAME; credentials come from the environment"
            if "@" in parts.netloc:
                raise StoreUnusable("the s3 store has credentials in its URL", hint=hint)
            fault = f"has unknown options: {', '.join(unknown)}" if unknown else "names no bucket"
            raise StoreUnusable(f"the s3 store {fault}", hint=hint)
        endpoint, region = options.get("endpoint"), options.get("region")
        if endpoint is not None and not _is_plain(endpoint):
            text = "the endpoint of the s3 store is not an http or https URL of host, port and path only"
            raise StoreUnusable(text, hint="URLs of stores appear in logs: pass credentials in the environment")
        _check_encryption(options)
        encryption = Encryption(options.get("sse", ""), options.get("kms_key", ""), options.get("bucket_key") == "true")
        return S3Store(
            parts.netloc, unquote(parts.path), new_id=new_id, endpoint=endpoint, region=region, encryption=encryption
        )
    raise StoreUnusable(f"unknown kind of store {parts.scheme!r}", hint="use file:// or s3://")


def _check_encryption(options: Mapping[str, str]) -> None:
    sse = options.get("sse", "")
    if "sse" in options and sse not in _SSE:
        raise StoreUnusable(f"the s3 store has sse={sse}", hint=f"use one of {', '.join(_SSE)}")
    if options.get("bucket_key", "true") != "true":
        raise StoreUnusable("bucket_key of the s3 store is not true", hint="write bucket_key=true or leave it out")
    if not sse.startswith("aws:kms") and ("kms_key" in options or "bucket_key" in options):
        raise StoreUnusable("kms_key and bucket_key of the s3 store need KMS", hint="add sse=aws:kms")


def _is_plain(url: str) -> bool:
    """True without anything that could be a credential: logs and answers contain the URL of a store."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not (parts.query or parts.fragment or "@" in parts.netloc or "?" in unquote(parts.path))
        )
    except ValueError:
        return False


def check_guarantees(store: ObjectStore, nonce: str) -> None:
    """Run the body of every `probe`: one object is created twice, read, listed and removed. Raises StoreUnusable.

    The second create must fail: rclone and s3rver answer 200 to both, and two leaders would then both believe that they
    had committed.
    """
    key = PROBE_PREFIX + nonce
    first = nonce.encode()
    store.put(key, first, if_absent=True)
    try:
        _check_no_overwrite(store, key)
        if store.get(key) != first or store.get(key, 1, 4) != first[1:4]:
            raise StoreUnusable(f"{store.url} returns other bytes than were stored", hint="use another store")
        if [info.key for info in store.list(key)] != [key]:
            raise StoreUnusable(f"{store.url} does not list a stored object", hint="use a store with strong listing")
        _drop_abandoned(store, key)
    finally:
        store.delete(key)


def _drop_abandoned(store: ObjectStore, key: str) -> None:
    """Removes what probes of killed processes left, by the store's own clock."""
    listed = list(store.list(PROBE_PREFIX))
    now_ms = next((info.modified_ms for info in listed if info.key == key), 0)
    for info in listed:
        if now_ms - info.modified_ms > _ABANDONED_AFTER_MS:
            store.delete(info.key)


def _check_no_overwrite(store: ObjectStore, key: str) -> None:
    try:
        store.put(key, b"a second writer", if_absent=True)
    except ObjectExists:
        return
    raise StoreUnusable(
        f"{store.url} ignores If-None-Match: a second create of one key succeeded",
        hint="use a store with conditional writes, or one node with file://",
    )


def read_in_pieces(store: ObjectStore, key: str, size_bytes: int) -> Iterator[bytes]:
    """Yields a whole object in pieces of bounded memory. Raises NoSuchObject; a short object ends early."""
    for start in range(0, size_bytes, _READ_BACK_BYTES):
        yield store.get(key, start, min(start + _READ_BACK_BYTES, size_bytes))
