"""The budget of concurrent reads: granted in order, and returned in every case."""

import asyncio
import random

from engine.runtime.loop_waits import TURN_S, client_key, loop_waits
from gateway.connections.read_budget import CONTENDED_BYTES, ReadBudget


async def hold(room, size_bytes, until):
    async with room.hold(size_bytes):
        await until.wait()


async def settled(rounds=5):
    for _ in range(rounds):
        await asyncio.sleep(0)


async def test_first_come_first_served_and_a_small_one_does_not_overtake():
    room, first, rest = ReadBudget(100), asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(hold(room, 60, first))]
    await settled()
    tasks += [asyncio.create_task(hold(room, size, rest)) for size in (80, 10)]
    await settled()
    assert repr(room) == "ReadBudget(held_bytes=60, waiting=2)"
    first.set()
    await settled()
    assert repr(room) == "ReadBudget(held_bytes=90, waiting=0)"
    rest.set()
    await asyncio.gather(*tasks)
    assert repr(room) == "ReadBudget(held_bytes=0, waiting=0)"


async def test_what_is_larger_than_the_room_has_it_to_itself():
    room, one, two = ReadBudget(100), asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(hold(room, 500, one)), asyncio.create_task(hold(room, 1, two))]
    await settled()
    assert repr(room) == "ReadBudget(held_bytes=500, waiting=1)"
    one.set()
    two.set()
    await asyncio.gather(*tasks)
    assert room.held_bytes == 0


async def test_who_leaves_takes_nothing_with_them():
    """Cancelled while waiting, at the moment of the grant, or while holding: at random, many times."""
    dice = random.Random(7)
    room = ReadBudget(100)

    async def read(size_bytes):
        async with room.hold(size_bytes):
            assert room.held_bytes <= 100 or room.held_bytes == size_bytes
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)

    for _ in range(200):
        tasks = [asyncio.create_task(read(dice.choice((1, 30, 100, 300)))) for _ in range(8)]
        for task in dice.sample(tasks, 4):
            await settled(dice.randrange(4))
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert repr(room) == "ReadBudget(held_bytes=0, waiting=0)"


async def test_clients_are_served_in_rotation():
    """Before, a connection with a thousand fetches was ahead of every fetch that came later."""
    room, gate, order = ReadBudget(100), asyncio.Event(), []

    async def read(client, number):
        client_key.set(client)
        async with room.hold(100):
            order.append((client, number))
            await gate.wait()

    tasks = [asyncio.create_task(read(1, number)) for number in range(5)]
    await settled()
    tasks += [asyncio.create_task(read(client, 0)) for client in (2, 3)]
    await settled()
    gate.set()
    await asyncio.gather(*tasks)
    assert order == [(1, 0), (1, 1), (2, 0), (3, 0), (1, 2), (1, 3), (1, 4)]


async def test_a_read_that_had_to_wait_takes_a_share():
    room, gate = ReadBudget(10 * CONTENDED_BYTES), asyncio.Event()

    async def read(size_bytes):
        async with room.share(size_bytes) as granted_bytes:
            await gate.wait()
            return granted_bytes

    first = asyncio.create_task(read(10 * CONTENDED_BYTES))
    await settled()
    others = [asyncio.create_task(read(size)) for size in (10 * CONTENDED_BYTES, 5)]
    await settled()
    gate.set()
    assert await first == 10 * CONTENDED_BYTES
    assert await asyncio.gather(*others) == [CONTENDED_BYTES, 5]
    assert repr(room) == "ReadBudget(held_bytes=0, waiting=0)"


async def test_a_read_begins_in_a_turn_of_the_loop_that_has_time(monkeypatch):
    """100 reads that never wait for anything else took one turn of the loop."""
    clock, room, iterations = [0.0], ReadBudget(1000), [0]
    monkeypatch.setattr(loop_waits().turns, "_now_s", lambda: clock[0])

    async def read():
        async with room.hold(1):
            clock[0] += TURN_S / 2
            iterations[-1] += 1

    async def count():
        while True:
            await asyncio.sleep(0)
            iterations.append(0)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(read() for _ in range(100)))
    counting.cancel()
    assert sum(iterations) == 100
    assert max(iterations) <= 4
