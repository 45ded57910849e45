"""An object store behind the S3 API: the only file that uses boto3.

Conditional creates carry `If-None-Match: *`. 412 means that the key is taken; 409 that another request was in progress
and this one had no effect, so it is retried. botocore retries a request after a lost answer, and the retry of a
successful create meets its own object: so every PUT carries a nonce as metadata, and a 412 on an object with our nonce
is our success. A store that loses metadata only makes that a plain ObjectExists, which callers must resolve by reading
anyway, because the last attempt's answer can be lost too.

A small segment goes up in one streamed PUT, with its CRC-32 in a header for the server to check. CRC-32 and not
CRC-32C: every server computes it fast, and zlib has it. A large one goes up in parts (multipart.py).
"""

from __future__ import annotations

import base64
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import boto3.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from engine.tiering.store.file_slice import FileSlice
from engine.tiering.store.multipart import MultipartUploads
from engine.tiering.store.store import (
    MULTIPART_BYTES_MIN,
    PROBE_PREFIX,
    NoSuchObject,
    ObjectExists,
    ObjectInfo,
    StoreUnavailable,
    StoreUnusable,
    UnfinishedUpload,
    check_guarantees,
)

_CONNECT_SECONDS = 5
_READ_SECONDS = 60  # one silence on the wire, not a whole transfer
_ATTEMPTS_MAX = 4  # botocore's, with its own backoff; our callers back off for longer
_CONNECTIONS_MAX = 32  # at least the threads that share a store
_CONFLICT_ATTEMPTS_MAX = 6
_CONFLICT_PAUSE_SECONDS = 0.05  # times the attempt's number
_BODY_ATTEMPTS_MAX = 3  # botocore does not retry once an answer's body has begun
_NONCE = "penstock-put"
_FORBIDDEN_HINT = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights on the bucket"
_CLOCK_HINT = "set the clock of this machine: the store refuses requests whose time differs by more than 15 minutes"
_PUT_HINT = (
    "the store must accept the headers If-None-Match and x-amz-checksum-crc32 in a PUT; use one of docs/retention.md"
)


