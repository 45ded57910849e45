"""Retry pauses of a partition queue: short after a change of leaders, ever longer without one."""

from __future__ import annotations

import asyncio
from random import Random

from engine.format.batch import encode_values
from gateway.routing.leader_failover import PAUSE_S, PAUSE_S_MAX, FailoverAppend, LeaderFailover
from replication.errors import NoLeader
from replication.replica.acks import Acks

CHANGES = [False] * 6 + [True] + [False] * 3


class Pauses:
    """A stub of Peers: records the requested pauses, and returns whether leaders have changed meanwhile."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.is_over = asyncio.Event()

    async def wait_leader_change(self, seconds: float) -> bool:
        if len(self.waits) == len(CHANGES):
            self.is_over.set()
            await asyncio.Event().wait()
        self.waits.append(seconds)
        return CHANGES[len(self.waits) - 1]


def no_leader() -> None:
    raise NoLeader("t/0: no node leads")


async def test_after_a_change_a_queue_retries_as_quickly_as_at_first():
    """A node learns of a leader before that leader has started."""
    pauses = Pauses()
    failover = LeaderFailover(pauses, Random(1))
    deadline = asyncio.get_running_loop().time() + 60
    append = FailoverAppend("t", 0, encode_values([b"1"], 5), Acks.ALL, None, deadline, no_leader)
    failover.begin(append)
    await pauses.is_over.wait()
    most = [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, 8 * PAUSE_S, PAUSE_S_MAX, PAUSE_S_MAX, PAUSE_S_MAX]
    most += [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert all(pause <= one for pause, one in zip(pauses.waits, most, strict=True)), pauses.waits
    assert pauses.waits[6] > PAUSE_S
    append.cancel()
