"""Access rules: who may do what, to which resources, from where. Values and their checks, without I/O.

A rule allows or denies. A deny comes before every allow, whatever is more specific; what no rule allows is denied. So
the order of rules means nothing, and one rule explains every decision. gateway/access/evaluator.py decides.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec import Struct

from engine.format.paths import TOPIC_CHARS_MAX
from gateway.http.rights import OPERATIONS, Operation, Resource

EVERYBODY = "*"  # every caller that is known
ANONYMOUS = "anonymous"
PRINCIPALS_MAX = 100  # of a rule: more of them are a group
SOURCES_MAX = 32
NOTE_CHARS_MAX = 200
# In place of the id of a rule, in answers and in the audit trail.
SUPERUSER_RULE = "superuser"
OF_TENANTS = "names-of-tenants"  # the names of a tenant are made in it alone
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARS_MAX}}}")
_ALIAS = "[a-z][a-z0-9-]{0,30}"  # of an issuer
_PRINCIPAL = re.compile(
    rf"\*|anonymous|node:[0-9]{{1,10}}|token:[A-Za-z0-9._-]{{1,100}}|cert:[!-~]{{1,200}}"
    rf"|(?:oidc|group):{_ALIAS}:[!-~]{{1,200}}"
)
_MAPPED_BITS = 96  # before an IPv4 address in an IPv6 address: ::ffff:10.0.0.1
# Read, write, create, alter and delete need to know the resource. A deny implies nothing.
_WITH_DESCRIBE = frozenset({Operation.READ, Operation.WRITE, Operation.CREATE, Operation.ALTER, Operation.DELETE})

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Effect(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class Pattern(StrEnum):
    """How a rule names its resources."""

    LITERAL = "literal"
    PREFIX = "prefix"
    ALL = "all"


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule. `name` is that of the resource, or its beginning; empty for the pattern `all`.

    `sources`: networks of callers; empty: all. `author` and `created_ms` say who made it, and when. `tenant`: the rule
    is for the callers of this tenant, and its names are visible ones; None: for all others.
    """

    id: str
    effect: Effect
    principals: tuple[str, ...]
    operations: tuple[Operation, ...]
    resource: Resource
    pattern: Pattern
    name: str = ""
    sources: tuple[str, ...] = ()
    note: str = ""
    author: str = ""
    created_ms: int = 0
    tenant: str | None = None

    def granted(self) -> frozenset[Operation]:
        """Returns the operations that the rule decides, with those that it implies."""
        operations = set(self.operations)
        if Operation.CREATE in operations:
            operations.add(Operation.AUTO_CREATE)
        if self.effect is Effect.ALLOW and not _WITH_DESCRIBE.isdisjoint(operations):
            operations.add(Operation.DESCRIBE)
        return frozenset(operations)


class InvalidRule(Exception):
    """A rule cannot be used. The text is one line that names the field to change."""


def check_rule(rule: Rule) -> None:
    """Checks what the types do not. Raises InvalidRule."""
    if not _ID.fullmatch(rule.id):
        raise InvalidRule("id: use 1 to 64 of A-Z a-z 0-9 . _ -")
    if rule.id in (SUPERUSER_RULE, OF_TENANTS):
        raise InvalidRule(f"id: {rule.id} is not a rule's, but what answers and the audit trail have in place of one")
    if not 0 < len(rule.principals) <= PRINCIPALS_MAX:
        raise InvalidRule(f"principals: name 1 to {PRINCIPALS_MAX}")
    for principal in rule.principals:
        check_principal(principal)
    _check_operations(rule)
    _check_name(rule)
    if len(rule.sources) > SOURCES_MAX:
        raise InvalidRule(f"sources: name at most {SOURCES_MAX} networks")
    for source in rule.sources:
        network_of(source)
    if len(rule.note) > NOTE_CHARS_MAX:
        raise InvalidRule(f"note: use at most {NOTE_CHARS_MAX} characters")


def check_principal(text: str) -> None:
    """Checks the form of a principal. Raises InvalidRule."""
    if not _PRINCIPAL.fullmatch(text):
        form = "token:NAME, group:ISSUER:NAME, oidc:ISSUER:SUBJECT, cert:NAME, node:ID, anonymous, or * for all others"
        raise InvalidRule(f"principals: {text[:100]!r} is not a principal; write {form}")


def network_of(text: str) -> Network:
    """Returns a network in CIDR form; one of IPv4 addresses in IPv6 is that of IPv4. Raises InvalidRule."""
    try:
        network = ip_network(text)
    except ValueError:
        raise InvalidRule(f"sources: {text[:100]!r} is not a network in CIDR form, as in 10.0.0.0/8") from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None else IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


def plain_address(text: str) -> Address:
    """Returns an address; an IPv4 address in IPv6 is that of IPv4. Raises ValueError."""
    address = ip_address(text)
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def address_of(client: str | None) -> Address | None:
    """Returns the address of a client given as `host:port`; None: it has none, as on a Unix socket."""
    if not client:
        return None
    try:
        return plain_address(client.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return None


def _check_operations(rule: Rule) -> None:
    if not rule.operations:
        raise InvalidRule("operations: name at least one")
    known = OPERATIONS[rule.resource]
    for operation in rule.operations:
        if operation not in known:
            raise InvalidRule(f"operations: a {rule.resource} has no {operation}; it has {', '.join(sorted(known))}")


def _check_name(rule: Rule) -> None:
    if rule.tenant is not None and rule.resource is Resource.CLUSTER:
        raise InvalidRule("resource: the callers of a tenant have no right to the cluster; name the tenant")
    if rule.pattern is Pattern.ALL:
        if rule.name:
            raise InvalidRule("name: the pattern all takes no name")
    elif rule.resource is Resource.CLUSTER:
        raise InvalidRule("pattern: the cluster has no name; use the pattern all")
    elif not _NAME.fullmatch(rule.name):
        text = f"use 1 to {TOPIC_CHARS_MAX} of A-Z a-z 0-9 . _ -; for all names, use the pattern all"
        raise InvalidRule(f"name: {rule.name[:100]!r} is not a name of a {rule.resource}; {text}")
