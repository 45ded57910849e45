"""The number of partitions is asked once, and whoever stops waiting for it disturbs nobody."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from client.aio import Client
from client.topics import TopicPartitions
from tests.client.conftest import QUICK

NOBODY = "http://127.0.0.1:1"


async def test_a_failure_that_nobody_waits_for_any_more_is_not_reported() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    topics = TopicPartitions(Client(NOBODY, options=QUICK)._attempts, 50)
    waiting = asyncio.create_task(topics.learn("flights"))
    while not topics._asking:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    while topics._asking:
        await asyncio.sleep(0.01)
    del waiting  # it holds on to what it waited for
    gc.collect()  # asyncio reports a failure that nobody looked at when its task goes
    assert reported == []
