"""Defines the kinds of failure below the gateway, and what a caller does about each.

Not an HTTP table: gateway/http/problems.py alone maps a code to a status.
Every error states whether a retry can help (`retryable`) and whether anything may have been stored (`no_side_effects`);
a producer needs both to decide on a retry.
"""

from __future__ import annotations

import errno
from typing import ClassVar

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)  # of this process, of the whole machine: no operation was done
DEAD_DISK = (  # errors that need a repair: broken, missing, or remounted read-only
    *(errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ENOTCONN, errno.ESTALE, errno.EUCLEAN),
    *(errno.EREMOTEIO, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.ENOMEDIUM),
)


class EngineError(Exception):
    """Root of all failures of the log. `code` is stable and public; `detail` is a sentence for people."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    no_side_effects: ClassVar[bool] = True

    def __init__(self, detail: str, *, hint: str = "", **members: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint
        self.members = members

    def __str__(self) -> str:
        return f"{self.detail} ({self.hint})" if self.hint else self.detail


class Invalid(EngineError):
    """The request can never be valid. Fix it; do not retry."""

    code = "invalid_body"


class InvalidConfig(Invalid):
    """A setting is unknown, out of bounds or at odds with another. Fix it."""

    code = "invalid_config"


class InvalidTopicName(Invalid):
    """The name breaks the naming rule. Choose another."""

    code = "invalid_topic_name"


class InvalidBatch(Invalid):
    """A record batch breaks the format: wrong magic, false lengths or counts. Fix the producer."""

    code = "invalid_batch"


class UnexpectedOffset(InvalidBatch):
    """A batch for a follower's log does not join its end: the fetched data is out of date. Fetch again from log_end."""


class DecodedTooLarge(InvalidBatch):
    """The records of a batch decode to more than `batch_decoded_bytes_max`. Send fewer at once."""


class CorruptBatch(Invalid):
    """A record batch from a client fails its checksum. Retry it from the source."""

    code = "corrupt_batch"
    retryable = True


class BatchTooLarge(Invalid):
    """One batch is over `batch_bytes_max`. Send fewer records at once."""

    code = "batch_too_large"


class RecordTooLarge(Invalid):
    """One record is over `record_bytes_max`. Split it or raise the topic's setting."""

    code = "record_too_large"


class TableTooLarge(EngineError):
    """The index of a table needs more memory than `table_memory_bytes`. Raise it."""

    code = "table_too_large"


class UnknownTopic(EngineError):
    """No topic of that name. Create it first."""

    code = "unknown_topic"


class OtherTopic(EngineError):
    """The topic of that name is not the one of the position: it was deleted and created again. Begin at its start."""

    code = "topic_id_mismatch"


class UnknownPartition(EngineError):
    """The topic has no partition of that number."""

    code = "unknown_partition"


class TopicExists(EngineError):
    """The topic exists with other partitions or settings."""

    code = "topic_exists"


class QuotaExhausted(EngineError):
    """A tenant has as much as its ceiling allows. Retrying does not help: it has to give something up, or ask for more.

    The members are `quota`, `limit` and `used`.
    """

    code = "quota_exhausted"


class TopicProtected(EngineError):
    """The topic has deletion_protection on. Turn it off first."""

    code = "topic_protected"


class OffsetBelowLogStart(EngineError):
    """The requested records have been deleted. Continue from log_start or give up."""

    code = "offset_below_log_start"


class OffsetAboveHighWatermark(EngineError):
    """The position is above the high watermark. Ask at or below it."""

    code = "offset_above_high_watermark"


class LogEndMismatch(EngineError):
    """The log does not end where the append expects. Read up to `log_end`, then decide again."""

    code = "log_end_mismatch"


class FencingTokenMismatch(EngineError):
    """The partition demands `fencing_token` of every append. Another writer has taken over: give up, or take over."""

    code = "fencing_token_mismatch"


class ProducerFenced(EngineError):
    """A newer epoch of this producer has written here. Give up: another has taken over."""

    code = "producer_fenced"


class SequenceGap(EngineError):
    """The batch is not the next in sequence. The partition accepts it once the missing batches are stored."""

    code = "sequence_gap"
    retryable = True


class KeyReused(EngineError):
    """Another request has used the idempotency key. Choose a new key."""

    code = "idempotency_key_reused"


class DuplicateOlderThanWindow(EngineError):
    """The batch was stored before the oldest remembered one. Treat it as stored; its offsets are forgotten."""

    code = "duplicate_older_than_window"


class Corrupt(EngineError):
    """Stored bytes fail their checksum. Retrying does not help; restore from a replica or from the store."""

    code = "storage_failed"


class Damaged(Corrupt):
    """The records at this offset are in quarantine until they are repaired. Continue behind them, or restore them."""

    code = "records_damaged"


class StorageFailed(EngineError):
    """The disk failed an operation. The partition is offline until the process restarts.

    Whether the bytes of a failed append reached the disk is unknown. `os_error` is the error of the disk, if it gave
    one.
    """

    code = "storage_failed"
    no_side_effects = False
    os_error: OSError | None = None


class Unreachable(EngineError):
    """The data directory of a partition is offline, or the partition is not in its directory. Repair it and restart.

    For an append that waited when its directory failed, it is unknown whether the bytes reached the disk.
    """

    code = "storage_failed"
    no_side_effects = False


class ReadFailed(EngineError):
    """The disk failed to return stored bytes. Other records may be readable; retry, or read from a replica."""

    code = "storage_failed"
    retryable = True


class TooManyOpenFiles(EngineError):
    """The process or the machine has no free file handle. No operation was done; retry once files are closed."""

    code = "too_many_open_files"
    retryable = True


class StorageFull(EngineError):
    """The disk is full. No bytes were stored; retry once space is free."""

    code = "storage_full"
    retryable = True


class SpoolFull(EngineError):
    """Too many bytes wait for the object store. No bytes were stored; retry once the store has taken some."""

    code = "spool_full"
    retryable = True


def storage_error(what: str, error: OSError) -> EngineError:
    """Map an OSError of the disk to the error of the operation `what`."""
    if error.errno in TOO_MANY_FILES:
        return too_many_open_files(what)
    if error.errno in NO_SPACE:
        return StorageFull(f"{what}: no space is left on the disk", hint="free space or shorten retention")
    return StorageFailed(f"{what}: {error}", hint="see the node's disk and its log")


def too_many_open_files(what: str) -> TooManyOpenFiles:
    return TooManyOpenFiles(
        f"{what}: too many files are open", hint="raise the limit of open files (ulimit -n), or lower connections_max"
    )


class LogTruncated(EngineError):
    """Another replica became leader and this log is truncated. No queued record was stored; ask the leader."""

    code = "not_leader"
    retryable = True


class AckTruncated(EngineError):
    """The records that an acknowledgement waited for were truncated from this log. The new leader may have them."""

    code = "leadership_lost"
    retryable = True
    no_side_effects = False


class Draining(EngineError):
    """The node is stopping. Use another node, or retry after the restart."""

    code = "draining"
    retryable = True


class AckTimeout(EngineError):
    """The records are in the log, but the awaited position did not pass them in time. They may be committed."""

    code = "ack_timeout"
    retryable = True
    no_side_effects = False


class StartRefused(EngineError):
    """The node cannot start: the text is the reason, the hint the repair."""

    code = "start_refused"
