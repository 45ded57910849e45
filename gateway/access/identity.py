"""One caller whose credential has been checked, and the decisions about it that were made before.

An identity belongs to one set of rules: it is dropped when the rules change. Its address is there only if a rule asks
for addresses, since identities without one are shared by connections. Invariant: a decision that is kept is one that
the rules would give again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.access.evaluator import DENIED, Answers, Evaluator
from gateway.access.names import TenantNames
from gateway.access.rules import ANONYMOUS, EVERYBODY, OF_TENANTS, SUPERUSER_RULE, Address
from gateway.http.rights import Decision, Operation, Resource
from gateway.quotas.quota import TENANT_END

KEPT_MAX = 4096  # decisions of one identity, about 150 bytes each; beyond it all are forgotten
SUPERUSER = Decision(True, SUPERUSER_RULE)
_NAMED = (Resource.TOPIC, Resource.GROUP, Resource.SUBSCRIPTION)
# The operations that make a resource. A group comes of being read or configured.
_MAKES = {
    Resource.TOPIC: (Operation.CREATE, Operation.AUTO_CREATE),
    Resource.GROUP: (Operation.READ, Operation.ALTER),
    Resource.SUBSCRIPTION: (Operation.CREATE,),
}


def is_of_tenants(operation: Operation, name: str, resource: Resource, tenants: Collection[str]) -> bool:
    """Returns whether only callers of a tenant may do this: it would make something with the tenant's prefix."""
    owner, dot, _ = name.partition(".")
    return bool(dot) and owner in tenants and operation in _MAKES.get(resource, ())


