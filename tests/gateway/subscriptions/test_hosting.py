"""Which subscriptions a process runs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from engine.format.paths import GROUPS_TOPIC
from engine.runtime.clock import SystemClock
from gateway.access.access import Access
from gateway.access.owners import Owners
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.values import PushCall
from gateway.subscriptions.core.definition import Definition, Delivery, encode
from gateway.subscriptions.hosting import PushHost
from tests.gateway.groups.hosting.test_hosted import Log, hosted_on

NAME = "push:p"
PARTITIONS: list[Any] = [SimpleNamespace(number=0), SimpleNamespace(number=1)]


class Coordinators:
    """Those of two partitions. The second is loaded when the test sets it."""

    def __init__(self, log: Log) -> None:
        self.is_asked, self.is_loaded = asyncio.Event(), asyncio.Event()
        self._hosted = [hosted_on(log), hosted_on(Log())]

    async def at(self, partition: Any) -> Hosted:
        if partition.number == 1:
            self.is_asked.set()
            await self.is_loaded.wait()
        return self._hosted[partition.number]


async def test_a_subscription_that_is_made_during_a_look_keeps_running():
    async def close() -> None: ...

    log = Log()
    log.acknowledgements.put_nowait(None)
    coordinators: Any = Coordinators(log)
    topics: Any = {GROUPS_TOPIC: SimpleNamespace(record=SimpleNamespace(partitions=2, topic_id="id"))}
    partitions: Any = SimpleNamespace(owned_partition=lambda _, topic_id, number: PARTITIONS[number])
    means: Any = SimpleNamespace(sender=SimpleNamespace(close=close))
    host = PushHost(coordinators, topics, partitions, Owners(Access(SystemClock()), SystemClock()))
    host.start(means)
    await asyncio.wait_for(coordinators.is_asked.wait(), 60)
    definition = encode(Definition("http://receiver/", (), Delivery(), (), ())).decode()
    await asyncio.wait_for(host.put(PARTITIONS[0], PushCall(NAME, definition)), 60)
    _, runner = await host.find(PARTITIONS[0], NAME)
    assert runner is not None
    coordinators.is_loaded.set()
    for _ in range(10):  # the look ends
        await asyncio.sleep(0)
    assert (await host.find(PARTITIONS[0], NAME))[1] is runner
    await host.stop()