@dataclass(frozen=True, slots=True)
class Encryption:
    """How the server encrypts objects. Empty: as the bucket is configured."""

    sse: str = ""  # AES256, aws:kms or aws:kms:dsse
    kms_key: str = ""  # id, alias or ARN; else the key of the bucket
    bucket_key: bool = False  # fewer calls of KMS

    def options(self) -> dict[str, str]:
        """Returns the options of the store's URL."""
        return {"sse": self.sse, "kms_key": self.kms_key, "bucket_key": "true" if self.bucket_key else ""}

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of a PUT."""
        parameters = {
            "ServerSideEncryption": self.sse,
            "SSEKMSKeyId": self.kms_key,
            "BucketKeyEnabled": self.bucket_key,
        }
        return {name: value for name, value in parameters.items() if value}


class S3Store:
    """A bucket, or a prefix in one. Safe for threads."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        new_id: Callable[[], str],
        endpoint: str | None = None,
        region: str | None = None,
        encryption: Encryption = Encryption(),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._new_id = new_id
        self._endpoint = endpoint
        self._region = region
        self._encryption = encryption
        self._sleep = sleep
        self._multipart = MultipartUploads(
            lambda: self._client, bucket, encryption.arguments(), _status_of, self._pause, _NONCE
        )
        self._lock = threading.Lock()
        self._opened: Any = None
        self.checks_uploads = False  # until `probe` has seen the store reject a wrong checksum

    def __repr__(self) -> str:
        return f"<S3Store {self.url}>"

    @property
    def url(self) -> str:
        options = {"endpoint": self._endpoint, "region": self._region, **self._encryption.options()}
        query = urlencode({name: value for name, value in options.items() if value}, safe=":/")
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/") + (f"?{query}" if query else "")

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        with _map_errors("put", key):
            self._put(key, data, len(data), zlib.crc32(data), if_absent)

    def put_file(
        self, key: str, path: str, *, size_bytes: int, start: int = 0, crc32: int | None = None, if_absent: bool = False
    ) -> None:
        with FileSlice(path, start, size_bytes) as body, _map_errors("put", key):
            if size_bytes > MULTIPART_BYTES_MIN:
                self._multipart.put(self._prefix + key, body, size_bytes, self._new_id(), if_absent=if_absent)
                return
            self._put(key, body, size_bytes, crc32, if_absent)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        assert end is None or (start or 0) < end, "the range is empty"
        arguments = {"Bucket": self._bucket, "Key": self._prefix + key}
        if start is not None or end is not None:
            arguments["Range"] = f"bytes={start or 0}-{'' if end is None else end - 1}"
        with _map_errors("get", key):
            return self._get(arguments)

    def head(self, key: str) -> ObjectInfo | None:
        with _map_errors("head", key):
            head = self._head(key)
            if head is None:
                return None
            crc32 = _checksum_of(head, "ChecksumCRC32") if self.checks_uploads else None
            crc32c = _checksum_of(head, "ChecksumCRC32C") if self._multipart.checks_parts else None
            return ObjectInfo(key, head["ContentLength"], _ms(head["LastModified"]), crc32, crc32c)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        arguments = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        if start_after:
            arguments["StartAfter"] = self._prefix + start_after
        with _map_errors("list", prefix):
            for page in self._client.get_paginator("list_objects_v2").paginate(**arguments):
                for item in page.get("Contents", ()):
                    yield ObjectInfo(item["Key"][len(self._prefix) :], item["Size"], _ms(item["LastModified"]))

    def list_prefixes(self, prefix: str) -> Sequence[str]:
        arguments = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, "Delimiter": "/"}
        with _map_errors("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(**arguments)
            return [item["Prefix"][len(self._prefix) :] for page in pages for item in page.get("CommonPrefixes", ())]

    def delete(self, key: str) -> None:
        with _map_errors("delete", key):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def unfinished(self, prefix: str) -> Sequence[UnfinishedUpload]:
        with _map_errors("list", prefix):
            uploads = self._multipart.unfinished(self._prefix + prefix)
            return [
                UnfinishedUpload(key[len(self._prefix) :], upload_id, _ms(began)) for key, upload_id, began in uploads
            ]

    def abort(self, upload: UnfinishedUpload) -> None:
        with _map_errors("abort", upload.key):
            self._multipart.abort(self._prefix + upload.key, upload.upload_id)

    def probe(self) -> str:
        """Checks conditional creates (`check_guarantees`) and checksums. Raises StoreUnusable."""
        try:
            check_guarantees(self, self._new_id())
            self.checks_uploads = self._verifies_checksums(PROBE_PREFIX + self._new_id())
            return ""
        except StoreUnavailable as error:
            hint = "check the endpoint and the region, and that the server is up"
            raise StoreUnusable(error.detail, hint=error.hint if error.hint == _PUT_HINT else hint) from error

    @property
    def _client(self) -> Any:
        """Made at first use: its construction may look for credentials on the network."""
        with self._lock:
            if self._opened is None:
                session = boto3.session.Session()
                region = self._region or session.region_name or "us-east-1"
                self._opened = session.client(
                    "s3", endpoint_url=self._endpoint, region_name=region, config=_config(self._endpoint)
                )
            return self._opened

    def _put(self, key: str, body: Any, size_bytes: int, crc32: int | None, if_absent: bool) -> None:
        nonce = self._new_id()
        arguments = {"Bucket": self._bucket, "Key": self._prefix + key, "ContentLength": size_bytes}
        arguments |= {"Metadata": {_NONCE: nonce}}
        arguments |= {"IfNoneMatch": "*"} if if_absent else {}
        arguments |= self._encryption.arguments()
        arguments |= {"ChecksumCRC32": base64.b64encode(crc32.to_bytes(4, "big")).decode()} if crc32 is not None else {}
        for attempt in range(1, _CONFLICT_ATTEMPTS_MAX + 1):
            try:
                self._client.put_object(Body=body, **arguments)
            except ClientError as error:
                if _status(error) == 412:
                    if self._is_ours(key, nonce):
                        return
                    raise ObjectExists(f"{key} exists in {self.url}") from error
                if _status(error) != 409 or attempt == _CONFLICT_ATTEMPTS_MAX:
                    raise
            else:
                return
            self._pause(attempt)
            if not isinstance(body, bytes):
                body.seek(0)

    def _pause(self, attempt: int) -> None:
        """Waits longer at each attempt. Up to half is random, so that writers do not retry all at once."""
        self._sleep(_CONFLICT_PAUSE_SECONDS * attempt * (1 - int(self._new_id()[-4:], 16) / 2**17))

    def _verifies_checksums(self, key: str) -> bool:
        """Some servers store the given checksum unchecked; then it does not prove that the bytes arrived."""
        try:
            with _map_errors("put", key):
                self._put(key, b"probe", 5, zlib.crc32(b"another"), if_absent=False)
        except StoreUnavailable:
            return True
        self.delete(key)
        return False

    def _is_ours(self, key: str, nonce: str) -> bool:
        head = self._head(key)
        return head is not None and head.get("Metadata", {}).get(_NONCE) == nonce

    def _get(self, arguments: dict[str, str]) -> bytes:
        for attempt in range(1, _BODY_ATTEMPTS_MAX + 1):
            try:
                data: bytes = self._client.get_object(**arguments)["Body"].read()
            except ClientError as error:
                if _status(error) == 416:
                    return b""
                raise
            except BotoCoreError:
                if attempt == _BODY_ATTEMPTS_MAX:
                    raise
            else:
                return data
        raise AssertionError("the last attempt returns or raises")

    def _head(self, key: str) -> dict[str, Any] | None:
        try:
            head: dict[str, Any] = self._client.head_object(
                Bucket=self._bucket, Key=self._prefix + key, ChecksumMode="ENABLED"
            )
        except ClientError as error:
            if _status(error) == 404:
                return None
            raise
        return head


def _config(endpoint: str | None) -> Config:
    return Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS_MAX},
        max_pool_connections=_CONNECTIONS_MAX,
        tcp_keepalive=True,
        s3={"addressing_style": "path" if endpoint else "auto"},
        request_checksum_calculation="when_required",  # we set our own; trailing ones fail on compatible servers
        # readers check CRC-32C; some servers return the whole object's for a range
        response_checksum_validation="when_required",
    )


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _status_of(error: Exception) -> int:
    """Returns the status of an answer that is an error, 0 for any other error."""
    return _status(error) if isinstance(error, ClientError) else 0


