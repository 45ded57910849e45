"""What a tenant has in one process, and what its checks look at."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import QuotaExhausted
from gateway.access.state import TenantLimits
from gateway.usage.holdings import Groups, Held, HeldGroup, Holdings


async def _load() -> None:
    return


async def test_groups_are_walked_once_for_all_tenants_and_never_for_a_produce() -> None:
    walks = 0

    def held() -> Iterator[HeldGroup]:
        nonlocal walks
        walks += 1
        for tenant in range(3):
            yield HeldGroup(f"t{tenant}.g", is_subscription=False, members=tenant)
            yield HeldGroup(f"t{tenant}.s", is_subscription=True, members=0)
        yield HeldGroup("g", is_subscription=False, members=9)

    shard: Any = SimpleNamespace(topics={})
    nothing: Any = None
    limits = {"t1": TenantLimits(stored_bytes=0), "t2": TenantLimits(members=2)}
    holdings = Holdings(shard, nothing, nothing, lambda: limits)
    holdings.groups = Groups(held, _load)
    assert await holdings.measure(["t1", "t2"]) == {"t1": Held(1, 1, 1, 0), "t2": Held(1, 1, 2, 0)}
    assert walks == 1
    with pytest.raises(QuotaExhausted):
        holdings.check_stored("t1")
    holdings.check_stored("t2")
    assert walks == 1
    with pytest.raises(QuotaExhausted):
        holdings.check_new_member("t2.g")
