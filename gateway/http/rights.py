"""Values of access: operations on resources, what a route needs, and the caller of a request.

Not here: the rules that allow and deny (gateway/access/rules.py), and the check of a request
(gateway/access/access.py).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple, Protocol


class Resource(StrEnum):
    """A kind of thing that rights are about. The value is also the name of its place in a path."""

    TOPIC = "topic"
    GROUP = "group"
    SUBSCRIPTION = "subscription"
    TENANT = "tenant"
    CLUSTER = "cluster"


class Operation(StrEnum):
    """An action of a caller on a resource."""

    DESCRIBE = "describe"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    OPERATE = "operate"
    METRICS = "metrics"
    ACCESS = "access"
    AUTO_CREATE = "auto_create"  # by a produce, with the setting `auto_create_topics`: `create` has it too


_OF_NAMED = frozenset({Operation.DESCRIBE, Operation.READ, Operation.ALTER, Operation.DELETE})
OPERATIONS = {
    Resource.TOPIC: _OF_NAMED | {Operation.WRITE, Operation.CREATE},
    Resource.GROUP: _OF_NAMED,
    Resource.SUBSCRIPTION: _OF_NAMED - {Operation.READ} | {Operation.CREATE},
    Resource.TENANT: frozenset({Operation.DESCRIBE, Operation.ACCESS}),
    Resource.CLUSTER: frozenset({Operation.DESCRIBE, Operation.OPERATE, Operation.METRICS, Operation.ACCESS}),
}


class Where(StrEnum):
    """The place of the name of the resource in a request."""

    PATH = "path"
    BODY = "body"  # the handler checks each name
    LIST = "list"  # of an answer, which has only names that the caller has the right to
    ANY = "any"  # the right to one name is enough
    NONE = "none"  # the resource has no name: the cluster


class Need(NamedTuple):
    """The right that a route needs its caller to have."""

    operation: Operation
    resource: Resource
    where: Where


OPEN = Need(Operation.DESCRIBE, Resource.CLUSTER, Where.NONE)  # no token at all; compared by identity
AUTHENTICATED = Need(Operation.DESCRIBE, Resource.CLUSTER, Where.LIST)  # a known caller: for paths that no route has
READ_TOPIC = Need(Operation.READ, Resource.TOPIC, Where.PATH)


class Decision(NamedTuple):
    """Whether a caller may, and the id of the rule that decides. None: no rule allows it."""

    is_allowed: bool
    rule: str | None


class Caller(Protocol):
    """The sender of a request. `principal` is its name with its kind, `token:shop`.

    `owner_name` is its name as an owner of quotas: `acme.token:shop` in the tenant acme.
    """

    @property
    def name(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def owner_name(self) -> str: ...
    @property
    def is_superuser(self) -> bool: ...
    @property
    def space(self) -> Names | None: ...
    def allows(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> bool: ...
    def decide(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> Decision: ...
    def prefixes(self, operation: Operation, resource: Resource = Resource.TOPIC) -> tuple[str, ...] | None: ...
    def names(self, operation: Operation, resource: Resource = Resource.TOPIC) -> tuple[str, ...]: ...
    @property
    def expires_ms(self) -> int: ...


class Names(Protocol):
    """The names of the tenant that a request is in: visible ones, and the stored ones that belong to them."""

    @property
    def tenant(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    def stored(self, name: str) -> str: ...
    def stored_in(self, value: Any) -> Any: ...
    def visible_in(self, value: Any) -> Any: ...
    def visible(self, name: str) -> str: ...
    def expression(self, text: str) -> str: ...
    def shown(self, value: Any) -> Any: ...
    def shown_records(self, document: bytes | bytearray) -> bytes | bytearray: ...
    def leave(self, request: Any, response: Any) -> Any: ...


class _Anonymous:
    """The caller of a node without tokens."""

    name = principal = owner_name = "anybody"
    is_superuser = False
    space = None
    expires_ms = 0
    _decision = Decision(True, None)

    def allows(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> bool:
        return True

    def decide(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> Decision:
        return self._decision

    def prefixes(self, operation: Operation, resource: Resource = Resource.TOPIC) -> None:
        return None

    def names(self, operation: Operation, resource: Resource = Resource.TOPIC) -> tuple[str, ...]:
        return ()


ANONYMOUS: Caller = _Anonymous()