class Identity:
    """A caller. `kind` and `name` make its principal; `expires_ms`: when its credential ends, 0 if it does not.

    `generation` is that of the rules. `own_rules` is a principal that no rule of the store can name, for rules that
    come with the credential. A superuser may do everything. `decisions` are those that were made before.

    `space` are the names of the tenant that it is in: there are no others. `tenant`: its credential is of this tenant,
    whose rules say visible names; else it is an operator, whose rules say stored ones. `tenants` are all of them.
    """

    __slots__ = (
        "_evaluator",
        "_kept",
        "_rules",
        "address",
        "decisions",
        "expires_ms",
        "generation",
        "groups",
        "is_superuser",
        "kind",
        "name",
        "own_rules",
        "owner_name",
        "principal",
        "principals",
        "space",
        "tenant",
        "tenants",
        "token_id",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        name: str,
        evaluator: Evaluator,
        generation: int,
        *,
        groups: Sequence[str] = (),
        tenant: str | None = None,
        expires_ms: int = 0,
        token_id: str = "",
        own_rules: str = "",
        is_superuser: bool = False,
        address: Address | None = None,
        space: TenantNames | None = None,
        tenants: Collection[str] = (),
    ) -> None:
        self.kind = kind
        self.token_id = token_id
        self.name = name
        self.principal = f"{kind}:{name}" if name != kind else kind
        self.owner_name = self.principal if space is None else f"{space.tenant}{TENANT_END}{self.principal}"
        self.groups = tuple(groups)
        self.tenant = tenant
        self.space = space
        self.tenants = tenants
        self.expires_ms = expires_ms
        self.generation = generation
        self.is_superuser = is_superuser
        self.own_rules = own_rules
        everybody = () if kind == ANONYMOUS else (EVERYBODY,)
        self.principals = (self.principal, *self.groups, *everybody, *((own_rules,) if own_rules else ()))
        self._evaluator = evaluator
        self.address = address
        self.decisions: dict[Resource, dict[Operation, dict[str, Decision]]] = {
            resource: {operation: {} for operation in Operation} for resource in Resource
        }
        self._kept = 0
        self._rules: dict[tuple[Resource, Operation], Answers] = {}

    def __repr__(self) -> str:
        return f"Identity({self.principal}, generation={self.generation})"

    def allows(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> bool:
        return self.decide(operation, name, resource).is_allowed

    def decide(self, operation: Operation, name: str, resource: Resource = Resource.TOPIC) -> Decision:
        """Decides whether the caller may do this to the resource with this name; the cluster's is empty."""
        found = self.decisions[resource][operation].get(name)
        return self._decide(operation, name, resource) if found is None else found

    def decide_any(self, operation: Operation, resource: Resource) -> Decision:
        """Decides whether the caller may do this to some resource."""
        if self.is_superuser:
            return SUPERUSER
        return self._answers(operation, resource).decide_any()

    def prefixes(self, operation: Operation, resource: Resource = Resource.TOPIC) -> tuple[str, ...] | None:
        """Returns prefixes of names that the caller has the right to; None: it has it to all."""
        found = ("",) if self.is_superuser else self._answers(operation, resource).prefixes()
        if self.space is None:
            return None if "" in found else found
        of_tenant = self.space.prefix
        if self.tenant is not None:
            return tuple(of_tenant + prefix for prefix in found)
        if any(of_tenant.startswith(prefix) for prefix in found):
            return (of_tenant,)
        return tuple(prefix for prefix in found if prefix.startswith(of_tenant))

    def names(self, operation: Operation, resource: Resource = Resource.TOPIC) -> tuple[str, ...]:
        """Returns single names that the caller has the right to, besides those of `prefixes`, as they are stored."""
        if self.is_superuser:
            return ()
        names = self._answers(operation, resource).literals()
        if self.space is not None and self.tenant is not None:
            names = tuple(self.space.prefix + name for name in names)
        return tuple(name for name in names if self.allows(operation, name, resource))

    def inside(self, space: TenantNames) -> Identity:
        """Returns the operator inside a tenant: with its own rights to the names of that tenant, and to no others."""
        return Identity(
            self.kind,
            self.name,
            self._evaluator,
            self.generation,
            groups=self.groups,
            expires_ms=self.expires_ms,
            token_id=self.token_id,
            own_rules=self.own_rules,
            is_superuser=self.is_superuser,
            address=self.address,
            space=space,
            tenants=self.tenants,
        )

    def _decide(self, operation: Operation, name: str, resource: Resource) -> Decision:
        if self.space is not None and resource in _NAMED and not self.space.owns(name):
            return DENIED  # not kept: there are many
        decision = self._decide_fenced(operation, name, resource)
        if self._kept >= KEPT_MAX:
            self._kept = 0
            for by_operation in self.decisions.values():
                for decisions in by_operation.values():
                    decisions.clear()
        self._kept += 1
        self.decisions[resource][operation][name] = decision
        return decision

    def _decide_fenced(self, operation: Operation, name: str, resource: Resource) -> Decision:
        """Decides within the tenant of the caller; without one, outside of what only tenants make."""
        space = self.space
        if space is None:
            if is_of_tenants(operation, name, resource, self.tenants):
                return Decision(False, OF_TENANTS)
        elif resource in _NAMED:
            name = name if self.tenant is None else space.visible(name)
        elif resource is Resource.TENANT:
            if name != space.tenant:
                return DENIED
        elif self.tenant is not None:
            return DENIED  # no rule of a tenant gives a right to the cluster
        return self._decide_by_rules(operation, name, resource)

    def _decide_by_rules(self, operation: Operation, name: str, resource: Resource) -> Decision:
        if self.is_superuser:
            return SUPERUSER
        decision = self._answers(operation, resource).decide(name)
        if resource is Resource.TENANT and decision == DENIED and self.tenant is None:  # a caller that makes tenants
            return self._answers(Operation.ACCESS, Resource.CLUSTER).decide("")
        return decision

    def _answers(self, operation: Operation, resource: Resource) -> Answers:
        found = self._rules.get((resource, operation))
        if found is None:
            found = self._evaluator.answers(self.principals, operation, resource, self.address)
            self._rules[resource, operation] = found
        return found
