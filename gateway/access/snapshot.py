"""The rules, tokens and tenants that a process decides by, at one time; and the identities that were made from them.

Replaced as a whole: a change of rules makes a new one, and what was made from the one before is dropped with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.access.evaluator import Evaluator
from gateway.access.identity import Identity
from gateway.access.names import TenantNames
from gateway.access.rules import ANONYMOUS, Address, Rule, address_of
from gateway.access.state import AccessState
from gateway.access.tokens import Token, Tokens
from gateway.access.tokens_file import FileToken
from gateway.http.problems import Problem

IDENTITIES_MAX = 10_000  # of a process; beyond it all are forgotten, and made again


class Snapshot:
    """The rules and tokens of one generation, and of one tokens file."""

    __slots__ = (
        "_by_name",
        "_evaluators",
        "_identities",
        "_rules",
        "evaluator",
        "limits",
        "spaces",
        "state",
        "superusers",
        "tenants",
        "tokens",
    )

    def __init__(self, file: Tokens[FileToken], state: AccessState, superusers: frozenset[str] = frozenset()) -> None:
        stored = [Token(one.id, one.name, one.sha256, one.expires_ms, tenant=one.tenant) for one in state.tokens]
        self.tokens: Tokens[Token] = Tokens([*stored, *file.all])  # of equal ids that of the file, which is later
        self.state = state
        self.superusers = superusers
        self._rules: dict[str | None, list[Rule]] = {None: [rule for token in file.all for rule in token.rules()]}
        for rule in state.rules:
            self._rules.setdefault(rule.tenant, []).append(rule)
        self.evaluator = Evaluator(self._rules[None])
        self.tenants = {tenant.id: tenant for tenant in state.tenants}
        self.limits = {tenant.id: tenant.limits for tenant in state.tenants}
        self.spaces = {tenant.id: TenantNames(tenant.id) for tenant in state.tenants}
        self._evaluators: dict[str | None, Evaluator] = {None: self.evaluator}
        self._identities: dict[tuple[str, Address | None], Identity] = {}
        self._by_name: dict[tuple[str, str | None], list[Token]] = {}

    def __repr__(self) -> str:
        return f"Snapshot({self.state.generation}, {self.tokens}, {self.evaluator})"

    def identity(
        self,
        key: str,
        kind: str,
        name: str,
        client: str | None,
        *,
        groups: Sequence[str] = (),
        tenant: str | None = None,
        expires_ms: int = 0,
        token_id: str = "",
        own_rules: str = "",
        is_superuser: bool = False,
    ) -> Identity:
        """Returns the identity that a checked credential gives; `key` is the credential's alone, and not its text.

        Connections share it. If a rule asks for addresses, those of one address do. Raises Problem forbidden: there is
        no such tenant.
        """
        space, evaluator = None, self.evaluator
        if tenant is not None:
            space, evaluator = self.spaces.get(tenant), self.evaluator_of(tenant)
            if space is None:
                raise Problem("forbidden", f"this credential is of the tenant {tenant[:64]!r}, which does not exist")
        address = address_of(client) if evaluator.has_sources else None
        found = self._identities.get((key, address))
        if found is None:
            found = self._keep(
                key,
                address,
                Identity(
                    kind,
                    name,
                    evaluator,
                    self.state.generation,
                    groups=groups,
                    tenant=tenant,
                    expires_ms=expires_ms,
                    token_id=token_id,
                    own_rules=own_rules,
                    is_superuser=is_superuser and tenant is None,
                    address=address,
                    space=space,
                    tenants=self.spaces,
                ),
            )
        return found

    def _keep(self, key: str, address: Address | None, identity: Identity) -> Identity:
        if len(self._identities) >= IDENTITIES_MAX:
            self._identities.clear()
        self._identities[key, address] = identity
        return identity

    def evaluator_of(self, tenant: str | None) -> Evaluator:
        """Returns the rules inside a tenant; None: those outside of all."""
        found = self._evaluators.get(tenant)
        if found is None:
            found = self._evaluators[tenant] = Evaluator(self._rules.get(tenant, ()))
        return found

    def inside(self, identity: Identity, space: TenantNames) -> Identity:
        """Returns an operator inside a tenant."""
        key = f"in:{space.tenant}:{identity.principal}:{identity.token_id}"
        found = self._identities.get((key, identity.address))
        if found is None or found.groups != identity.groups or found.expires_ms != identity.expires_ms:
            found = self._keep(key, identity.address, identity.inside(space))
        return found

    def identity_of(self, token: Token, client: str | None, ends_ms: int = 0) -> Identity:
        """Returns the identity of a token; with `ends_ms`, one that ends then. Raises Problem as `identity` does."""
        return self.identity(
            f"token:{token.id}:{ends_ms}",
            "token",
            token.name,
            client,
            tenant=token.tenant,
            expires_ms=ends_ms or token.expires_ms,
            token_id=token.id,
            own_rules=token.own_rules,
            # A token of the file alone: a name that was made in the store gives no power.
            is_superuser=bool(token.own_rules) and f"token:{token.name}" in self.superusers,
        )

    def live_tokens(self, name: str, tenant: str | None, now_ms: int) -> list[Token]:
        """Returns the tokens with a name, in a tenant or in none, that have not ended."""
        if not self._by_name:
            for token in self.tokens.all:
                self._by_name.setdefault((token.name, token.tenant), []).append(token)
        named = self._by_name.get((name, tenant), ())
        return [token for token in named if not token.expires_ms or now_ms < token.expires_ms]

    def file_principals(self, principal: str) -> list[str]:
        """Returns the principals of the rules that come with the tokens of the file that have this name."""
        return [token.own_rules for token in self.tokens.all if token.own_rules and principal == f"token:{token.name}"]

    def is_superuser(self, principal: str) -> bool:
        return principal in self.superusers and bool(self.file_principals(principal))

    def anonymous(self, client: str | None) -> Identity | None:
        """Returns the identity of a caller without a credential; None: no rule names it."""
        if ANONYMOUS not in self.evaluator.principals:
            return None
        return self.identity(ANONYMOUS, ANONYMOUS, ANONYMOUS, client)
