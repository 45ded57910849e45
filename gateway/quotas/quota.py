"""A quota as it is stored: an owner, and how much of each dimension the owner may use.

An owner is a tenant, a principal, a principal with one client id, or the topics that begin with a prefix. The name `*`
is the default: each owner of the kind that has no quota of its own has these limits for itself. A client chooses its
client id, so that such a quota divides the quota of its principal and does not replace it: the tightest quota decides.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from engine.format.paths import TOPIC_CHARS_MAX

RATE_MAX = 1e12  # units a second; beyond it a unit is lost in the number of a bucket
COUNT_MAX = 10_000_000
BURST_S_MAX = 3600.0
DEFAULT = "*"
SEPARATOR = "+"  # of a principal and a client id; a client id has none
TENANT_END = "."  # of the tenant before its principal: ids of tenants and kinds of principals have no dot
NOTE_CHARS_MAX = 200
_NAME_CHARS_MAX = 300
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARS_MAX}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f/]")


class Owner(StrEnum):
    """A kind of owner."""

    TENANT = "tenant"
    PRINCIPAL = "principal"
    CLIENT = "client"
    TOPIC = "topic"


class Scope(StrEnum):
    """Whether the limits are those of the whole cluster, or of each node."""

    CLUSTER = "cluster"
    NODE = "node"


class Dimension(StrEnum):
    """A kind of use that a quota limits. The value is its name in answers to clients."""

    REQUESTS = "requests"
    BYTES_IN = "bytes-in"
    BYTES_OUT = "bytes-out"
    LOOP_MS = "loop-ms"
    CONNECTIONS = "connections"
    LONG_POLLS = "long-polls"

    @property
    def field(self) -> str:
        """The name of its field in a quota."""
        return self.value.replace("-", "_")


RATES = (Dimension.REQUESTS, Dimension.BYTES_IN, Dimension.BYTES_OUT, Dimension.LOOP_MS)
COUNTS = (Dimension.CONNECTIONS, Dimension.LONG_POLLS)


class InvalidQuota(Exception):
    """A quota cannot be used. The text names the field and what to change."""


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much of each dimension an owner may use, as an operator states it. None: there is no limit.

    The first four are rates by the second: requests, bytes of bodies as sent, and milliseconds of the loops that serve
    its requests. The last two are numbers of what is open at a time; an event stream counts as a long poll.
    """

    requests: int | float | None = None
    bytes_in: int | float | None = None
    bytes_out: int | float | None = None
    loop_ms: int | float | None = None
    connections: int | None = None
    long_polls: int | None = None
    burst_s: int | float = 1
    per: Scope = Scope.CLUSTER
    note: Annotated[str, Meta(max_length=NOTE_CHARS_MAX)] = ""


class Quota(Limits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of an owner, with who has set them and when."""

    id: str
    owner: Owner
    name: str
    author: str = ""
    created_ms: int = 0

    def limit(self, dimension: Dimension) -> float | None:
        found: float | None = getattr(self, dimension.field)
        return found


def id_of(owner: Owner, name: str) -> str:
    """Returns the id of the quota of an owner: each has one at most."""
    return f"{owner}:{name}"


def principal_of(quota: Quota) -> str:
    """Returns the principal that a quota names, or an empty text."""
    if quota.owner is Owner.CLIENT:
        return quota.name.rpartition(SEPARATOR)[0]
    return quota.name if quota.owner is Owner.PRINCIPAL else ""


def tenant_of(quota: Quota) -> str:
    """Returns the tenant that a quota names, or of whose principal it is, or an empty text."""
    if quota.owner is Owner.TENANT:
        return "" if quota.name == DEFAULT else quota.name
    tenant, dot, _ = principal_of(quota).partition(":")[0].partition(TENANT_END)
    return tenant if dot else ""


def check_quota(quota: Quota) -> None:
    """Raises InvalidQuota for one that cannot be used."""
    _check_name(quota.owner, quota.name)
    if all(quota.limit(dimension) is None for dimension in Dimension):
        fields = ", ".join(dimension.field for dimension in Dimension)
        raise InvalidQuota(f"the quota limits nothing: give one of {fields}")
    for dimension in RATES:
        _check_number(dimension.field, quota.limit(dimension), RATE_MAX)
    for dimension in COUNTS:
        _check_number(dimension.field, quota.limit(dimension), COUNT_MAX)
    _check_number("burst_s", quota.burst_s, BURST_S_MAX)


def _check_number(field: str, value: float | None, most: float) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value <= 0:
        how = "remove the quota to have no limit, and remove the rights of an owner that may do nothing"
        raise InvalidQuota(f"{field} is {value:g}, and must be a number above 0: {how}")
    if value > most:
        raise InvalidQuota(f"{field} is {value:g}, and may be {most:g} at most: leave it out to have no limit")


def _check_name(owner: Owner, name: str) -> None:
    if not name or len(name) > _NAME_CHARS_MAX or _CONTROL.search(name):
        raise InvalidQuota(f"name takes 1 to {_NAME_CHARS_MAX} characters without control characters and slashes")
    if owner is Owner.CLIENT:
        principal, separator, client = name.rpartition(SEPARATOR)
        if not (principal and separator and client):
            raise InvalidQuota(f"name is {name!r}: of a client it is PRINCIPAL+CLIENT_ID, PRINCIPAL+* or *+*")
        if principal == DEFAULT and client != DEFAULT:
            raise InvalidQuota(f"name is {name!r}: any client could choose the id {client!r}, so name its principal")
    elif owner is Owner.PRINCIPAL and name != DEFAULT and ":" not in name and name not in ("anonymous", "anybody"):
        raise InvalidQuota(f"name is {name!r}: a principal has its kind, as in token:{name}")
    elif owner is Owner.TOPIC and name != DEFAULT and not _TOPIC.fullmatch(name):
        text = f"it is 1 to {TOPIC_CHARS_MAX} of A-Z a-z 0-9 . _ -, or *"
        raise InvalidQuota(f"name is {name!r}: no topic begins with it; {text}")
