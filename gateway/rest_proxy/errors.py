"""Failures in the dialect: `{"error_code":…,"message":…}`, by the codes of REST Proxy.

The status of a code of five digits is its first three. A code without an entry here is the status of its problem.
"""

from __future__ import annotations

from typing import TypedDict

import orjson

from gateway.access.names import WITHOUT_COUNTS
from gateway.http.problems import RETRY_AFTER_S, Problem
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.rest_proxy.media_types import JSON, answer_type, is_v3

BAD_REQUEST = 40002
TOPIC, PARTITION, INSTANCE, GROUP = 40401, 40402, 40403, 40405
V3_TOPIC = 40403  # of v3, for topics and partitions
FORMAT_MISMATCH = 40601
EXISTS, ILLEGAL_STATE = 40902, 40903
UNPROCESSABLE = 422
NO_KEY_SCHEMA, NO_VALUE_SCHEMA, CONVERSION, INVALID_SCHEMA = 42201, 42202, 42203, 42205
INVALID_CONSUMER, INVALID_PAYLOAD, SERIALIZATION, BATCH = 42204, 42206, 42207, 42208
NOT_RETRIABLE, RETRIABLE = 50002, 50003

_SINGLE_DIGITS_MAX = 999
_NOT_SHAPED = ("invalid_body", "unknown_field", "no_records", "json_too_complex", "record_too_large")
_RETRIABLE = (
    "not_leader", "no_leader", "coordinator_moved", "not_enough_replicas", "offset_not_available", "ack_timeout",
    "leadership_lost", "not_enough_replicas_after_append", "registry_unavailable", "store_unavailable", "spool_full",
    "storage_failed",
)  # fmt: skip
CODES: dict[str, int] = {
    **dict.fromkeys(_NOT_SHAPED, UNPROCESSABLE),
    **dict.fromkeys(("invalid_topic_name", "invalid_group_name", "invalid_config", "invalid_pattern"), BAD_REQUEST),
    **dict.fromkeys(("topic_exists", "too_few_nodes", "topic_protected", "too_many_topics"), BAD_REQUEST),
    **dict.fromkeys(_RETRIABLE, RETRIABLE),
    **dict.fromkeys(("group_not_empty", "wrong_group_kind", "member_fenced", "too_many_members"), ILLEGAL_STATE),
    "key_required": INVALID_PAYLOAD,
    "schema_mismatch": INVALID_PAYLOAD,
    "unauthorized": 40101,
    "forbidden": 40301,
    "quota_exhausted": 40301,
    "unknown_topic": TOPIC,
    "unknown_partition": PARTITION,
    "unknown_member": INSTANCE,
    "unknown_group": INSTANCE,
    "commit_above_high_watermark": UNPROCESSABLE,
    "too_many_requests": 42901,
    "quota_exceeded": 42901,
    "storage_full": NOT_RETRIABLE,
    "records_damaged": NOT_RETRIABLE,
}
_V3_CODES = {TOPIC: V3_TOPIC, INSTANCE: GROUP}


class Refusal(Problem):
    """A failure that has a code in the dialect, and none of ours."""

    def __init__(self, dialect_code: int, detail: str) -> None:
        super().__init__("invalid_body", detail)
        self.dialect_code = dialect_code

    @property
    def status(self) -> int:
        return status_of(self.dialect_code)


def status_of(code: int) -> int:
    return code if code <= _SINGLE_DIGITS_MAX else code // 100


def code_of(problem: Problem, *, of_v3: bool = False) -> int:
    """Returns the code of a problem."""
    if isinstance(problem, Refusal):
        return problem.dialect_code
    code = CODES.get(problem.code, problem.status)
    return _V3_CODES.get(code, code) if of_v3 else code


def message_of(request: Request, problem: Problem) -> str:
    """Returns the text of a problem, as the tenant of its request may see it."""
    if request.space is None:
        return problem.detail
    return str(request.space.shown(WITHOUT_COUNTS.get(problem.code, problem.detail)))


class Row(TypedDict):
    """The failure of a request, or of one record among others."""

    error_code: int
    message: str


def row_of(request: Request, problem: Problem, *, of_v3: bool = False) -> Row:
    """Returns the failure of one record among others."""
    return {"error_code": code_of(problem, of_v3=of_v3), "message": message_of(request, problem)}


def bare_document(code: int, message: str) -> bytes:
    """Returns the failure of a request that could not be read."""
    return orjson.dumps({"error_code": code, "message": message})


def refuse(request: Request, problem: Problem) -> Response:
    """Returns the answer to a request that has failed."""
    of_v3 = is_v3(request)
    document = row_of(request, problem, of_v3=of_v3)
    try:
        media_type = JSON if of_v3 else answer_type(request.headers.get("Accept", ""))
    except Problem:
        media_type = JSON
    headers = {"Content-Type": media_type, "Cache-Control": "no-store", **problem.headers}
    if problem.status in (429, 503):
        headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    try:
        body = orjson.dumps(document)
    except TypeError:  # bytes of a header that are not UTF-8
        body = orjson.dumps({**document, "message": document["message"].encode("utf-8", "replace").decode()})
    code = None if request.space is not None else problem.code  # its document is shown here, and not once more
    return Response(body, headers, status_of(document["error_code"]), problem=code)