def _ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)


def _checksum_of(head: dict[str, Any], name: str) -> int | None:
    """Returns the server's checksum of the whole object; those of parts carry a "-"."""
    encoded = head.get(name)
    return int.from_bytes(base64.b64decode(encoded), "big") if encoded and "-" not in encoded else None


@contextmanager
def _map_errors(verb: str, key: str) -> Iterator[None]:
    """Maps botocore's errors to the store's; the text names the operation."""
    what = f"cannot {verb} {key or 'the store'}"
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        text = f"{what}: the store answered {_status(error)} {code}"
        if code == "NoSuchBucket":
            raise StoreUnusable(text, hint="create the bucket first") from error
        if code == "NoSuchUpload":
            raise StoreUnavailable(text) from error
        if _status(error) == 404:
            raise NoSuchObject(f"no object {key}") from error
        if _status(error) == 403:
            is_late = code in ("RequestTimeTooSkewed", "RequestExpired")
            raise StoreUnusable(text, hint=_CLOCK_HINT if is_late else _FORBIDDEN_HINT) from error
        raise StoreUnavailable(
            text, hint=_PUT_HINT if verb == "put" and _status(error) in (400, 501) else ""
        ) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreUnusable(f"{what}: {error}", hint=_FORBIDDEN_HINT) from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"{what}: {error}", hint="check its endpoint and the network") from error
