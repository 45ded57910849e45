"""Ten owners of connections at one loop, in virtual time: what the tenth sends changes little for the nine.

The server is the real LoopTurns; a connection calls it as gateway/wire/connection.py does. Only time is made up.
"""

import asyncio
import heapq
import random
from math import inf

import pytest

from engine.runtime.fair_shares import SHARE_S_MAX
from engine.runtime.loop_waits import LoopTurns

REQUEST_S = 35e-6
ITERATION_S = 10e-6  # of the loop itself
CLIENT_S = 30e-6  # from an answer to the next request
GREEDY = 9
CLIENTS = 10_000  # numbers of clients of an owner


class World:
    """A loop whose turns read what has come, as a connection does, and whose clients send again once answered."""

    def __init__(self, greedy_requests=1, paced_s=None, *, is_fair=True):
        """`greedy_requests`: of the tenth owner, in one piece. `paced_s`: between two requests of another client."""
        self.now_s = 0.0
        self.turns = LoopTurns(asyncio.get_running_loop(), lambda: self.now_s)
        self.random = random.Random(7)
        self.coming = []  # a heap: when, a tie-breaker, the connection
        self.answered = []  # in this turn
        self.latencies = {}
        self.greedy_requests, self.paced_s, self.is_fair = greedy_requests, paced_s, is_fair

    def connect(self, owner, connections):
        for number in range(connections):
            client = owner * CLIENTS + number + 1
            self.turns.own(client, f"token:{owner}")
            self.send(client, self.random.uniform(0, 0.01))

    def send(self, client, at_s):
        heapq.heappush(self.coming, (at_s, self.random.random(), client))

    def serve(self, client, sent_s):
        self.now_s += REQUEST_S * (1 if client // CLIENTS != GREEDY else self.greedy_requests)
        self.answered.append((client, sent_s))

    async def run(self, seconds):
        if not self.is_fair:  # as a loop whose clients have one owner
            self.turns.look_at = inf
        while self.now_s < seconds:
            self.now_s += ITERATION_S
            if self.coming and not self.answered and not self.turns.is_queued:
                self.now_s = max(self.now_s, self.coming[0][0])
            while self.coming and self.coming[0][0] <= self.now_s:
                sent_s, _, client = heapq.heappop(self.coming)
                self.receive(client, sent_s)
            await asyncio.sleep(0)
            answered, self.answered = self.answered, []
            for client, sent_s in answered:
                owner = client // CLIENTS
                self.latencies.setdefault(owner, []).append(self.now_s - sent_s)
                paced = self.paced_s is not None and owner != GREEDY
                next_s = self.now_s + CLIENT_S
                self.send(client, max(next_s, sent_s + self.paced_s) if paced else next_s)

    def receive(self, client, sent_s):
        turns = self.turns
        if self.now_s >= turns.look_at:
            turns.look(self.now_s)
        is_large = self.greedy_requests > 1 and client // CLIENTS == GREEDY
        if (turns.is_counted or turns.is_watched or is_large) and turns.must_wait(client):
            turns.call(client, lambda: self.serve(client, sent_s))
        else:
            turns.run(client, lambda: self.serve(client, sent_s))


async def measure(connections, greedy, **options):
    """Returns the p99 of nine owners with so many connections each, and the part of the loop of the tenth."""
    world = World(**options)
    for owner in range(GREEDY):
        world.connect(owner, connections)
    world.connect(GREEDY, greedy)
    await world.run(0.2)  # until long turns are noticed
    world.latencies = {}
    await world.run(0.6)
    nine = sorted(latency for owner, those in world.latencies.items() if owner != GREEDY for latency in those)
    had = len(world.latencies.get(GREEDY, ())) * world.greedy_requests
    return nine[int(len(nine) * 0.99)], had / (had + len(nine))


@pytest.mark.parametrize(("connections", "greedy"), [(1, 100), (1, 1000), (4, 400), (10, 1000)])
async def test_an_owner_with_a_hundred_times_the_connections_has_one_share(connections, greedy):
    without, _ = await measure(connections, 0)
    unfair, part = await measure(connections, greedy, is_fair=False)
    assert unfair > 10 * without, "the check can fail"
    assert part > 0.9
    fair, part = await measure(connections, greedy)
    assert fair <= max(1.2 * without, without + 3 * REQUEST_S)
    assert 0.09 < part < 0.25


async def test_an_owner_has_the_time_that_others_leave():
    """Nine paced clients wait for a slice of the tenth, and not for all of its connections."""
    unfair, _ = await measure(1, 1000, paced_s=0.01, is_fair=False)
    fair, part = await measure(1, 1000, paced_s=0.01)
    assert fair < 2 * SHARE_S_MAX + REQUEST_S < unfair / 50
    assert part > 0.9


async def test_large_pieces_of_an_owner_are_paid_by_its_later_ones():
    """A piece of 50 requests is not divided. The tenth has as many turns less."""
    without, _ = await measure(4, 0)
    fair, part = await measure(4, 400, greedy_requests=50)
    assert fair < without + 51 * REQUEST_S
    assert part < 0.35


async def test_owners_that_all_send_much_have_equal_parts():
    world = World()
    for owner, connections in enumerate((20, 50, 200, 1000)):
        world.connect(owner, connections)
    await world.run(0.1)
    world.latencies = {}
    await world.run(0.5)
    parts = [len(those) for those in world.latencies.values()]
    assert max(parts) < 1.1 * min(parts)


async def test_clients_of_one_owner_are_not_watched():
    world = World()
    world.connect(1, 1000)
    await world.run(0.1)
    assert not world.turns.is_watched
    world.connect(2, 1)
    await world.run(0.3)
    assert world.turns.is_watched
    world.turns.leave(2 * CLIENTS + 1)
    await world.run(1.5)
    assert not world.turns.is_watched
    assert world.turns.look_at == inf
