"""The ceiling of a tenant's members counts and refuses members of each protocol."""

from __future__ import annotations

from typing import Any

import pytest

from engine.directory.ceilings import check_quota
from engine.errors import QuotaExhausted
from gateway.groups.core import classic_calls, share_membership
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.group_table import Ceilings
from gateway.groups.model.classic import JoinCall
from gateway.groups.model.share_members import ShareBeat
from gateway.groups.model.values import Client, HeartbeatCall
from tests.gateway.groups.core.coordinators import GROUP, Stage


def _classic(member: str) -> tuple[Any, Any]:
    call = JoinCall(GROUP, "", member, "consumer", (("range", b""),), 10_000, 10_000, member, False, True)
    return classic_calls.join, call


def _consumer(member: str) -> tuple[Any, Any]:
    return Coordinator.heartbeat, HeartbeatCall(GROUP, member, 0, ("t",), None)


def _share(member: str) -> tuple[Any, Any]:
    return share_membership.heartbeat, ShareBeat(GROUP, member, share_membership.JOIN, ("t",), Client("", "", ""))


@pytest.mark.parametrize("joining", [_classic, _consumer, _share])
def test_a_member_of_any_protocol_is_below_the_ceiling(joining: Any) -> None:
    stage = Stage(t=1)

    def check(group: str) -> None:
        check_quota("members", 1, stage.core.groups[group].member_count if group in stage.core.groups else 0)

    stage.core.ceilings = Ceilings(lambda group: None, check)
    stage.call(*joining("a"))
    with pytest.raises(QuotaExhausted):
        stage.call(*joining("b"))
    stage.call(*joining("a"))  # it is there
    assert stage.core.groups[GROUP].member_count == 1
