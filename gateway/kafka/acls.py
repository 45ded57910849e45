"""DescribeAcls, CreateAcls and DeleteAcls: the access rules of the cluster, as far as Kafka has a word for them.

A rule of ours may name several principals, operations and networks: it is shown as an ACL for each. An ACL of Kafka is
a rule of its own. Both deny before they allow. Invariant: each word has one counterpart, so what is created is what is
shown; what has none is left out, and refused with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from ipaddress import ip_network
from itertools import product
from typing import NamedTuple

from engine.errors import EngineError
from gateway.access.rules import Effect, InvalidRule, Pattern, Rule, check_rule
from gateway.access.state import AccessState, AddRule, RemoveRule
from gateway.http.problems import Problem
from gateway.http.rights import OPERATIONS, Operation, Resource
from gateway.kafka.access_changes import change_access, error_of_access, refusal_of_access, tenant_of
from gateway.kafka.codec.messages import Message, types_of
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.principals import kafka_principal, own_principal
from gateway.kafka.requests import KafkaRequest

ANY, MATCH, ALL = 1, 2, 2  # of types, of patterns, of operations
LITERAL, PREFIXED = 3, 4
ALL_NAMES, ANY_HOST, CLUSTER_NAME = "*", "*", "kafka-cluster"
_RESOURCES = {Resource.TOPIC: 2, Resource.GROUP: 3, Resource.CLUSTER: 4}
_OPERATIONS = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
}
_OF_CLUSTER = {Operation.OPERATE: 7, Operation.DESCRIBE: 8}  # there ALTER is what administrators do
_EFFECTS = {Effect.DENY: 2, Effect.ALLOW: 3}

Described, DescribedResource, DescribedAcl = (
    types_of("DescribeAcls")[path] for path in ("", "resources", "resources.acls")
)
Created, CreatedRow = (types_of("CreateAcls")[path] for path in ("", "results"))
Deleted, DeletedFilter, DeletedAcl = (
    types_of("DeleteAcls")[path] for path in ("", "filter_results", "filter_results.matching_acls")
)


class Acl(NamedTuple):
    """One ACL in Kafka's words."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class Refused(Exception):
    """An ACL has no counterpart here. The text is for people."""


def describe_acls(request: KafkaRequest, context: KafkaContext) -> Message:
    """Describes the rules that match a filter."""
    error, text = refusal_of_access(request, context)
    if error is not Error.NONE:
        return Described(error_code=request.note(error), error_message=text)
    by_resource: dict[tuple[int, str, int], list[Message]] = {}
    for rule in _rules(request, context.access.snapshot.state):
        for acl in acls_of(rule):
            if _matches(request.message, acl):
                acls = by_resource.setdefault(acl[:3], [])
                acls.append(DescribedAcl(acl.principal, acl.host, acl.operation, acl.permission))
    return Described(resources=[DescribedResource(*where, acls) for where, acls in by_resource.items()])


async def create_acls(request: KafkaRequest, context: KafkaContext) -> Message:
    """Makes a rule of each ACL; one that is there already changes nothing."""
    refused, why = refusal_of_access(request, context)
    rows = []
    for given in request.message.creations:
        error, text = refused, why
        if error is Error.NONE:
            error, text = await _create(request, context, given)
        rows.append(CreatedRow(request.note(error), text))
    return Created(results=rows)


async def _create(request: KafkaRequest, context: KafkaContext, given: Message) -> tuple[Error, str | None]:
    acl = Acl(
        given.resource_type,
        given.resource_name,
        given.resource_pattern_type,
        given.principal,
        given.host,
        given.operation,
        given.permission_type,
    )
    try:
        rule = rule_of(acl, tenant_of(request), request.caller.principal, context.clock.now_ms())
        check_rule(rule)
    except (Refused, InvalidRule) as why:
        return Error.INVALID_REQUEST, str(why)
    if any(rule.id == other.id for other in _rules(request, context.access.snapshot.state)):
        return Error.NONE, None
    try:
        await change_access(request, context, AddRule(rule), rule.principals, after={"rule": rule.id, "acl": acl})
    except (Problem, EngineError) as failed:
        if failed.code != "access_exists":  # another process has made it meanwhile
            return error_of_access(failed), failed.detail
    return Error.NONE, None


async def delete_acls(request: KafkaRequest, context: KafkaContext) -> Message:
    """Removes the rules that match filters. A rule that matches in part stays: an ACL of it is refused."""
    refused, why = refusal_of_access(request, context)
    filters = []
    for given in request.message.filters:
        if refused is not Error.NONE:
            filters.append(DeletedFilter(request.note(refused), why, []))
            continue
        rows: list[Message] = []
        for rule in _rules(request, context.access.snapshot.state):
            acls = list(acls_of(rule))
            matching = [acl for acl in acls if _matches(given, acl)]
            if matching:
                error, text = await _remove(request, context, rule, is_whole=_is_whole(rule, acls, matching))
                rows += [DeletedAcl(request.note(error), text, *acl) for acl in matching]
        filters.append(DeletedFilter(matching_acls=rows))
    return Deleted(filter_results=filters)


