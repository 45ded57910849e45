"""The rights of owners, asked of the rules of a process later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.runtime.clock import SystemClock
from gateway.access.access import Access
from gateway.access.owner import Needed, Owner
from gateway.access.owners import Owners
from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import AccessState
from gateway.access.tokens import Tokens
from gateway.http.rights import Operation, Resource

NEEDED = [Needed(Operation.READ, Resource.TOPIC, "t")]
ANNA = Owner("oidc:corp:anna", groups=("group:corp:readers",))


def owners_of(*principals: str, issuers: tuple[str, ...] = ()) -> Owners:
    """Returns those of a process with a rule that allows these principals to read t."""
    access = Access(SystemClock(), Tokens(()))
    rule = Rule(
        id="r",
        effect=Effect.ALLOW,
        principals=principals,
        operations=(Operation.READ,),
        resource=Resource.TOPIC,
        pattern=Pattern.LITERAL,
        name="t",
    )
    access.use_state(AccessState(1, (rule,)))
    known: Any = SimpleNamespace(state=SimpleNamespace(issuers=[SimpleNamespace(alias=alias) for alias in issuers]))
    access.use_verifier(known)
    return Owners(access, SystemClock())


@pytest.mark.parametrize(
    ("owner", "principal", "lacks"),
    [
        (ANNA, "oidc:corp:anna", ""),
        (ANNA, "group:corp:readers", ""),
        (ANNA, "group:corp:writers", "lacks the right read"),
        (Owner("cert:sensor"), "cert:sensor", ""),
        (Owner("cert:sensor"), "cert:other", "lacks the right read"),
        (Owner("anonymous"), "anonymous", ""),
        (Owner("anonymous"), "token:x", "is unknown now"),
        (Owner("token:gone"), "token:gone", "is unknown now"),
    ],
)
async def test_an_owner_has_the_rights_of_its_principal_and_its_groups(
    owner: Owner, principal: str, lacks: str
) -> None:
    reason = owners_of(principal, issuers=("corp",)).lost_right(owner, NEEDED)
    assert (lacks in reason) if lacks else not reason


async def test_a_group_whose_name_has_separators_is_not_two_groups() -> None:
    owners = owners_of("group:corp:b", issuers=("corp",))
    two, one = ("group:corp:a", "group:corp:b"), ("group:corp:a,group:corp:b",)
    assert not owners.lost_right(Owner("oidc:corp:anna", groups=two), NEEDED)
    assert "lacks the right read" in owners.lost_right(Owner("oidc:corp:anna", groups=one), NEEDED)


async def test_an_owner_of_an_issuer_that_is_not_trusted_any_more_has_no_right() -> None:
    assert "is unknown now" in owners_of("oidc:corp:anna", issuers=("other",)).lost_right(ANNA, NEEDED)


async def test_without_authentication_no_owner_lacks_a_right() -> None:
    owners = Owners(Access(SystemClock()), SystemClock())
    assert owners.can_decide
    assert owners.lost_right(ANNA, NEEDED) == ""
    assert owners.lost_right(None, NEEDED) == ""
