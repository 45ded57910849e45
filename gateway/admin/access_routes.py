"""Answers the requests about rules and tokens of the coordination store: lists, changes, and what a rule would decide.

Not here: which change is refused (gateway/access/state.py), and the commit (gateway/access/store.py). The text of a
token is in one answer, that of its creation; the store has its hash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from engine.runtime.clock import Clock
from gateway.access.access import Access
from gateway.access.identity import is_of_tenants
from gateway.access.rules import ANONYMOUS as ANONYMOUS_PRINCIPAL
from gateway.access.rules import (
    EVERYBODY,
    OF_TENANTS,
    Effect,
    InvalidRule,
    Pattern,
    Rule,
    check_principal,
    plain_address,
)
from gateway.access.state import (
    AccessChange,
    AccessState,
    AddKey,
    AddRule,
    AddTenant,
    AddToken,
    Change,
    ChangeAccess,
    LimitTenant,
    RemoveKey,
    RemoveQuota,
    RemoveRule,
    RemoveTenant,
    RemoveToken,
    RotateToken,
    SetQuota,
    StoredToken,
)
from gateway.access.tokens import digest_of, make_text
from gateway.admin.peer_calls import nodes_behind
from gateway.groups.model.values import GroupRow
from gateway.http.json_body import read_json
from gateway.http.page import PageQuery, page_of
from gateway.http.problems import Problem
from gateway.http.query import NoQuery, Word, read_query
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.rights import OPERATIONS, Caller, Decision, Operation, Resource
from gateway.links.process_links import ProcessLinks
from gateway.routing.partitions import Topics
from gateway.usage.holdings import Holdings

KEPT_MS = 3_600_000  # a rotation keeps the tokens before it for an hour, to hand out the new one
LIFE_MS_MAX = 10 * 366 * 24 * 3_600_000

_TokenName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}\Z")]
_LifeMs = Annotated[int, Meta(ge=1, le=LIFE_MS_MAX)]
_Note = Annotated[str, Meta(max_length=200)]


@dataclass(frozen=True, slots=True)
class AccessContext:
    """The dependencies of the routes of access. `change`: None in a process without a coordination store.

    `links` are those to the other nodes, which are to serve a change before it is answered. `groups` lists all groups.
    """

    access: Access
    change: ChangeAccess | None
    links: ProcessLinks
    random_bytes: Callable[[int], bytes]
    clock: Clock
    topics: Topics
    groups: Callable[[], Awaitable[Sequence[GroupRow]]]
    signed_life_max_ms: int
    holdings: Holdings


class ForceQuery(Struct, frozen=True):
    force: Annotated[str, Word(("true", "false"))] = "false"


class _AddRule(Struct, forbid_unknown_fields=True):
    principals: list[str]
    operations: list[Operation]
    resource: Resource
    effect: Effect = Effect.ALLOW
    pattern: Pattern = Pattern.LITERAL
    name: str = ""
    sources: list[str] = []
    note: str = ""
    id: str = ""


class _CreateToken(Struct, forbid_unknown_fields=True):
    name: _TokenName
    life_ms: _LifeMs | None = None
    note: _Note = ""


class _RotateToken(Struct, forbid_unknown_fields=True):
    life_ms: _LifeMs | None = None
    keep_ms: Annotated[int, Meta(ge=0, le=LIFE_MS_MAX)] = KEPT_MS
    note: _Note = ""


class _Check(Struct, forbid_unknown_fields=True):
    principal: str
    operation: Operation
    resource: Resource
    name: str = ""
    groups: list[str] = []
    address: str = ""


async def list_rules(request: Request, context: AccessContext) -> Response:
    """GET /v1/access/rules"""
    query, state, tenant = read_query(request, PageQuery), context.access.snapshot.state, _tenant_of(request)
    page, members = page_of(query, (rule for rule in state.rules if rule.tenant == tenant), attrgetter("id"))
    rules = [_shown_rule(rule) for rule in page]
    return json_response({"generation": state.generation, "rules": rules} | members)


async def add_rule(request: Request, context: AccessContext) -> Response:
    """POST /v1/access/rules. Raises Problem, EngineError."""
    query = read_query(request, ForceQuery)
    body = await read_json(request, _AddRule)
    rule = Rule(
        id=body.id or context.random_bytes(6).hex(),
        effect=body.effect,
        principals=tuple(body.principals),
        operations=tuple(body.operations),
        resource=body.resource,
        pattern=Pattern.ALL if body.resource is Resource.CLUSTER and not body.name else body.pattern,
        name=body.name,
        sources=tuple(body.sources),
        note=body.note,
        author=request.caller.principal,
        created_ms=context.clock.now_ms(),
        tenant=_tenant_of(request),
    )
    made = await change_access(request, context, AddRule(rule), query, rule.principals)
    return json_response(made | {"rule": _shown_rule(rule)}, 201)


async def remove_rule(request: Request, context: AccessContext) -> Response:
    """DELETE /v1/access/rules/{rule}. Raises Problem, EngineError."""
    query = read_query(request, ForceQuery)
    made = await change_access(request, context, RemoveRule(request.names["rule"], _tenant_of(request)), query)
    return json_response(made)


async def list_tokens(request: Request, context: AccessContext) -> Response:
    """GET /v1/access/tokens"""
    query, state, tenant = read_query(request, PageQuery), context.access.snapshot.state, _tenant_of(request)
    page, members = page_of(query, (token for token in state.tokens if token.tenant == tenant), attrgetter("id"))
    tokens = [_shown_token(token) for token in page]
    return json_response({"generation": state.generation, "tokens": tokens} | members)


async def create_token(request: Request, context: AccessContext) -> Response:
    """POST /v1/access/tokens. Raises Problem, EngineError."""
    query = read_query(request, NoQuery)
    body = await read_json(request, _CreateToken)
    token, text = _new_token(request, context, body.name, body)
    made = await change_access(request, context, AddToken(token), query, (f"token:{token.name}",))
    return json_response(made | {"token": text} | _shown_token(token), 201)


async def revoke_token(request: Request, context: AccessContext) -> Response:
    """DELETE /v1/access/tokens/{token}. Raises Problem, EngineError."""
    query = read_query(request, ForceQuery)
    made = await change_access(request, context, RemoveToken(request.names["token"], _tenant_of(request)), query)
    return json_response(made)


async def rotate_token(request: Request, context: AccessContext) -> Response:
    """POST /v1/access/tokens/{token}/rotate. Raises Problem, EngineError."""
    query = read_query(request, NoQuery)
    body = await read_json(request, _RotateToken, _RotateToken())
    name = request.names["token"]
    token, text = _new_token(request, context, name, body)
    end_ms = context.clock.now_ms() + body.keep_ms
    made = await change_access(request, context, RotateToken(token, end_ms), query)
    return json_response(made | {"token": text, "others_end_ms": end_ms} | _shown_token(token), 201)


async def check_access(request: Request, context: AccessContext) -> Response:
    """POST /v1/access/check. Raises Problem."""
    read_query(request, NoQuery)
    body = await read_json(request, _Check)
    try:
        for principal in (body.principal, *body.groups):
            check_principal(principal)
        address = plain_address(body.address) if body.address else None
    except InvalidRule as error:
        raise Problem("invalid_rule", str(error)) from None
    except ValueError:
        raise Problem("invalid_body", f"address: {body.address[:100]!r} is not an IP address") from None
    if body.operation not in OPERATIONS[body.resource]:
        known = ", ".join(sorted(OPERATIONS[body.resource]))
        raise Problem("invalid_body", f"operation: a {body.resource} has no {body.operation}; it has {known}")
    snapshot, tenant = context.access.snapshot, _tenant_of(request)
    principals = [body.principal, *body.groups]
    if tenant is None:
        principals += snapshot.file_principals(body.principal)
    if body.principal != ANONYMOUS_PRINCIPAL:
        principals.append(EVERYBODY)
    answers = snapshot.evaluator_of(tenant).answers(principals, body.operation, body.resource, address)
    decision, is_superuser = answers.decide(body.name), tenant is None and snapshot.is_superuser(body.principal)
    if tenant is None and is_of_tenants(body.operation, body.name, body.resource, snapshot.spaces):
        decision, is_superuser = Decision(False, OF_TENANTS), False
    return json_response(
        {
            "generation": snapshot.state.generation,
            "allowed": is_superuser or decision.is_allowed,
            "rule": "superuser" if is_superuser else decision.rule,
        }
    )


async def change_access(
    request: Request,
    context: AccessContext,
    what: AccessChange,
    query: object = None,
    principals: tuple[str, ...] = (),
) -> dict[str, object]:
    """Makes a change for the caller of a request, and waits for the other nodes.

    Returns its generation, and the nodes that do not serve it yet. `principals` are those that it names. Raises
    Problem, EngineError.
    """
    await request.intend(**_audited(context.access.snapshot.state, what))
    is_forced, client = isinstance(query, ForceQuery) and query.force == "true", context.access.client_of(request)
    generation, behind = await make_change(context, request.caller, client, what, principals, is_forced=is_forced)
    return {"generation": generation, "behind": behind if request.space is None else []}  # nodes are the operator's


async def make_change(
    context: AccessContext,
    caller: Caller,
    client: str,
    what: AccessChange,
    principals: tuple[str, ...] = (),
    *,
    is_forced: bool = False,
) -> tuple[int, list[int]]:
    """Makes a change for a caller, and waits for the other nodes. Returns its generation, and the nodes behind it.

    `client` is the address of the caller. Raises Problem, EngineError.
    """
    if context.change is None:
        raise Problem("internal", "this process has no coordination store")
    access = context.access
    generation = await context.change(
        Change(
            what=what,
            author=access.author_of(caller, client),
            now_ms=context.clock.now_ms(),
            is_forced=is_forced,
            file_principals=tuple(
                one for one in principals if caller.space is None and access.snapshot.file_principals(one)
            ),
        )
    )
    return generation, await nodes_behind(context.links, generation)


def _audited(state: AccessState, what: AccessChange) -> dict[str, Any]:
    """Returns what the audit trail has of a change, as far as this process knows the state before it."""
    match what:
        case AddRule(rule):
            return {"after": _shown_rule(rule), "name": rule.id}
        case RemoveRule(rule_id, of_tenant):
            rules = [rule for rule in state.rules if (rule.id, rule.tenant) == (rule_id, of_tenant)]
            return {"before": [_shown_rule(rule) for rule in rules]}
        case AddToken(token):
            return {"after": _shown_token(token), "name": token.name}
        case RemoveToken(name, of_tenant):
            tokens = [one for one in state.tokens if one.tenant == of_tenant and name in (one.id, one.name)]
            return {"before": [_shown_token(token) for token in tokens]}
        case RotateToken(token, others_end_ms):
            principal = (token.name, token.tenant)
            before = [_shown_token(other) for other in state.tokens if (other.name, other.tenant) == principal]
            return {"before": before, "after": _shown_token(token) | {"others_end_ms": others_end_ms}}
        case SetQuota(quota):
            replaced = next((to_builtins(other) for other in state.quotas if other.id == quota.id), None)
            return {"before": replaced, "after": to_builtins(quota), "name": quota.id}
        case AddKey(key):
            return {"after": {"id": key.id}, "name": key.id}  # never its secret
        case RemoveKey(key_id):
            return {"before": [{"id": key.id} for key in state.keys if key.id == key_id]}
        case RemoveQuota(quota_id):
            return {"before": [to_builtins(quota) for quota in state.quotas if quota.id == quota_id]}
        case AddTenant(tenant):
            return {"after": to_builtins(tenant), "name": tenant.id}
        case LimitTenant(tenant_id, limits):
            former = next((to_builtins(other.limits) for other in state.tenants if other.id == tenant_id), None)
            return {"before": former, "after": to_builtins(limits)}
        case RemoveTenant(tenant_id):
            return {"before": [to_builtins(tenant) for tenant in state.tenants if tenant.id == tenant_id]}


def _tenant_of(request: Request) -> str | None:
    """Returns the tenant whose rules and tokens a request is about."""
    return None if request.space is None else request.space.tenant


def _new_token(
    request: Request, context: AccessContext, name: str, body: _CreateToken | _RotateToken
) -> tuple[StoredToken, str]:
    token_id, text = make_text(context.random_bytes)
    now_ms = context.clock.now_ms()
    token = StoredToken(
        id=token_id,
        name=name,
        sha256=digest_of(text).hex(),
        created_ms=now_ms,
        expires_ms=0 if body.life_ms is None else now_ms + body.life_ms,
        author=request.caller.principal,
        note=body.note,
        tenant=_tenant_of(request),
    )
    return token, text


def _shown_rule(rule: Rule) -> dict[str, object]:
    shown: dict[str, object] = to_builtins(rule)
    return _without_no_tenant(shown)


def _without_no_tenant(shown: dict[str, object]) -> dict[str, object]:
    if shown["tenant"] is None:
        del shown["tenant"]
    return shown


def _shown_token(token: StoredToken) -> dict[str, object]:
    """Returns what may be known of a token. Its hash is left out: no client needs it."""
    shown: dict[str, object] = to_builtins(token)
    del shown["sha256"]
    return _without_no_tenant(shown)
