"""Ceilings of members hold for members of each protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.directory.ceilings import check_quota
from engine.errors import QuotaExhausted
from gateway.groups.core import classic_calls, share_membership
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.group_table import Ceilings
from gateway.groups.model.classic import JoinCall
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.share_members import ShareBeat
from gateway.groups.model.values import Client, Now, TopicSize
from tests.gateway.groups.core.coordinators import Topics

NOW = Now(1000, 1000)
TOPICS = Topics({"t": TopicSize("id-t", 1)})
Join = Callable[[Coordinator, str], object]


def join_classic(core: Coordinator, name: str) -> object:
    call = JoinCall("g", "", name, "consumer", (("range", b""),), 10_000, 10_000, f"m-{name}", False, True)
    return classic_calls.join(core, call, NOW, TOPICS)


def join_share(core: Coordinator, name: str) -> object:
    return share_membership.heartbeat(core, ShareBeat("g", name, 0, ("t",), Client("c", "a", "")), NOW, TOPICS)


@pytest.mark.parametrize("join", [join_classic, join_share])
def test_a_member_beyond_the_ceiling_is_refused_and_one_that_is_there_joins_again(join: Join) -> None:
    def check_new_member(group: str) -> None:
        check_quota("members", 1, core.groups[group].member_count if group in core.groups else 0)

    core = Coordinator(CoordinatorLimits(), Ceilings(lambda _: None, check_new_member))
    join(core, "a")
    with pytest.raises(QuotaExhausted):
        join(core, "b")
    join(core, "a")
    assert core.groups["g"].member_count == 1
