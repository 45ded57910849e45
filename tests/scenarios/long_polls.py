"""Starts long polls, and waits until a node has as many as the tests have under way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from tests.scenarios.gateways import Answer, Gateway

LIMIT_S = 45.0  # less than the longest wait_ms, so that a poll does not end by itself meanwhile

_polls: list[asyncio.Task[Answer]] = []


async def long_poll(gateway: Gateway, request: Coroutine[object, object, Answer]) -> asyncio.Task[Answer]:
    """Start a long poll and return it once the node has it.

    Polls of earlier tests leave a shared node a moment after their clients; this waits for that too. A count that is
    greater than the one before would be wrong: a poll that leaves meanwhile hides the one that comes.
    """
    poll = asyncio.create_task(request)
    _polls[:] = [*(other for other in _polls if not other.done()), poll]
    await until_long_polls(gateway, len(_polls), poll)
    return poll


async def until_long_polls(gateway: Gateway, expected: int, poll: asyncio.Task[Answer] | None = None) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await gateway.metric("penstock_long_polls") != expected:
            assert poll is None or not poll.done(), poll.result()
            await asyncio.sleep(0.01)
