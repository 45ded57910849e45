"""DescribeClientQuotas and AlterClientQuotas: quotas of principals and of their client ids, in Kafka's words.

Kafka's rates are bytes a second, and a percentage of the time of one thread. A quota that is made here is of each node,
as Kafka's are; one that is changed keeps its scope. Quotas of tenants and of topics have no word in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from engine.errors import EngineError
from gateway.access.state import RemoveQuota, SetQuota
from gateway.http.problems import Problem
from gateway.kafka.access_changes import change_access, error_of_access, refusal_of_access
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.principals import kafka_principal, own_principal
from gateway.kafka.requests import KafkaRequest
from gateway.quotas.quota import DEFAULT, SEPARATOR, Dimension, InvalidQuota, Owner, Quota, Scope, check_quota, id_of

USER, CLIENT_ID = "user", "client-id"
EXACT, IS_DEFAULT, ANY = range(3)  # how a filter matches
LOOP_MS_OF_PERCENT = 10.0  # 100 % is the whole time of a loop
_FIELDS = {"producer_byte_rate": "bytes_in", "consumer_byte_rate": "bytes_out", "request_percentage": "loop_ms"}
_USER_PREFIX = "User:"

Described, DescribedEntry, DescribedEntity, DescribedValue = (
    types_of("DescribeClientQuotas")[path] for path in ("", "entries", "entries.entity", "entries.values")
)
Altered, AlteredEntry, AlteredEntity = (
    types_of("AlterClientQuotas")[path] for path in ("", "entries", "entries.entity")
)
Names = Mapping[str, str | None]  # by the type of an entity; None: the default of all


class Refused(Exception):
    """A quota has no counterpart here. The text is for people."""


def describe_client_quotas(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes the quotas that match a filter."""
    error, text = _refusal(request, context)
    if error is not Error.NONE:
        return Described(error_code=request.note(error), error_message=text, entries=None)
    entries = []
    for quota in context.access.snapshot.state.quotas:
        names, values = _names_of(quota), _values_of(quota)
        if names and values and _matches(request.message, names):
            entity = [DescribedEntity(kind, name) for kind, name in names.items()]
            entries.append(DescribedEntry(entity, [DescribedValue(*value) for value in values.items()]))
    return Described(entries=entries)


async def alter_client_quotas(request: KafkaRequest, context: KafkaContext) -> Message:
    """Sets and removes rates, of each entity by itself."""
    refused, why = _refusal(request, context)
    entries = []
    for given in request.message.entries:
        error, text = refused, why
        if error is Error.NONE:
            error, text = await _alter(request, context, given)
        entity = [AlteredEntity(one.entity_type, one.entity_name) for one in given.entity]
        entries.append(AlteredEntry(request.note(error), text, entity))
    return Altered(entries=entries)


async def _alter(request: KafkaRequest, context: KafkaContext, given: Message) -> tuple[Error, str | None]:
    state = context.access.snapshot.state
    try:
        owner, name = _owner_of({one.entity_type: one.entity_name for one in given.entity})
        former = next((quota for quota in state.quotas if quota.id == id_of(owner, name)), None)
        quota = former or Quota(id=id_of(owner, name), owner=owner, name=name, per=Scope.NODE)
        quota = structs.replace(
            quota, **_changes(given), author=request.caller.principal, created_ms=context.clock.now_ms()
        )
        is_empty = all(quota.limit(dimension) is None for dimension in Dimension)
        if not is_empty:
            check_quota(quota)
    except (Refused, InvalidQuota) as refused:
        return Error.INVALID_REQUEST, str(refused)
    if request.message.validate_only or (is_empty and former is None):
        return Error.NONE, None
    try:
        what = RemoveQuota(quota.id) if is_empty else SetQuota(quota)
        before, after = None if former is None else structs.asdict(former), None if is_empty else structs.asdict(quota)
        await change_access(request, context, what, _principals_of(quota), before=before, after=after)
    except (Problem, EngineError) as failed:
        return error_of_access(failed), failed.detail
    return Error.NONE, None


def _refusal(request: KafkaRequest, context: KafkaContext) -> tuple[Error, str | None]:
    if request.space is not None:
        return Error.CLUSTER_AUTHORIZATION_FAILED, "quotas are those of the cluster"
    error, text = refusal_of_access(request, context)
    if error is Error.SECURITY_DISABLED:  # a node without tokens has quotas as well
        return Error.NONE, None
    return error, text


def _changes(given: Message) -> dict[str, float | None]:
    """Returns the fields of a quota that the request sets; None: without a limit. Raises Refused."""
    changes: dict[str, float | None] = {}
    for one in given.ops:
        field = _FIELDS.get(one.key)
        if field is None:
            raise Refused(f"{one.key[:100]!r} is not limited here: {', '.join(_FIELDS)} are")
        changes[field] = None if one.remove else one.value * (LOOP_MS_OF_PERCENT if field == "loop_ms" else 1)
    return changes


def _owner_of(names: Names) -> tuple[Owner, str]:
    """Returns the owner of an entity, and its name. Raises Refused."""
    if names.keys() == {USER}:
        return Owner.PRINCIPAL, _own_name(names[USER])
    if names.keys() == {USER, CLIENT_ID}:
        return Owner.CLIENT, f"{_own_name(names[USER])}{SEPARATOR}{names[CLIENT_ID] or DEFAULT}"
    if names.keys() == {CLIENT_ID}:
        raise Refused("a client chooses its id: name its user as well")
    raise Refused(f"quotas are of a user, or of a user with a client id, and not of {', '.join(sorted(names))[:100]}")


def _own_name(user: str | None) -> str:
    return DEFAULT if user is None else own_principal(user if ":" in user else _USER_PREFIX + user)


def _kafka_name(principal: str) -> str | None:
    return None if principal == DEFAULT else kafka_principal(principal).removeprefix(_USER_PREFIX)


def _names_of(quota: Quota) -> dict[str, str | None]:
    """Returns the entity of a quota; empty for one that Kafka has no word for."""
    if quota.owner is Owner.PRINCIPAL:
        return {USER: _kafka_name(quota.name)}
    if quota.owner is Owner.CLIENT:
        principal, _, client_id = quota.name.rpartition(SEPARATOR)
        return {USER: _kafka_name(principal), CLIENT_ID: None if client_id == DEFAULT else client_id}
    return {}


def _values_of(quota: Quota) -> dict[str, float]:
    values = {key: getattr(quota, field) for key, field in _FIELDS.items()}
    return {
        key: value / LOOP_MS_OF_PERCENT if key == "request_percentage" else float(value)
        for key, value in values.items()
        if value is not None
    }


def _principals_of(quota: Quota) -> tuple[str, ...]:
    principal = quota.name.rpartition(SEPARATOR)[0] if quota.owner is Owner.CLIENT else quota.name
    return () if principal == DEFAULT else (principal,)


def _matches(given: Message, names: Names) -> bool:
    if given.strict and names.keys() != {one.entity_type for one in given.components}:
        return False
    return all(
        one.entity_type in names
        and (
            one.match_type == ANY
            or (one.match_type == IS_DEFAULT and names[one.entity_type] is None)
            or (one.match_type == EXACT and names[one.entity_type] == one.match)
        )
        for one in given.components
    )
