"""The budget of concurrent reads: granted in order, and returned in every case."""

import asyncio
import random

from gateway.connections.read_budget import ReadBudget


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
