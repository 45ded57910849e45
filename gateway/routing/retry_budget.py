"""How long a request that appends nothing looks for a leader: pauses between its tries, and their end.

For a node of a cluster only. What may be tried again is handover.will_pass's to say; a read may also be done twice.
"""

from __future__ import annotations

import asyncio

from engine.errors import EngineError
from gateway.node import Node

PAUSE_S = 0.01  # the first; leaders that move end it early
PAUSE_S_MAX = 0.25


class Patience:
    """Of one request, from now on. `wait_ms` is what its client would wait in any case; without `patience_ms` it is as
    long as the node has it for all.
    """

    def __init__(self, node: Node, wait_ms: int = 0, patience_ms: int | None = None) -> None:
        self._node = node
        self._pause_s = PAUSE_S
        now = asyncio.get_running_loop().time()
        self._waits_until = now + wait_ms / 1000
        self._ends = now + max(wait_ms, node.settings.leader_wait_ms if patience_ms is None else patience_ms) / 1000

    @property
    def wait_left_ms(self) -> int:
        return max(0, round((self._waits_until - asyncio.get_running_loop().time()) * 1000))

    async def pause(self, error: EngineError) -> None:
        """Before the next try. Raises the error when there is to be none."""
        left_s = self._ends - asyncio.get_running_loop().time()
        if left_s <= 0 or self._node.is_refusing:
            raise error
        pause_s = self._node.jittered(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        await self._node.peers.wait_for_leaders(min(pause_s, left_s))
