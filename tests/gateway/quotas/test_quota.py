"""A quota that cannot be used is refused in one line, which names the field and what to change."""

from __future__ import annotations

import pytest

from gateway.quotas.quota import InvalidQuota, Owner, Quota, check_quota, id_of


def quota(owner: str = "tenant", name: str = "acme", **fields: float) -> Quota:
    return Quota(id=id_of(Owner(owner), name), owner=Owner(owner), name=name, **fields)


@pytest.mark.parametrize("field", ["requests", "bytes_in", "bytes_out", "loop_ms", "connections", "long_polls"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), float("-inf"), 1e13])
def test_a_limit_is_a_number_above_0(field, value):
    with pytest.raises(InvalidQuota, match=rf"^{field} is .*: (remove|leave)") as refusal:
        check_quota(quota(**{field: value}))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("value", [0, -1, float("nan"), 3601])
def test_the_burst_is_bounded(value):
    with pytest.raises(InvalidQuota, match=r"^burst_s is "):
        check_quota(quota(requests=1, burst_s=value))


def test_a_quota_limits_something():
    with pytest.raises(InvalidQuota, match="limits nothing: give one of requests, bytes_in"):
        check_quota(quota())


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("tenant", ""),
        ("tenant", "a/b"),
        ("tenant", "a\x00"),
        ("tenant", "a" * 301),
        ("principal", "shop"),
        ("client", "token:shop"),
        ("client", "token:shop+"),
        ("client", "*+batch"),  # any client could choose this id
        ("topic", "orders.*"),
        ("topic", "a b"),
    ],
)
def test_a_name_that_no_owner_has_is_refused(owner, name):
    with pytest.raises(InvalidQuota, match=r"^name "):
        check_quota(quota(owner, name, requests=1))


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("tenant", "acme"),
        ("tenant", "*"),
        ("principal", "token:shop"),
        ("principal", "*"),
        ("principal", "oidc:corp:a+b@c.de"),
        ("client", "token:shop+batch"),
        ("client", "oidc:corp:a+b@c.de+*"),
        ("client", "*+*"),
        ("topic", "orders."),
        ("topic", "*"),
    ],
)
def test_the_names_of_owners(owner, name):
    check_quota(quota(owner, name, bytes_in=0.5))
