"""Maps all failures to HTTP: problem documents (RFC 9457) with a stable code.

The table is tested against `x-penstock-problems` of openapi/gateway.yaml. No other file of the gateway names a status
of 400 or above.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from engine.errors import EngineError
from gateway.http.response import Response

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1


class Kind(NamedTuple):
    """The constant meaning of a code. `no_side_effects`: certainly nothing was stored."""

    status: int
    title: str
    retryable: bool = False
    no_side_effects: bool = True


KINDS: dict[str, Kind] = {
    "malformed_request": Kind(400, "The request is not well-formed HTTP"),
    "malformed_json": Kind(400, "The body is not valid JSON"),
    "malformed_ndjson": Kind(400, "A line is not one JSON value"),
    "json_too_complex": Kind(400, "The JSON is nested too deeply or has too long a number"),
    "invalid_body": Kind(400, "The body does not match its schema"),
    "unknown_field": Kind(400, "The body has a field that is not known"),
    "no_records": Kind(400, "There is no record in the body"),
    "key_required": Kind(400, "A record of a compacted topic has no key"),
    "schema_mismatch": Kind(400, "A value does not follow the schema of its topic"),
    "unknown_query": Kind(400, "The query has a name that is not known"),
    "invalid_query": Kind(400, "A query value is not allowed"),
    "invalid_header": Kind(400, "A header value is not allowed"),
    "invalid_utf8": Kind(400, "The body is not UTF-8"),
    "invalid_batch": Kind(400, "The record batch breaks the format"),
    "corrupt_batch": Kind(400, "The record batch fails its checksum"),
    "unknown_producer": Kind(400, "The producer id was never assigned"),
    "invalid_topic_name": Kind(400, "The name cannot name a topic"),
    "invalid_token": Kind(400, "The token of a delivery is damaged"),
    "invalid_group_name": Kind(400, "The name cannot name a group or a member"),
    "invalid_pattern": Kind(400, "The regular expression cannot be used"),
    "invalid_rule": Kind(400, "The rule cannot be used"),
    "invalid_quota": Kind(400, "The quota cannot be used"),
    "invalid_config": Kind(400, "A setting is not known or out of bounds"),
    "unauthorized": Kind(401, "A token is needed"),
    "forbidden": Kind(403, "The token or the page's origin does not allow this"),
    "quota_exhausted": Kind(403, "The tenant has as much as it may have"),
    "push_disabled": Kind(403, "The operator has not allowed push"),
    "producer_fenced": Kind(403, "A newer epoch of the producer has taken over"),
    "unknown_topic": Kind(404, "There is no such topic"),
    "topic_id_mismatch": Kind(409, "The position is of a deleted topic of that name"),
    "unknown_partition": Kind(404, "There is no such partition"),
    "unknown_group": Kind(404, "There is no such group"),
    "unknown_member": Kind(404, "The group has no such member"),
    "unknown_source": Kind(404, "The partition knows no position of the source"),
    "unknown_subscription": Kind(404, "There is no such subscription"),
    "unknown_access": Kind(404, "There is no such rule, token, quota or key"),
    "unknown_tenant": Kind(404, "There is no such tenant"),
    "unknown_key": Kind(404, "The table has no such key"),
    "not_found": Kind(404, "There is nothing at this path"),
    "method_not_allowed": Kind(405, "The path does not take this method"),
    "not_acceptable": Kind(406, "None of the accepted media types can be given"),
    "body_timeout": Kind(408, "The body did not arrive in time", retryable=True),
    "topic_exists": Kind(409, "The topic exists and is different"),
    "access_exists": Kind(409, "A rule, a token or a tenant has this id or name"),
    "tenant_not_empty": Kind(409, "The tenant has topics or subscriptions"),
    "access_locks_out": Kind(409, "The author could not change rules again"),
    "too_many_rules": Kind(409, "The cluster has its maximum of rules, tokens or quotas"),
    "topic_protected": Kind(409, "The topic is protected from deletion"),
    "too_many_topics": Kind(409, "The node has its maximum of topics or partitions"),
    "member_fenced": Kind(409, "The member's epoch is not a present one"),
    "stale_token": Kind(409, "The delivery cannot be committed any more"),
    "group_not_empty": Kind(409, "The group has members"),
    "too_many_members": Kind(409, "The group or the coordinator has its maximum"),
    "wrong_group_kind": Kind(409, "The group is of the other kind"),
    "lock_expired": Kind(409, "The lock does not hold the records"),
    "lock_unknown": Kind(409, "The coordinator does not know the lock", retryable=True, no_side_effects=False),
    "no_committed_offset": Kind(409, "The group has no position to begin at"),
    "topic_not_compacted": Kind(409, "The topic is not a table"),
    "no_other_node": Kind(409, "There is no other node to take over"),
    "sequence_gap": Kind(409, "The records are not the next of their sequence", retryable=True),
    "source_position_stored": Kind(409, "Outputs of the source up to a position are stored"),
    "duplicate_older_than_window": Kind(409, "The records were stored before the remembered batches"),
    "offset_below_log_start": Kind(410, "The records have been deleted"),
    "fencing_token_mismatch": Kind(412, "The partition demands another fencing token"),
    "log_end_mismatch": Kind(412, "The log does not end where expected"),
    "body_too_large": Kind(413, "The body is too large"),
    "record_too_large": Kind(413, "A record is too large"),
    "batch_too_large": Kind(413, "A batch is too large"),
    "unsupported_media_type": Kind(415, "The media type cannot be taken here"),
    "unsupported_encoding": Kind(415, "The content encoding is not known"),
    "commit_above_high_watermark": Kind(409, "The position is beyond what is committed"),
    "offset_above_high_watermark": Kind(416, "The offset lies beyond what is committed"),
    "misdirected": Kind(421, "Another process leads the partition"),
    "host_not_allowed": Kind(421, "The node does not answer to this host"),
    "idempotency_key_reused": Kind(422, "The idempotency key belongs to another request"),
    "target_not_allowed": Kind(422, "The operator does not allow this target"),
    "target_not_confirmed": Kind(422, "The target did not confirm that it wants deliveries"),
    "too_many_requests": Kind(429, "Too many requests", retryable=True),
    "quota_exceeded": Kind(429, "A quota is used up", retryable=True),
    "too_many_long_polls": Kind(429, "Too many long polls are open", retryable=True),
    "headers_too_large": Kind(431, "The headers are too large"),
    "internal": Kind(500, "Internal error", retryable=True, no_side_effects=False),
    "records_damaged": Kind(500, "The records were damaged on the disk"),
    "patterns_unavailable": Kind(501, "The node has no engine for regular expressions"),
    "unsupported_transfer_coding": Kind(501, "The transfer coding is not known"),
    "unknown_method": Kind(501, "The method is not known"),
    "audit_unavailable": Kind(503, "The audit trail cannot be written", retryable=True),
    "overloaded": Kind(503, "The node is overloaded", retryable=True),
    "draining": Kind(503, "The node is stopping", retryable=True),
    "too_many_open_files": Kind(503, "No file can be opened now", retryable=True),
    "storage_failed": Kind(
        503, "The storage of the topic or partition cannot be used", retryable=True, no_side_effects=False
    ),
    "not_leader": Kind(503, "This node does not lead the partition", retryable=True),
    "no_leader": Kind(503, "The partition has no leader", retryable=True),
    "coordinator_moved": Kind(
        503, "The coordinator of the group moved during the call", retryable=True, no_side_effects=False
    ),
    "not_enough_replicas": Kind(503, "Too few replicas are in sync to append", retryable=True),
    "too_few_nodes": Kind(503, "Too few nodes are alive for the replication factor", retryable=True),
    "offset_not_available": Kind(503, "A new leader does not know the high watermark yet", retryable=True),
    "table_loading": Kind(503, "The keys of the table are read from the log", retryable=True),
    "store_unavailable": Kind(503, "The object store cannot be reached", retryable=True),
    "registry_unavailable": Kind(503, "The schema registry does not answer", retryable=True),
    "spool_full": Kind(503, "Too many records wait for the object store", retryable=True),
    "ack_timeout": Kind(504, "Not acknowledged in time", retryable=True, no_side_effects=False),
    "leadership_lost": Kind(504, "Leadership moved before the acknowledgement", retryable=True, no_side_effects=False),
    "not_enough_replicas_after_append": Kind(
        504, "Too few replicas were left to acknowledge", retryable=True, no_side_effects=False
    ),
    "unsupported_http_version": Kind(505, "The version of HTTP is not known"),
    "storage_full": Kind(507, "No space is left", retryable=True),
    "table_too_large": Kind(507, "The keys of the table need more memory than allowed"),
}


# Clients that know the protocol of sequences look for them in headers; the document has them as well.
MEMBERS_IN_HEADERS = {
    "producer_epoch": "Producer-Epoch",
    "expected_seq": "Producer-Expected-Seq",
    "received_seq": "Producer-Received-Seq",
}


class ProblemFields(NamedTuple):
    """A problem as links carry it."""

    code: str
    detail: str
    members: Mapping[str, object]


class Problem(Exception):
    """A failure on its way to the client. `members` are extra fields, `headers` extra headers of the answer."""

    def __init__(self, code: str, detail: str, *, headers: dict[str, str] | None = None, **members: object) -> None:
        super().__init__(f"{code}: {detail}")
        assert code in KINDS, code
        self.code = code
        self.detail = detail
        self.headers = headers or {}
        self.members = members

    @property
    def status(self) -> int:
        return KINDS[self.code].status

    def document(self, request_id: str | None = None) -> dict[str, object]:
        kind = KINDS[self.code]
        document: dict[str, object] = {
            "type": f"/docs#problem-{self.code}",
            "title": kind.title,
            "status": kind.status,
            "code": self.code,
            "detail": self.detail,
            "retryable": kind.retryable,
            "no_side_effects": kind.no_side_effects,
        }
        if request_id is not None:
            document["request_id"] = request_id
        return document | self.members

    def response(self, request_id: str | None = None) -> Response:
        headers = {
            "Content-Type": MEDIA_TYPE,
            "Cache-Control": "no-store",
            **self.headers,
        }  # caches may keep a bare 404
        if self.status in (429, 503):
            headers.setdefault("Retry-After", str(RETRY_AFTER_S))
        return Response(_encode(self.document(request_id)), headers, self.status, problem=self.code)


def _encode(document: dict[str, object]) -> bytes:
    """Returns the document as JSON. A detail may repeat bytes of a header that are not UTF-8: each becomes a `?`."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def from_fields(fields: ProblemFields, **more: object) -> Problem:
    """Returns a problem that a link has brought; `more` are members for those that it lacks."""
    problem = Problem(fields.code, fields.detail)
    problem.members |= {**more, **fields.members}
    return problem


def from_engine(error: EngineError) -> Problem:
    """Returns the problem of an engine error. A code without a status in HTTP is a bug and becomes `internal`."""
    code = error.code if error.code in KINDS else "internal"
    members: dict[str, Any] = dict(error.members)
    if error.no_side_effects != KINDS[code].no_side_effects:
        members["no_side_effects"] = error.no_side_effects
    headers = {header: str(members[member]) for member, header in MEMBERS_IN_HEADERS.items() if member in members}
    return Problem(code, str(error), headers=headers, **members)
