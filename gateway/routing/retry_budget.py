"""The retry budget of a request that appends nothing: the pauses between its tries, and their end.

Only in a cluster. leader_failover.will_pass decides what may be retried; a read may also be repeated.
"""

from __future__ import annotations

import asyncio
from random import Random

from engine.errors import EngineError
from gateway.http.lifecycle import Lifecycle
from gateway.routing.peers import Peers

PAUSE_S = 0.01  # the first; a change of leaders ends it early
PAUSE_S_MAX = 0.25


class RetryBudgets:
    """The shared parts of all retry budgets of a process. `leader_wait_ms` is the default budget."""

    def __init__(self, peers: Peers, lifecycle: Lifecycle, leader_wait_ms: int, random: Random) -> None:
        self.peers = peers
        self.lifecycle = lifecycle
        self.leader_wait_ms = leader_wait_ms
        self._random = random

    def begin(self, wait_ms: int = 0, budget_ms: int | None = None) -> RetryBudget:
        """Begins the budget of one request. `wait_ms` is the wait that its client asks for in any case."""
        return RetryBudget(self, wait_ms, self.leader_wait_ms if budget_ms is None else budget_ms)

    def jitter(self, seconds: float) -> float:
        """Returns a random time from half of `seconds` to all of it, so that requests do not retry together."""
        return self._random.uniform(seconds / 2, seconds)


class RetryBudget:
    """The retry budget of one request."""

    def __init__(self, shared: RetryBudgets, wait_ms: int, budget_ms: int) -> None:
        self._shared = shared
        self._pause_s = PAUSE_S
        now = asyncio.get_running_loop().time()
        self._waits_until = now + wait_ms / 1000
        self._ends = now + max(wait_ms, budget_ms) / 1000

    @property
    def wait_left_ms(self) -> int:
        return max(0, round((self._waits_until - asyncio.get_running_loop().time()) * 1000))

    async def pause(self, error: EngineError) -> None:
        """Waits before the next try. Raises `error` once the budget is spent or the process refuses work."""
        left_s = self._ends - asyncio.get_running_loop().time()
        if left_s <= 0 or self._shared.lifecycle.is_refusing:
            raise error
        pause_s = self._shared.jitter(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        await self._shared.peers.wait_leader_change(min(pause_s, left_s))
