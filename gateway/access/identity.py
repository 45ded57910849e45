"""One caller whose credential has been checked, and the decisions about it that were made before.

An identity belongs to one set of rules: it is dropped when the rules change. Its address is there only if a rule asks
for addresses, since identities without one are shared by connections. Invariant: a decision that is kept is one that
the rules would give again.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.access.evaluator import Answers, Evaluator
from gateway.access.rules import ANONYMOUS, EVERYBODY, Address
from gateway.http.rights import Decision, Operation, Resource

KEPT_MAX = 4096  # decisions of one identity, about 150 bytes each; beyond it all are forgotten
SUPERUSER = Decision(True, "superuser")


class Identity:
    """A caller. `kind` and `name` make its principal; `expires_ms`: when its credential ends, 0 if it does not.

    `generation` is that of the rules. `own_rules` is a principal that no rule of the store can name, for rules that
    come with the credential. A superuser may do everything. `decisions` are those that were made before.
    """

    __slots__ = ("_address", "_evaluator", "_kept", "_rules", "decisions", "expires_ms", "generation", "groups",
                 "is_superuser", "kind", "name", "own_rules", "principal", "principals", "tenant",
                 "token_id")  # fmt: skip

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
    ) -> None:
        self.kind = kind
        self.token_id = token_id
        self.name = name
        self.principal = f"{kind}:{name}" if name != kind else kind
        self.groups = tuple(groups)
        self.tenant = tenant
        self.expires_ms = expires_ms
        self.generation = generation
        self.is_superuser = is_superuser
        self.own_rules = own_rules
        everybody = () if kind == ANONYMOUS else (EVERYBODY,)
        self.principals = (self.principal, *self.groups, *everybody, *((own_rules,) if own_rules else ()))
        self._evaluator = evaluator
        self._address = address
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
        if self.is_superuser:
            return None
        found = self._answers(operation, resource).prefixes()
        return None if "" in found else found

    def _decide(self, operation: Operation, name: str, resource: Resource) -> Decision:
        if self.is_superuser:
            return SUPERUSER
        decision = self._answers(operation, resource).decide(name)
        if self._kept >= KEPT_MAX:
            self._kept = 0
            for by_operation in self.decisions.values():
                for decisions in by_operation.values():
                    decisions.clear()
        self._kept += 1
        self.decisions[resource][operation][name] = decision
        return decision

    def _answers(self, operation: Operation, resource: Resource) -> Answers:
        found = self._rules.get((resource, operation))
        if found is None:
            found = self._evaluator.answers(self.principals, operation, resource, self._address)
            self._rules[resource, operation] = found
        return found
