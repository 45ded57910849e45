"""Asks the rules of this process whether an owner still has the rights that it needs.

An owner without a credential of its own in the snapshot (of a certificate, of an issuer) has the rights of its
principal and groups. A token must exist besides and must not have expired, and an issuer must still be known.
Invariant: while this process has not read the rules of the store, it says neither that an owner has lost a right nor
that a new work may begin.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.runtime.clock import Clock
from gateway.access.access import Access, forbidden
from gateway.access.identity import Identity
from gateway.access.owner import Needed, Owner
from gateway.access.rules import address_of
from gateway.http.request import Request


class Owners:
    """The owners of a process."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock

    def __repr__(self) -> str:
        return f"Owners({self._access})"

    @property
    def can_decide(self) -> bool:
        """Whether this process knows the rules."""
        return self._access.tokens is None or self._access.has_state

    def of(self, request: Request) -> Owner | None:
        """Returns the owner of what a request makes; None: the node asks for no credentials."""
        caller = request.caller
        author = self._access.author_of(caller, self._access.client_of(request))
        if author is None or not isinstance(caller, Identity):
            return None
        return Owner(
            author.principal,
            caller.groups,
            caller.tenant,
            is_of_file=bool(author.own_rules),
            address=str(address_of(author.client) or ""),
        )

    def lost_right(self, owner: Owner | None, needed: Iterable[Needed]) -> str:
        """Returns which right an owner lacks and why, as a sentence; empty: none.

        Without an owner, or on a node without authentication, nothing is lacking.
        """
        if owner is None or self._access.tokens is None or not self._access.has_state:
            return ""
        identity = self._identity(owner)
        if identity is None:
            return f"its owner {owner.principal} is unknown now: it was revoked, or has expired"
        for operation, resource, name in needed:
            decision = identity.decide(operation, name, resource)
            if not decision.is_allowed:
                return f"its owner, {forbidden(identity, operation, name, resource, decision).detail}"
        return ""

    def _identity(self, owner: Owner) -> Identity | None:
        """Returns the owner by the present rules; None: there is no such caller any more."""
        snapshot = self._access.snapshot
        client = f"[{owner.address}]:0" if owner.address else None
        kind, _, name = owner.principal.partition(":")
        if not name:
            return snapshot.anonymous(client)
        if owner.tenant is not None and owner.tenant not in snapshot.spaces:
            return None
        if kind == "token":
            tokens = snapshot.live_tokens(name, owner.tenant, self._clock.now_ms())  # all of them are one principal
            token = next((token for token in tokens if bool(token.own_rules) is owner.is_of_file), None)
            return None if token is None else snapshot.identity_of(token, client)
        if kind == "oidc" and not self._knows_issuer(name.partition(":")[0]):
            return None
        key = f"owner:{(owner.principal, owner.groups, owner.tenant)}"  # names and groups may have any separator
        return snapshot.identity(key, kind, name, client, groups=owner.groups, tenant=owner.tenant)

    def _knows_issuer(self, alias: str) -> bool:
        verifier = self._access.verifier
        return verifier is not None and any(issuer.alias == alias for issuer in verifier.state.issuers)
