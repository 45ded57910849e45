"""Uploads of large files in parts, each with its CRC-32C, which a later call continues. Blocking; safe for threads.

Knows the calls of the S3 API and not the library behind them (s3.py). The checksum of the whole object is the
server's: it is reliable only where the server rejects a part with a wrong checksum. The first upload tries that, with a
small part that its completion leaves out.

An upload is known by its key: a key is of one segment, and parts that the store has count only if their bytes are those
of the file. A completion whose answer was lost ends in ObjectExists, which callers resolve by reading.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from crc32c import crc32c

from engine.tiering.store.file_slice import FileSlice
from engine.tiering.store.store import ObjectExists, StoreUnavailable

PART_BYTES = 16 << 20  # of memory for each upload under way; 10,000 parts are allowed, a segment has at most 64
_PROBE_PART = 10_000
_ATTEMPTS_MAX = 4  # of a completion; our callers back off for longer


class MultipartUploads:
    """The uploads in parts of one bucket. Raises the errors of `client`, which s3.py maps."""

    def __init__(
        self,
        client: Callable[[], Any],
        bucket: str,
        arguments: Mapping[str, Any],
        status_of: Callable[[Exception], int],
        pause: Callable[[int], None],
        nonce_name: str,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._arguments = arguments
        self._status_of = status_of
        self._pause = pause
        self._nonce_name = nonce_name
        self._lock = threading.Lock()
        self._begun: dict[str, tuple[str, datetime]] = {}  # by key; some servers list only the uploads of a whole key
        self._checks: bool | None = None

    @property
    def checks_parts(self) -> bool:
        """True once the server has rejected a part with a wrong checksum."""
        return bool(self._checks)

    def put(self, key: str, body: FileSlice, size_bytes: int, nonce: str, *, if_absent: bool) -> None:
        """Upload a file whole, or continue its upload. Raises ObjectExists, StoreUnavailable."""
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            upload_id = self._find_upload(key) or self._begin(key, nonce)
            try:
                if self._checks is None:
                    self._checks = self._rejects_wrong_checksums(key, upload_id)
                parts = self._send_missing(key, upload_id, body, size_bytes)
                self._complete(key, upload_id, parts, if_absent=if_absent)
            except Exception as error:
                if (status := self._status_of(error)) not in (404, 409, 412):
                    raise  # the parts stay for the next call
                if status == 412 or (status == 404 and self._exists(key)):
                    self.abort(key, upload_id)
                    raise ObjectExists(f"{key} exists in {self._bucket}") from error
                if status == 409:  # such an upload cannot be completed any more
                    self.abort(key, upload_id)
                self._forget(key)
                if attempt == _ATTEMPTS_MAX:
                    raise StoreUnavailable(f"cannot put {key}: the store answered {status} to its upload") from error
                self._pause(attempt)
            else:
                self._forget(key)
                return

    def unfinished(self, prefix: str) -> Iterator[tuple[str, str, datetime]]:
        """Yield key, upload id and the time of the beginning of each upload that the store lists, or that we began."""
        seen = set()
        pages = self._client().get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
        for page in pages:
            for upload in page.get("Uploads", ()):
                seen.add(upload["UploadId"])
                yield upload["Key"], upload["UploadId"], upload["Initiated"]
        with self._lock:
            own_uploads = [*self._begun.items()]
        for key, (upload_id, began) in own_uploads:
            if key.startswith(prefix) and upload_id not in seen:
                yield key, upload_id, began

    def abort(self, key: str, upload_id: str) -> None:
        """Removes the parts of an upload; no-op if it has ended."""
        self._forget(key)
        try:
            self._client().abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)
        except Exception as error:
            if self._status_of(error) != 404:
                raise

    def _begin(self, key: str, nonce: str) -> str:
        begun = self._client().create_multipart_upload(
            Bucket=self._bucket,
            Key=key,
            Metadata={self._nonce_name: nonce},
            ChecksumAlgorithm="CRC32C",
            ChecksumType="FULL_OBJECT",
            **self._arguments,
        )
        upload_id: str = begun["UploadId"]
        with self._lock:
            self._begun[key] = upload_id, parsedate_to_datetime(begun["ResponseMetadata"]["HTTPHeaders"]["date"])
        return upload_id

    def _find_upload(self, key: str) -> str | None:
        with self._lock:
            if key in self._begun:
                return self._begun[key][0]
        return next((upload_id for key_of_upload, upload_id, _ in self.unfinished(key) if key_of_upload == key), None)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._begun.pop(key, None)

    def _send_missing(self, key: str, upload_id: str, body: FileSlice, size_bytes: int) -> list[dict[str, Any]]:
        """Sends the parts that the store lacks, or has with other bytes. Returns all parts for the completion."""
        which = {"Bucket": self._bucket, "Key": key, "UploadId": upload_id}
        pages = self._client().get_paginator("list_parts").paginate(**which)
        stored = {part["PartNumber"]: part for page in pages for part in page.get("Parts", ())}
        parts = []
        for number, at in enumerate(range(0, size_bytes, PART_BYTES), 1):
            data = body.piece(at, min(PART_BYTES, size_bytes - at))
            checksum = base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()
            part = stored.get(number)
            if part is None or not _is_same(part, data, checksum):
                part = self._client().upload_part(
                    PartNumber=number, Body=data, ContentLength=len(data), ChecksumCRC32C=checksum, **which
                )
            parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32C": checksum})
        return parts

    def _complete(self, key: str, upload_id: str, parts: list[dict[str, Any]], *, if_absent: bool) -> None:
        self._client().complete_multipart_upload(
            Bucket=self._bucket,
            Key=key,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
            ChecksumType="FULL_OBJECT",
            **({"IfNoneMatch": "*"} if if_absent else {}),
        )

    def _rejects_wrong_checksums(self, key: str, upload_id: str) -> bool:
        wrong = base64.b64encode(crc32c(b"another").to_bytes(4, "big")).decode()
        which = {"Bucket": self._bucket, "Key": key, "UploadId": upload_id}
        try:
            self._client().upload_part(PartNumber=_PROBE_PART, Body=b"probe", ChecksumCRC32C=wrong, **which)
        except Exception as error:
            if self._status_of(error) != 400:
                raise
            return True
        return False

    def _exists(self, key: str) -> bool:
        try:
            self._client().head_object(Bucket=self._bucket, Key=key)
        except Exception as error:
            if self._status_of(error) != 404:
                raise
            return False
        return True


def _is_same(part: Mapping[str, Any], data: bytes, checksum: str) -> bool:
    """Whether the store has these bytes as a part: by the CRC-32C, else by the MD5 that an ETag often is."""
    if part["Size"] != len(data):
        return False
    if "ChecksumCRC32C" in part:
        return bool(part["ChecksumCRC32C"] == checksum)
    return bool(part["ETag"].strip('"') == hashlib.md5(data, usedforsecurity=False).hexdigest())