async def _remove(
    request: KafkaRequest, context: KafkaContext, rule: Rule, *, is_whole: bool
) -> tuple[Error, str | None]:
    if not is_whole:
        text = f"the rule {rule.id} says more than this: remove it with penstock acl remove, and make it again"
        return Error.INVALID_REQUEST, text
    try:
        await change_access(request, context, RemoveRule(rule.id, tenant_of(request)), before={"rule": rule.id})
    except (Problem, EngineError) as failed:
        if failed.code != "unknown_access":
            return error_of_access(failed), failed.detail
    return Error.NONE, None


def _is_whole(rule: Rule, acls: list[Acl], matching: list[Acl]) -> bool:
    """Returns whether a rule says what matches, and nothing else."""
    return len(matching) == len(acls) and _words(rule.resource).keys() >= set(rule.operations)


def acls_of(rule: Rule) -> Iterator[Acl]:
    """Yields the ACLs of a rule; none of what Kafka has no word for."""
    kind = _RESOURCES.get(rule.resource)
    if kind is None:
        return
    name = (
        CLUSTER_NAME if rule.resource is Resource.CLUSTER else ALL_NAMES if rule.pattern is Pattern.ALL else rule.name
    )
    pattern = PREFIXED if rule.pattern is Pattern.PREFIX else LITERAL
    words = _words(rule.resource)
    operations = [words[operation] for operation in rule.operations if operation in words]
    if words.keys() == set(rule.operations):
        operations = [ALL]
    hosts = [_host_of(source) for source in rule.sources] or [ANY_HOST]
    for principal, host, operation in product(rule.principals, hosts, operations):
        yield Acl(kind, name, pattern, kafka_principal(principal), host, operation, _EFFECTS[rule.effect])


def rule_of(acl: Acl, tenant: str | None, author: str, now_ms: int) -> Rule:
    """Returns the rule of an ACL. Its id follows from what it says. Raises Refused."""
    resource = next((one for one, number in _RESOURCES.items() if number == acl.resource_type), None)
    if resource is None:
        raise Refused(f"there are no resources of type {acl.resource_type} here, only topics, groups and the cluster")
    operations = [one for one, number in _words(resource).items() if acl.operation in (ALL, number)]
    if not operations:
        text = "idempotent producers need write to a topic alone, settings are described and altered by these rights"
        raise Refused(f"the operation {acl.operation} on a {resource} has no right of its own here: {text}")
    if acl.pattern not in (LITERAL, PREFIXED):
        raise Refused(f"a pattern of type {acl.pattern} is of filters alone")
    effect = next((one for one, number in _EFFECTS.items() if number == acl.permission), None)
    if effect is None:
        raise Refused(f"there is no permission {acl.permission}")
    if resource is Resource.CLUSTER and acl.name != CLUSTER_NAME:
        raise Refused(f"the cluster is called {CLUSTER_NAME}")
    is_of_all = resource is Resource.CLUSTER or (acl.pattern == LITERAL and acl.name == ALL_NAMES)
    digest = hashlib.sha256(repr((*acl, tenant)).encode()).hexdigest()[:20]
    return Rule(
        id=f"kafka-{digest}",
        effect=effect,
        principals=(own_principal(acl.principal),),
        operations=tuple(operations),
        resource=resource,
        pattern=Pattern.ALL if is_of_all else Pattern.PREFIX if acl.pattern == PREFIXED else Pattern.LITERAL,
        name="" if is_of_all else acl.name,
        sources=() if acl.host == ANY_HOST else (_source_of(acl.host),),
        author=author,
        created_ms=now_ms,
        tenant=tenant,
    )


def _matches(given: Message, acl: Acl) -> bool:
    """Returns whether an ACL matches a filter, by Kafka's rules."""
    return (
        given.resource_type_filter in (ANY, acl.resource_type)
        and _matches_name(given.resource_name_filter, given.pattern_type_filter, acl)
        and given.principal_filter in (None, acl.principal)
        and given.host_filter in (None, acl.host)
        and given.operation in (ANY, acl.operation)
        and given.permission_type in (ANY, acl.permission)
    )


def _matches_name(name: str | None, pattern: int, acl: Acl) -> bool:
    if pattern not in (ANY, MATCH, acl.pattern):
        return False
    if name is None or name == acl.name:
        return True
    if pattern != MATCH:
        return False
    return acl.name == ALL_NAMES if acl.pattern == LITERAL else name.startswith(acl.name)


def _words(resource: Resource) -> dict[Operation, int]:
    """Returns the operations on a resource that Kafka has a word for."""
    if resource is Resource.CLUSTER:
        return _OF_CLUSTER
    return {operation: number for operation, number in _OPERATIONS.items() if operation in OPERATIONS[resource]}


def _rules(request: KafkaRequest, state: AccessState) -> list[Rule]:
    tenant = tenant_of(request)
    return [rule for rule in state.rules if rule.tenant == tenant]


def _host_of(source: str) -> str:
    network = ip_network(source)
    return str(network.network_address) if network.num_addresses == 1 else source


def _source_of(host: str) -> str:
    try:
        return str(ip_network(host))
    except ValueError:
        raise Refused(f"the host {host[:100]!r} is not an address: names are not looked up") from None
