"""Kafka's error codes, and which of them says what a problem of ours says."""

from __future__ import annotations

from enum import IntEnum

from engine.errors import EngineError
from gateway.http.problems import Problem


class Error(IntEnum):
    """Kafka's names and numbers of errors."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133


_MOVED, _STORAGE, _BUSY = Error.NOT_LEADER_OR_FOLLOWER, Error.KAFKA_STORAGE_ERROR, Error.NOT_ENOUGH_REPLICAS

_BY_CODE: dict[str, Error] = {
    "unknown_topic": Error.UNKNOWN_TOPIC_OR_PARTITION,
    "unknown_partition": Error.UNKNOWN_TOPIC_OR_PARTITION,
    "topic_id_mismatch": Error.UNKNOWN_TOPIC_ID,
    "invalid_topic_name": Error.INVALID_TOPIC,
    "topic_exists": Error.TOPIC_ALREADY_EXISTS,
    "topic_protected": Error.POLICY_VIOLATION,
    "too_many_topics": Error.POLICY_VIOLATION,
    "quota_exhausted": Error.POLICY_VIOLATION,
    "invalid_config": Error.INVALID_CONFIG,
    "too_few_nodes": Error.INVALID_REPLICATION_FACTOR,
    "not_leader": _MOVED,
    "no_leader": _MOVED,
    "leadership_lost": _MOVED,
    "draining": _MOVED,
    "misdirected": _MOVED,
    "offset_not_available": Error.OFFSET_NOT_AVAILABLE,
    "not_enough_replicas": Error.NOT_ENOUGH_REPLICAS,
    "not_enough_replicas_after_append": Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    "ack_timeout": Error.REQUEST_TIMED_OUT,
    "storage_full": _STORAGE,
    "storage_failed": _STORAGE,
    "store_unavailable": _STORAGE,
    "audit_unavailable": _STORAGE,  # tools try again
    "too_many_open_files": _STORAGE,
    "registry_unavailable": _BUSY,
    "spool_full": _BUSY,
    "overloaded": _BUSY,
    "too_many_requests": _BUSY,
    "batch_too_large": Error.MESSAGE_TOO_LARGE,
    "record_too_large": Error.MESSAGE_TOO_LARGE,
    "body_too_large": Error.MESSAGE_TOO_LARGE,
    "corrupt_batch": Error.CORRUPT_MESSAGE,
    "records_damaged": Error.CORRUPT_MESSAGE,
    "invalid_batch": Error.INVALID_RECORD,
    "schema_mismatch": Error.INVALID_RECORD,
    "key_required": Error.INVALID_RECORD,
    "no_records": Error.INVALID_RECORD,
    "invalid_body": Error.INVALID_TIMESTAMP,  # of a batch: the only one is a time too far ahead
    "fencing_token_mismatch": Error.POLICY_VIOLATION,
    "log_end_mismatch": Error.POLICY_VIOLATION,
    "unknown_producer": Error.PRODUCER_FENCED,
    "producer_fenced": Error.INVALID_PRODUCER_EPOCH,
    "sequence_gap": Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "duplicate_older_than_window": Error.DUPLICATE_SEQUENCE_NUMBER,
    "forbidden": Error.TOPIC_AUTHORIZATION_FAILED,
    "unauthorized": Error.TOPIC_AUTHORIZATION_FAILED,
    "offset_below_log_start": Error.OFFSET_OUT_OF_RANGE,
    "offset_above_high_watermark": Error.OFFSET_OUT_OF_RANGE,
    "coordinator_moved": Error.COORDINATOR_NOT_AVAILABLE,
    "invalid_group_name": Error.INVALID_GROUP_ID,
    "unknown_group": Error.GROUP_ID_NOT_FOUND,
    "unknown_member": Error.UNKNOWN_MEMBER_ID,
    "member_fenced": Error.FENCED_MEMBER_EPOCH,
    "invalid_pattern": Error.INVALID_REGULAR_EXPRESSION,
    "patterns_unavailable": Error.INVALID_REGULAR_EXPRESSION,
    "group_not_empty": Error.NON_EMPTY_GROUP,
    "too_many_members": Error.GROUP_MAX_SIZE_REACHED,
    "wrong_group_kind": Error.INCONSISTENT_GROUP_PROTOCOL,
}

# A client's consumer takes any other code of a fetch for a bug of its own, and ends.
OF_FETCH = frozenset(
    {
        Error.NONE,
        Error.UNKNOWN_SERVER_ERROR,
        Error.OFFSET_OUT_OF_RANGE,
        Error.CORRUPT_MESSAGE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.TOPIC_AUTHORIZATION_FAILED,
        Error.KAFKA_STORAGE_ERROR,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.OFFSET_NOT_AVAILABLE,
        Error.UNKNOWN_TOPIC_ID,
        Error.INCONSISTENT_TOPIC_ID,
    }
)


def error_of_code(code: str) -> Error:
    """Returns the error that a problem's code is for a client of Kafka's protocol."""
    return _BY_CODE.get(code, Error.UNKNOWN_SERVER_ERROR)


def error_of(problem: Problem | EngineError) -> Error:
    return error_of_code(problem.code)


def error_of_read(code: str, version: int) -> Error:
    """Returns the error of a read, as far as consumers know it: others are storage that does not answer now."""
    found = error_of_code(code)
    if found is Error.OFFSET_NOT_AVAILABLE and version < 11:
        return Error.NOT_LEADER_OR_FOLLOWER
    return found if found in OF_FETCH else Error.KAFKA_STORAGE_ERROR
