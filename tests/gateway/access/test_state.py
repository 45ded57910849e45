"""Changes of rules and tokens: what is refused, and that no author is locked out without force."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.access.rules import Effect, Pattern, Rule
from gateway.access.state import (
    KINDS,
    AccessState,
    AddRule,
    AddToken,
    Author,
    Change,
    RemoveRule,
    RemoveTenant,
    RemoveToken,
    RotateToken,
    SetQuota,
    StoredToken,
    Tenant,
    changed,
    state_from,
    state_to,
)
from gateway.http.problems import Problem
from gateway.http.rights import Operation, Resource
from gateway.quotas.quota import Owner, Quota, id_of

OPS = StoredToken(id="00000001", name="ops", sha256="00" * 32, created_ms=1)
SHOP = StoredToken(id="00000002", name="shop", sha256="11" * 32, created_ms=1)


def rule(rule_id: str, principal: str = "token:ops", effect: str = "allow") -> Rule:
    return Rule(
        id=rule_id,
        effect=Effect(effect),
        principals=(principal,),
        operations=(Operation.ACCESS,),
        resource=Resource.CLUSTER,
        pattern=Pattern.ALL,
    )


BEFORE = AccessState(1, (rule("ops"),), (OPS, SHOP))
AUTHOR = Author(principal="token:ops", principals=("token:ops", "*"), token_id=OPS.id, client="127.0.0.1:1")


def after(what: Any, state: AccessState = BEFORE, author: Author | None = AUTHOR, **fields: Any) -> AccessState:
    return changed(state, Change(what=what, author=author, now_ms=1000, **fields))


def refusal(what: Any, state: AccessState = BEFORE, **fields: Any) -> str:
    with pytest.raises(Problem) as refused:
        after(what, state, **fields)
    return refused.value.code


def test_each_change_is_one_generation() -> None:
    added = after(AddRule(rule("more", "token:shop")))
    assert (added.generation, [one.id for one in added.rules]) == (2, ["more", "ops"])
    removed = after(RemoveRule("more"), added)
    assert (removed.generation, removed.rules) == (3, BEFORE.rules)
    assert after(RemoveToken("shop")).tokens == (OPS,)
    assert after(RemoveToken(SHOP.id)).tokens == (OPS,)
    assert state_from(state_to(added)) == added


def test_an_operator_with_access_to_a_tenant_alone_changes_what_is_inside_of_it() -> None:
    """Its route allows that, to an operator that may act inside."""
    acme = replace(rule("ops"), resource=Resource.TENANT, pattern=Pattern.LITERAL, name="acme")
    state = AccessState(
        1, (acme,), (OPS, SHOP), tenants=(Tenant(id="acme", created_ms=0), Tenant(id="b", created_ms=0))
    )
    inside = replace(acme, id="inside", principals=("*",), tenant="acme")
    added = after(AddRule(inside), state)
    assert after(RemoveRule("inside", "acme"), added).rules == (acme,)
    assert after(AddToken(replace(SHOP, id="00000009", tenant="acme")), state).generation == 2
    for what in (
        AddRule(rule("more")),
        AddRule(replace(inside, tenant="b", name="b")),
        RemoveRule("ops"),
        RemoveTenant("acme"),
    ):
        assert refusal(what, state) == "forbidden"


@pytest.mark.parametrize(
    "what",
    [
        RemoveRule("ops"),
        AddRule(rule("no", effect="deny")),
        AddRule(rule("no", "*", effect="deny")),
        RemoveToken("ops"),
        RotateToken(replace(OPS, id="00000003"), 1000),
    ],
)
def test_an_author_that_could_not_go_on_has_to_force(what: Any) -> None:
    assert refusal(what) == "access_locks_out"
    assert after(what, is_forced=True).generation == 2
    superuser = Author(principal="token:boss", own_rules=(rule("file"),), is_superuser=True)
    assert after(what, author=superuser).generation == 2
    assert after(what, author=None).generation == 2, "without a tokens file rules do not bind"


def test_what_is_there_or_is_not_is_refused() -> None:
    assert refusal(AddRule(rule("ops"))) == "access_exists"
    assert refusal(RemoveRule("none")) == "unknown_access"
    assert refusal(AddToken(replace(SHOP, id="00000003"))) == "access_exists"
    assert refusal(RemoveToken("none")) == "unknown_access"
    assert refusal(RotateToken(replace(SHOP, name="none"), 0)) == "unknown_access"


def test_a_token_of_the_store_never_has_the_name_of_one_of_the_file() -> None:
    new = StoredToken(id="00000003", name="boss", sha256="22" * 32, created_ms=1)
    assert refusal(AddToken(new), file_principals=("token:boss",)) == "access_exists"
    assert after(AddToken(new)).tokens == (OPS, SHOP, new)


def test_rules_name_tokens_that_exist() -> None:
    assert refusal(AddRule(rule("r", "token:shopp"))) == "invalid_rule"
    assert after(AddRule(rule("r", "token:boss")), file_principals=("token:boss",)).generation == 2
    assert after(AddRule(rule("r", "oidc:corp:anna"))).generation == 2, "an issuer names its subjects"


def test_a_rotation_ends_the_former_tokens_of_the_name() -> None:
    new = replace(SHOP, id="00000003")
    first = after(RotateToken(new, 5000))
    assert {one.id: one.expires_ms for one in first.tokens} == {OPS.id: 0, SHOP.id: 5000, new.id: 0}
    second = after(RotateToken(replace(SHOP, id="00000004"), 9000), first)
    assert {one.id: one.expires_ms for one in second.tokens if one.name == "shop"} == {
        SHOP.id: 5000,
        new.id: 9000,
        "00000004": 0,
    }


EVERYTHING = Author(principal="token:boss", token_id="ff", own_rules=(rule("own", "token:boss"),), is_superuser=True)


@pytest.mark.parametrize(
    ("state", "author"),
    [
        (replace(BEFORE, tokens=(SHOP,)), AUTHOR),
        (replace(BEFORE, rules=()), AUTHOR),
        (replace(BEFORE, rules=(*BEFORE.rules, rule("no", effect="deny"))), AUTHOR),
        (replace(BEFORE, tokens=(replace(OPS, expires_ms=1000), SHOP)), AUTHOR),
        (BEFORE, replace(AUTHOR, expires_ms=1000)),
        (BEFORE, replace(EVERYTHING, expires_ms=1000)),
    ],
    ids=["token revoked", "no rule", "denied", "token expired", "credential expired", "superuser expired"],
)
@pytest.mark.parametrize("is_forced", [False, True])
def test_an_author_who_has_lost_the_right_changes_nothing(state, author, is_forced) -> None:
    """The right was there when the request came; the state that it would change is a later one."""
    with pytest.raises(Problem, match="may not change rules") as refused:
        after(AddRule(rule("back")), state, author, is_forced=is_forced)
    assert (refused.value.code, refused.value.members) == ("forbidden", {"operation": "access", "resource": "cluster"})


def quota(owner: Owner, name: str) -> SetQuota:
    return SetQuota(Quota(id=id_of(owner, name), owner=owner, name=name, requests=1))


def test_quotas_of_a_tenant_name_its_tokens_and_go_with_it() -> None:
    theirs = replace(SHOP, id="00000003", name="all", tenant="acme")
    state = replace(BEFORE, tenants=(Tenant(id="acme", created_ms=1),), tokens=(OPS, SHOP, theirs))
    for name in ("acme.token:all", "acme.oidc:corp:a.b"):
        state = after(quota(Owner.PRINCIPAL, name), state)
    state = after(quota(Owner.CLIENT, "acme.token:all+batch"), after(quota(Owner.TENANT, "acme"), state))
    state = after(quota(Owner.TENANT, "*"), after(quota(Owner.PRINCIPAL, "token:shop"), state))
    for owner, name in (
        (Owner.PRINCIPAL, "acme.token:shop"),
        (Owner.PRINCIPAL, "token:all"),
        (Owner.PRINCIPAL, "none.token:all"),
        (Owner.TENANT, "none"),
    ):
        assert refusal(quota(owner, name), state) == "invalid_quota", name
    left = after(RemoveTenant("acme"), state, is_forced=True)
    assert sorted(one.id for one in left.quotas) == ["principal:token:shop", "tenant:*"]


def test_rules_are_bounded() -> None:
    full = replace(BEFORE, rules=tuple(rule(f"r{number}") for number in range(KINDS["rules"].count_max)))
    assert refusal(AddRule(rule("more")), full) == "too_many_rules"
    over = replace(full, rules=(*full.rules, rule("more")))
    assert len(after(RemoveRule("more"), over).rules) == len(full.rules), "an older limit was higher"
