"""Changes of rules and quotas by requests of Kafka's protocol, with the right that HTTP asks for them."""

from __future__ import annotations

from engine.errors import EngineError
from gateway.access.state import AccessChange
from gateway.admin.access_routes import make_change
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.kafka.audit import audited
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.requests import KafkaRequest

NO_TOKENS = "this node has no tokens file: it knows no callers"


_ERRORS = {
    "forbidden": Error.CLUSTER_AUTHORIZATION_FAILED,
    "too_many_rules": Error.POLICY_VIOLATION,
    "access_locks_out": Error.POLICY_VIOLATION,
    "access_exists": Error.INVALID_REQUEST,
    "unknown_access": Error.INVALID_REQUEST,
    "unknown_tenant": Error.INVALID_REQUEST,
    "invalid_rule": Error.INVALID_REQUEST,
    "invalid_quota": Error.INVALID_REQUEST,
}


def error_of_access(failed: Problem | EngineError) -> Error:
    """Returns the error of a change that was refused, or that the coordination store has not confirmed."""
    return _ERRORS.get(failed.code, Error.COORDINATOR_NOT_AVAILABLE)


def tenant_of(request: KafkaRequest) -> str | None:
    return None if request.space is None else request.space.tenant


def refusal_of_access(request: KafkaRequest, context: KafkaContext) -> tuple[Error, str | None]:
    """Returns why the caller may not see and change rules."""
    if context.access.tokens is None:
        return Error.SECURITY_DISABLED, NO_TOKENS
    name, resource = _right(request)
    if not request.caller.allows(Operation.ACCESS, name, resource):
        text = f"{request.caller.principal} lacks the right access to the {resource}"
        return Error.CLUSTER_AUTHORIZATION_FAILED, text
    return Error.NONE, None


async def change_access(
    request: KafkaRequest,
    context: KafkaContext,
    what: AccessChange,
    principals: tuple[str, ...] = (),
    *,
    before: object = None,
    after: object = None,
) -> None:
    """Makes a change, and waits until the live nodes decide by it. Raises Problem, EngineError."""
    name, resource = _right(request)
    context.lifecycle.check_accepting()
    async with audited(request, context, Operation.ACCESS, name, resource, before=before, after=after):
        await make_change(context.access_changes, request.caller, request.client.address, what, principals)


def _right(request: KafkaRequest) -> tuple[str, Resource]:
    tenant = tenant_of(request)
    return ("", Resource.CLUSTER) if tenant is None else (tenant, Resource.TENANT)
