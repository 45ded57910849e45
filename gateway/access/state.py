"""The rules, tokens and quotas that the coordination store has, and their changes. A core: values in, values out.

A change is decided on the state that it is committed to, so that two changes never undo each other's checks. Invariant:
a change after which its author could not make another one is refused unless it is forced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from gateway.access.evaluator import Evaluator
from gateway.access.rules import InvalidRule, Rule, address_of, check_rule
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.quotas.quota import TENANT_END, InvalidQuota, Quota, check_quota, principal_of, tenant_of

BLOCKS = 16  # of 5,000 items: 300 a block, some 100 KiB of rules
OF_TENANT_MAX = 500  # rules, and tokens, of one tenant
_OF_TOKENS = "token:"
_Item = TypeVar("_Item", Rule, "StoredToken", "UrlKey")


class Kind(NamedTuple):
    """A kind of items that the store has: the number that there may be, and the keys that they are spread over.

    The name of a kind is its field in AccessState. `items` is the type of that field; each item has an `id`.
    """

    count_max: int
    blocks: int = BLOCKS
    items: Any = None


class StoredToken(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A token: a hash of its text, and never the text. Tokens with one name are one principal, during a rotation.

    `expires_ms`: when it ends, in milliseconds since 1970; 0: it does not end. `tenant`: the one whose names it says.
    """

    id: str
    name: str
    sha256: str
    created_ms: int
    expires_ms: int = 0
    author: str = ""
    note: str = ""
    tenant: str | None = None


class TenantLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much a tenant may have. None: as much as there is room for."""

    topics: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    partitions: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    groups: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    subscriptions: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    members: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    stored_bytes: Annotated[int, Meta(ge=0, le=2**60)] | None = None


class Tenant(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tenant: it owns all topics, groups and subscriptions whose names begin with its id and a dot."""

    id: str
    created_ms: int
    author: str = ""
    note: str = ""
    limits: TenantLimits = TenantLimits()


