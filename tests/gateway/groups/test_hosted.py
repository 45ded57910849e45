"""A coordinator whose records cannot be stored."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.errors import CoordinatorMoved
from gateway.groups.core.settings import CoordinatorLimits
from gateway.groups.core.values import ConfigCall
from gateway.groups.hosted import Hosted
from tests.gateway.groups.core.coordinators import GROUP, Topics


async def test_a_defect_of_the_append_ends_all_waits():
    async def produce(*_: object) -> None:
        raise ValueError("a defect")

    partition: Any = SimpleNamespace(name="__groups/0", log=SimpleNamespace(leader_epoch=1))
    replica: Any = SimpleNamespace(produce=produce)
    clock: Any = SimpleNamespace(steady_ms=lambda: 0, now_ms=lambda: 0)
    hosted = Hosted(1, partition, replica, Coordinator(CoordinatorLimits()), Topics(), clock, 1000)
    call = ConfigCall(GROUP, {})
    _, sequence = hosted.decide(lambda core, now, source: core.configure(call, now, source))
    with pytest.raises(CoordinatorMoved):
        await asyncio.wait_for(hosted.stored(sequence), 1)
