"""The errors that the client raises, and how to handle each.

Every error has a stable `code`, whether a retry can help (`retryable`), and whether it is certain that nothing was
stored (`no_side_effects`). The first two come from the node's problem document if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self


class ClientError(Exception):
    """Root of all failures of the client."""

    code = "client_error"
    retryable = False
    no_side_effects = True

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def copy_with(self, *, no_side_effects: bool) -> Self:
        """Returns a copy for a record whose other attempts decide `no_side_effects`. Records may share this error."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__)
        other.no_side_effects = no_side_effects
        return other


class ProblemError(ClientError):
    """The node rejected the request, or failed, and answered with a problem. `members` has its further fields."""

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str,
        retryable: bool,
        no_side_effects: bool,
        title: str = "",
        retry_after_ms: int | None = None,
        request_id: str = "",
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.no_side_effects = no_side_effects
        self.title = title
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id
        self.members = dict(members or {})

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class ConnectionFailed(ClientError):
    """No answer arrived: refused, reset, or too late. Retry; unless `no_side_effects`, it may have been carried out."""

    code = "connection_failed"
    retryable = True

    def __init__(self, detail: str, *, no_side_effects: bool) -> None:
        super().__init__(detail)
        self.no_side_effects = no_side_effects


class BufferFull(ClientError):
    """Too many records wait for their acknowledgement. Wait and retry, or raise buffer_bytes."""

    code = "buffer_full"
    retryable = True


class DeliveryTimedOut(ClientError):
    """delivery_timeout_ms passed before an attempt succeeded. `last` is the error of the last attempt."""

    code = "delivery_timed_out"

    def __init__(self, detail: str, *, last: ClientError | None, no_side_effects: bool) -> None:
        super().__init__(detail)
        self.last = last
        self.no_side_effects = no_side_effects


class ClientClosed(ClientError):
    """The client, producer or consumer was closed. Records that it still held were not acknowledged."""

    code = "client_closed"

    def __init__(self, detail: str, *, no_side_effects: bool = True) -> None:
        super().__init__(detail)
        self.no_side_effects = no_side_effects


class IdempotenceUnavailable(ClientError):
    """The node's release cannot detect duplicates. Use a newer one, or set idempotence="if_offered" or "off"."""

    code = "idempotence_unavailable"


class ChecksumMismatch(ClientError):
    """With verify_crc: the received bytes differ from the stored ones.

    Consume again from positions(). If it persists, the node's disk or the network path corrupts data.
    """

    code = "checksum_mismatch"
    retryable = True


class EncryptionFailed(ClientError):
    """A value cannot be decrypted, or is not encrypted though it must be. `code` says why; the detail what to change.

    Skip the record, or give the key ring its key: `key_unknown`, `key_wrong`, `value_damaged`, `not_encrypted`,
    `encryption_version`, `first_topic_refused`.
    """

    def __init__(self, detail: str, *, code: str) -> None:
        super().__init__(detail)
        self.code = code


class UndecodableBatch(ClientError):
    """The node has bytes at this offset that cannot be decoded, and their value was requested. Skip the record."""

    code = "undecodable"