class UrlKey(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A master key of signed URLs. Its secret signs in the name of every subject."""

    id: str
    secret: str  # hexadecimal
    created_ms: int
    author: str = ""

    def __repr__(self) -> str:
        return f"UrlKey({self.id})"


class AccessState(Struct, frozen=True):
    """All items of one generation, each kind sorted by id. A field with a Kind is all that a further kind needs."""

    generation: int = 0
    rules: Annotated[tuple[Rule, ...], Kind(count_max=5000)] = ()
    tokens: Annotated[tuple[StoredToken, ...], Kind(count_max=5000)] = ()
    quotas: Annotated[tuple[Quota, ...], Kind(count_max=5000)] = ()
    keys: Annotated[tuple[UrlKey, ...], Kind(count_max=2, blocks=1)] = ()
    tenants: Annotated[tuple[Tenant, ...], Kind(count_max=1000)] = ()


def _kinds() -> dict[str, Kind]:
    """Returns the kinds by their names, each with the type of its field."""
    found = {}
    for name, hint in get_type_hints(AccessState, include_extras=True).items():
        if get_origin(hint) is Annotated:
            items, kind = get_args(hint)
            found[name] = kind._replace(items=items)
    return found


KINDS = _kinds()


class AddRule(Struct, frozen=True, tag="add_rule"):
    rule: Rule


class RemoveRule(Struct, frozen=True, tag="remove_rule"):
    id: str
    tenant: str | None = None


class AddToken(Struct, frozen=True, tag="add_token"):
    token: StoredToken


class RemoveToken(Struct, frozen=True, tag="remove_token"):
    """Removes the token with this id, or all with this name."""

    name: str
    tenant: str | None = None


class RotateToken(Struct, frozen=True, tag="rotate_token"):
    """Adds a token with the name of others, which end at `others_end_ms`."""

    token: StoredToken
    others_end_ms: int


class SetQuota(Struct, frozen=True, tag="set_quota"):
    """Sets the quota of an owner, in place of one that it has."""

    quota: Quota


class RemoveQuota(Struct, frozen=True, tag="remove_quota"):
    id: str


class AddKey(Struct, frozen=True, tag="add_key"):
    key: UrlKey


class RemoveKey(Struct, frozen=True, tag="remove_key"):
    id: str


class AddTenant(Struct, frozen=True, tag="add_tenant"):
    tenant: Tenant


class RemoveTenant(Struct, frozen=True, tag="remove_tenant"):
    """Removes a tenant with its rules, tokens and quotas. Topics with its prefix are other callers' from then on."""

    id: str


class LimitTenant(Struct, frozen=True, tag="limit_tenant"):
    id: str
    limits: TenantLimits


class Author(Struct, frozen=True, kw_only=True):
    """The caller of a change: its principals and the rules that come with its credential. `client` is `host:port`."""

    principal: str
    principals: tuple[str, ...] = ()
    own_rules: tuple[Rule, ...] = ()
    is_superuser: bool = False
    token_id: str = ""
    expires_ms: int = 0
    client: str = ""
    tenant: str | None = None


AccessChange = (
    AddRule
    | RemoveRule
    | AddToken
    | RemoveToken
    | RotateToken
    | SetQuota
    | RemoveQuota
    | AddKey
    | RemoveKey
    | AddTenant
    | LimitTenant
    | RemoveTenant
)


class Change(Struct, frozen=True, kw_only=True):
    """One change. `file_principals`: those of its principals that the tokens file knows."""

    what: AccessChange
    author: Author | None  # None: the node has no tokens file, and every client may do everything
    now_ms: int
    is_forced: bool = False
    file_principals: tuple[str, ...] = ()


ChangeAccess = Callable[[Change], Awaitable[int]]
"""Makes a change in the coordination store, and returns its generation. Raises Problem, EngineError."""


def changed(state: AccessState, change: Change) -> AccessState:
    """Returns the state after a change, with the next generation. Raises Problem."""
    author, tenant = change.author, _tenant_of(change.what)
    if author is not None and not _may_change(state, author, change.now_ms, tenant):
        problem = Problem("forbidden", f"{author.principal} may not change rules and tokens any more")
        problem.members = {"operation": Operation.ACCESS.value, "resource": Resource.CLUSTER.value}
        raise problem
    after = replace(_changed(state, change), generation=state.generation + 1)
    for name, kind in KINDS.items():
        count = len(getattr(after, name))
        if kind.count_max < count > len(getattr(state, name)):
            raise Problem("too_many_rules", f"there are {kind.count_max} {name} at most")
    _check_room_of_tenant(after, change.what)
    if author is not None and not change.is_forced and not _may_change(after, author, change.now_ms, tenant):
        text = f"{author.principal} could not change rules and tokens after this; force it if that is meant"
        raise Problem("access_locks_out", text)
    return after


def _changed(state: AccessState, change: Change) -> AccessState:
    match change.what:
        case AddRule(rule):
            _check_new_rule(state, rule, change.file_principals)
            return replace(state, rules=_by_id((*state.rules, rule)))
        case RemoveRule(rule_id, tenant):
            rules = tuple(rule for rule in state.rules if (rule.id, rule.tenant) != (rule_id, tenant))
            if len(rules) == len(state.rules):
                raise Problem("unknown_access", f"there is no rule {rule_id[:64]!r}")
            return replace(state, rules=rules)
        case AddToken(token):
            _check_tenant(state, token.tenant)
            if _OF_TOKENS + token.name in change.file_principals:
                raise Problem("access_exists", f"the tokens file has a token {token.name!r}: use another name")
            if any((token.name, token.tenant) == (other.name, other.tenant) for other in state.tokens):
                text = f"there is a token {token.name!r}: rotate it, or use another name"
                raise Problem("access_exists", text)
            return replace(state, tokens=_by_id((*state.tokens, token)))
        case RemoveToken(name, tenant):
            tokens = tuple(one for one in state.tokens if one.tenant != tenant or name not in (one.id, one.name))
            if len(tokens) == len(state.tokens):
                raise Problem("unknown_access", f"there is no token {name[:100]!r}")
            return replace(state, tokens=tokens)
        case AddKey(key):
            return replace(state, keys=_by_id((*state.keys, key)))
        case RemoveKey(key_id):
            keys = tuple(key for key in state.keys if key.id != key_id)
            if len(keys) == len(state.keys):
                raise Problem("unknown_access", f"there is no key {key_id[:64]!r}")
            return replace(state, keys=keys)
        case RotateToken(token, others_end_ms):
            return replace(state, tokens=_by_id((*_ending(state, token, others_end_ms), token)))
        case SetQuota(quota):
            _check_new_quota(state, quota, change.file_principals)
            others = [other for other in state.quotas if other.id != quota.id]
            return replace(state, quotas=_by_id((*others, quota)))
        case RemoveQuota(quota_id):
            quotas = tuple(quota for quota in state.quotas if quota.id != quota_id)
            if len(quotas) == len(state.quotas):
                raise Problem("unknown_access", f"there is no quota {quota_id[:100]!r}")
            return replace(state, quotas=quotas)
        case AddTenant(tenant):
            if any(tenant.id == other.id for other in state.tenants):
                raise Problem(
                    "access_exists", f"there is a tenant {tenant.id!r} already: use another id, or remove that one"
                )
            return replace(state, tenants=_by_id((*state.tenants, tenant)))
        case LimitTenant(tenant_id, limits):
            _check_tenant(state, tenant_id)
            limited = (replace(one, limits=limits) if one.id == tenant_id else one for one in state.tenants)
            return replace(state, tenants=tuple(limited))
        case RemoveTenant(tenant_id):
            _check_tenant(state, tenant_id)
            return replace(
                state,
                tenants=tuple(one for one in state.tenants if one.id != tenant_id),
                tokens=tuple(one for one in state.tokens if one.tenant != tenant_id),
                rules=tuple(one for one in state.rules if one.tenant != tenant_id),
                quotas=tuple(quota for quota in state.quotas if tenant_of(quota) != tenant_id),
            )


def _check_tenant(state: AccessState, tenant: str | None) -> None:
    if tenant is not None and not any(tenant == one.id for one in state.tenants):
        raise unknown_tenant(tenant)


def unknown_tenant(tenant: str) -> Problem:
    return Problem("unknown_tenant", f"there is no tenant {tenant[:64]!r}")


def _check_room_of_tenant(after: AccessState, what: AccessChange) -> None:
    """Raises Problem too_many_rules: one tenant must not take the room of all."""
    added = what.rule if isinstance(what, AddRule) else what.token if isinstance(what, AddToken | RotateToken) else None
    if added is None or added.tenant is None:
        return
    for name in ("rules", "tokens"):
        if sum(one.tenant == added.tenant for one in getattr(after, name)) > OF_TENANT_MAX:
            raise Problem("too_many_rules", f"a tenant may have {OF_TENANT_MAX} {name}")


def _ending(state: AccessState, new: StoredToken, end_ms: int) -> list[StoredToken]:
    principal = (new.name, new.tenant)
    if not any((token.name, token.tenant) == principal for token in state.tokens):
        raise Problem("unknown_access", f"there is no token {new.name[:100]!r}")
    return [
        replace(token, expires_ms=min(token.expires_ms or end_ms, end_ms))
        if (token.name, token.tenant) == principal
        else token
        for token in state.tokens
    ]


def _check_new_rule(state: AccessState, rule: Rule, file_principals: tuple[str, ...]) -> None:
    try:
        check_rule(rule)
    except InvalidRule as error:
        raise Problem("invalid_rule", str(error)) from None
    _check_tenant(state, rule.tenant)
    if rule.tenant is not None and rule.resource is Resource.TENANT and rule.name not in ("", rule.tenant):
        raise Problem("invalid_rule", f"name: a rule inside of the tenant {rule.tenant} is about no other tenant")
    if any((rule.id, rule.tenant) == (other.id, other.tenant) for other in state.rules):
        raise Problem("access_exists", f"there is a rule {rule.id!r}: remove it, or use another id")
    for principal in rule.principals:
        if _is_unknown(state, principal, file_principals, rule.tenant):
            text = f"principals: there is no token {principal.removeprefix(_OF_TOKENS)!r}: create it before its rules"
            raise Problem("invalid_rule", text)


def _check_new_quota(state: AccessState, quota: Quota, file_principals: tuple[str, ...]) -> None:
    try:
        check_quota(quota)
    except InvalidQuota as error:
        raise Problem("invalid_quota", str(error)) from None
    principal, tenant = principal_of(quota), tenant_of(quota)
    if tenant and all(tenant != known.id for known in state.tenants):
        raise Problem("invalid_quota", f"name: there is no tenant {tenant[:64]!r}: create it before its quota")
    if tenant:
        principal, file_principals = principal.removeprefix(f"{tenant}{TENANT_END}"), ()
    if _is_unknown(state, principal, file_principals, tenant or None):
        text = f"name: there is no token {principal.removeprefix(_OF_TOKENS)!r}: create it before its quota"
        raise Problem("invalid_quota", text)


def _is_unknown(
    state: AccessState, principal: str, file_principals: tuple[str, ...], tenant: str | None = None
) -> bool:
    """Returns whether a principal is a token that does not exist. Principals of other kinds cannot be looked up."""
    known = {_OF_TOKENS + token.name for token in state.tokens if token.tenant == tenant} | set(file_principals)
    return principal.startswith(_OF_TOKENS) and principal not in known


def _tenant_of(what: AccessChange) -> str | None:
    """Returns the tenant that a change is inside of; None: it is outside of all."""
    match what:
        case AddRule(rule):
            return rule.tenant
        case AddToken(token) | RotateToken(token):
            return token.tenant
        case RemoveRule(_, tenant) | RemoveToken(_, tenant):
            return tenant
    return None


def _may_change(state: AccessState, author: Author, now_ms: int, tenant: str | None) -> bool:
    """Returns whether the author may change rules in this state; with `tenant`, those inside of it."""
    if author.expires_ms and author.expires_ms <= now_ms:
        return False
    if author.is_superuser:
        return True
    if author.token_id and not author.own_rules:  # a token of the store
        own = next((token for token in state.tokens if token.id == author.token_id), None)
        if own is None or (own.expires_ms and own.expires_ms <= now_ms):
            return False
    evaluator = Evaluator((*author.own_rules, *(rule for rule in state.rules if rule.tenant == author.tenant)))
    address = address_of(author.client)

    def may(resource: Resource, name: str) -> bool:
        return evaluator.answers(author.principals, Operation.ACCESS, resource, address).decide(name).is_allowed

    if author.tenant is not None:
        return may(Resource.TENANT, author.tenant)
    return may(Resource.CLUSTER, "") or (tenant is not None and may(Resource.TENANT, tenant))


def _by_id(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    return tuple(sorted(items, key=lambda item: item.id))


def state_from(data: bytes | str) -> AccessState:
    """Returns a state that `state_to` has encoded."""
    return msgspec.json.decode(data, type=AccessState)


def state_to(state: AccessState) -> str:
    return msgspec.json.encode(state).decode()
