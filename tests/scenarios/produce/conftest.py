"""Topics of these scenarios."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.scenarios.gateways import Topic


@pytest.fixture
async def both(new_topic: Callable[[int], Awaitable[Topic]]) -> Topic:
    """Return two partitions: in a node of two shards one of them belongs to the process that does not receive the
    request.
    """
    return await new_topic(2)
