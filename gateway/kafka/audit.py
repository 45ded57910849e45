"""The audit trail around changes of Kafka's protocol: a line before each, and one that says what became of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.errors import EngineError
from gateway.access.rules import SUPERUSER_RULE, address_of
from gateway.audit.events import Kind, Subject
from gateway.audit.trail import Trail
from gateway.audit.writer import AuditFailed
from gateway.http.problems import Problem
from gateway.http.rights import ANONYMOUS, Operation, Resource
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.requests import Client, KafkaRequest
from gateway.kafka.sasl import check_still_known

log = logging.getLogger("penstock.audit")

_CHANGES = frozenset({"CreateTopics", "DeleteTopics", "CreatePartitions", "IncrementalAlterConfigs", "AlterConfigs",
                      "DeleteRecords", "DeleteGroups", "OffsetDelete", "CreateAcls", "DeleteAcls", "AlterClientQuotas",
                      "AlterPartitionReassignments", "AlterReplicaLogDirs", "ElectLeaders"})  # fmt: skip
_DENIALS = {
    Error.TOPIC_AUTHORIZATION_FAILED: (Kind.DENIED, Operation.DESCRIBE, Resource.TOPIC),
    Error.GROUP_AUTHORIZATION_FAILED: (Kind.DENIED, Operation.DESCRIBE, Resource.GROUP),
    Error.CLUSTER_AUTHORIZATION_FAILED: (Kind.DENIED, Operation.DESCRIBE, Resource.CLUSTER),
    Error.SASL_AUTHENTICATION_FAILED: (Kind.REFUSED, Operation.DESCRIBE, Resource.CLUSTER),
}


@asynccontextmanager
async def audited(
    request: KafkaRequest,
    context: KafkaContext,
    operation: Operation,
    name: str,
    resource: Resource = Resource.TOPIC,
    *,
    before: object = None,
    after: object = None,
) -> AsyncIterator[None]:
    """Records a change that has been checked and is made in the block. Raises AuditFailed before it; then nothing is.

    Raises Problem forbidden if the caller has lost the right while the line was written, Malformed if it is not known
    any more.
    """
    trail = context.audit
    if trail is None:
        yield
        return
    caller = request.caller
    subject = subject_of(request.client, f"kafka_{request.api.name}", operation, resource, name)
    decision = caller.decide(operation, name, resource)
    fields = _ids_of(request)
    intended = {"decision": "allowed", "rule": decision.rule, "before": before, "after": after}
    await trail.write(trail.line(Kind.INTENDED, subject, **intended, **fields))
    outcome, code = "failed", "internal"
    try:
        check_still_known(request.client, context.access, context.clock.now_ms())
        if not request.caller.allows(operation, name, resource):
            raise Problem("forbidden", f"{caller.principal} has lost the right to {operation} the {resource}")
        yield
        outcome, code = "done", ""
    except asyncio.CancelledError:  # its client has left, and the change may have been made
        outcome, code = "unknown", ""
        raise
    except (EngineError, Problem) as error:
        code = error.code
        raise
    finally:
        await _end(trail, subject, {"outcome": outcome, "status": None, "code": code or None, **fields})


async def _end(trail: Trail, subject: Subject, fields: dict[str, object]) -> None:
    try:
        await trail.write(trail.line(Kind.ENDED, subject, **fields))
    except AuditFailed as error:
        extra = {"operation": subject.operation, "reason": str(error)}
        log.error("a change was made, and the audit trail does not have its end", extra=extra)


def note_denial(request: KafkaRequest, trail: Trail) -> None:
    """Notes a request that was answered with the error of a missing right, or whose credential was refused."""
    kind, operation, resource = _DENIALS[request.error]
    subject = subject_of(request.client, f"kafka_{request.api.name}", operation, resource, None)
    trail.note(kind, subject, None, lambda: _ids_of(request))


def note_superuser(request: KafkaRequest, trail: Trail) -> None:
    """Notes a request of a superuser. Changes have lines of their own."""
    if request.api.name in _CHANGES:
        return
    subject = subject_of(request.client, f"kafka_{request.api.name}", Operation.DESCRIBE, Resource.CLUSTER, None)
    trail.note(Kind.SUPERUSER, subject, SUPERUSER_RULE, lambda: _ids_of(request))


def _ids_of(request: KafkaRequest) -> dict[str, object]:
    return {"request_id": f"{request.client.address}-{request.correlation_id}", "client_request_id": None}


def is_denial(error: Error) -> bool:
    return error in _DENIALS


def subject_of(client: Client, operation: str, right: Operation, resource: Resource, name: str | None) -> Subject:
    """Returns who does what."""
    caller = client.caller
    address = address_of(client.address)
    return Subject(
        None if caller is None or caller is ANONYMOUS else caller.principal,
        getattr(caller, "token_id", "") or None,
        getattr(caller, "tenant", None),
        None if address is None else str(address),
        operation,
        right.value,
        resource.value,
        name,
    )
