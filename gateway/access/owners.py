"""Asks the rules of this process whether an owner still has the rights that it needs.

An owner without a credential of its own in the snapshot (of a certificate, of an issuer) has the rights of its
principal and groups. A token must exist besides, and must not have expired. Invariant: while this process has not read
the rules of the store, it says neither that an owner has lost a right nor that a new work may begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.runtime.clock import Clock
from gateway.access.access import Access, forbidden
from gateway.access.identity import Identity
from gateway.access.owner import Needed, Owner
from gateway.access.rules import address_of
from gateway.access.snapshot import Snapshot
from gateway.access.tokens import Token
from gateway.http.request import Request


class _Principal(NamedTuple):
    """The principal of tokens: their name, whether they are of the file, and their tenant."""

    name: str
    is_of_file: bool
    tenant: str | None


class Owners:
    """The owners of a process."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._snapshot: Snapshot | None = None
        self._tokens: dict[_Principal, list[Token]] = {}  # of that snapshot

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
        if kind != "token":
            key = f"owner:{owner.principal}:{','.join(owner.groups)}:{owner.tenant}"
            return snapshot.identity(key, kind, name, client, groups=owner.groups, tenant=owner.tenant)
        token = self._token(snapshot, _Principal(name, owner.is_of_file, owner.tenant))
        return None if token is None else snapshot.identity_of(token, client)

    def _token(self, snapshot: Snapshot, principal: _Principal) -> Token | None:
        """Returns a token of this principal that has not expired."""
        if snapshot is not self._snapshot:
            self._snapshot, self._tokens = snapshot, {}
            for token in snapshot.tokens.all:
                of_token = _Principal(token.name, bool(token.own_rules), token.tenant)
                self._tokens.setdefault(of_token, []).append(token)
        now_ms = self._clock.now_ms()
        found = self._tokens.get(principal, ())
        return next((token for token in found if not token.expires_ms or token.expires_ms > now_ms), None)
