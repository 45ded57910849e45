"""Turns of the event loop, with a clock that only work advances."""

import asyncio

import pytest

from engine.runtime.loop_waits import PIECES_MAX, TURN_S, LoopTurns
from engine.runtime.rotation import Rotation


class Clock:
    """A clock that shows the time that work has taken, and how much of it each iteration of the loop has taken."""

    def __init__(self):
        self.now_s = 0.0
        self.begun = []
        self.spent_s = [0.0]

    def spend(self, client, seconds):
        self.begun.append(client)
        self.now_s += seconds
        self.spent_s[-1] += seconds

    async def count_iterations(self):
        while True:
            await asyncio.sleep(0)
            self.spent_s.append(0.0)


@pytest.fixture
async def clock():
    clock = Clock()
    counting = asyncio.create_task(clock.count_iterations())
    yield clock
    counting.cancel()


@pytest.fixture
async def turns(clock):
    return LoopTurns(asyncio.get_running_loop(), lambda: clock.now_s)


def use_up(turns, clock):
    """Leaves no time in this turn, for the tasks that begin in it."""
    assert not turns.is_over()
    clock.now_s += TURN_S


async def work(turns, clock, client, piece_s):
    if turns.must_wait(client):
        await turns.wait(client)
    clock.spend(client, piece_s)


@pytest.mark.parametrize("piece_s", [0.0001, 0.001, 0.003, 0.03])
async def test_a_client_with_much_work_delays_another_by_a_few_pieces(turns, clock, piece_s):
    many = [asyncio.create_task(work(turns, clock, 1, piece_s)) for _ in range(500)]
    while len(clock.begun) < 20:
        await asyncio.sleep(0)
    before = len(clock.begun)
    await work(turns, clock, 2, piece_s)
    between = clock.begun.index(2) - before
    assert between * piece_s <= 2 * (TURN_S + piece_s)
    await asyncio.gather(*many)
    assert clock.begun.count(1) == 500
    settled = clock.spent_s[5:]  # the first turns learn how long a piece takes
    assert max(settled) <= 2 * TURN_S + 2 * piece_s


async def test_queued_clients_are_served_in_rotation_and_each_in_its_order(turns, clock):
    order = []

    async def note(client, number):
        if turns.must_wait(client):
            await turns.wait(client)
        order.append((client, number))

    tasks = [asyncio.create_task(note(client, number)) for client in (1, 2, 3) for number in range(4)]
    use_up(turns, clock)
    await asyncio.gather(*tasks)
    assert order == [(client, number) for number in range(4) for client in (1, 2, 3)]


async def test_work_without_a_task_has_its_turns_too(turns, clock):
    for _ in range(100):
        turns.call(1, lambda: clock.spend(1, 0.003))
    turns.call(2, lambda: clock.spend(2, 0.003))
    while len(clock.begun) < 101:
        await asyncio.sleep(0)
    assert clock.begun.index(2) <= 2 * PIECES_MAX
    assert max(clock.spent_s) <= 0.003 * PIECES_MAX, "the first turn does not know how long a piece takes"
    assert max(clock.spent_s[2:]) <= TURN_S + 2 * 0.003


async def test_a_client_without_queued_work_does_not_wait_for_the_queue(turns, clock):
    for _ in range(50):
        turns.call(1, lambda: clock.spend(1, 0.004))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns.is_waiting(1)
    while turns.is_over():
        await asyncio.sleep(0)
    assert not turns.must_wait(2)


async def test_later_work_of_a_client_never_passes_its_earlier_work(turns, clock):
    """A wait that has ended goes on in the next turn: until then its client counts as waiting."""
    use_up(turns, clock)
    order = []

    async def note(number):
        if turns.must_wait(1):
            await turns.wait(1)
        order.append(number)

    tasks = []
    for number in range(40):
        tasks.append(asyncio.create_task(note(number)))
        await asyncio.sleep(0)
        clock.now_s += 0.001
    await asyncio.gather(*tasks)
    assert order == list(range(40))


async def test_a_cancelled_wait_takes_no_turn_of_others(turns, clock):
    tasks = [asyncio.create_task(work(turns, clock, number % 2, 0.001)) for number in range(20)]
    use_up(turns, clock)
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert clock.begun == [1] * 10
    assert repr(turns) == "LoopTurns(Rotation(0 of 0 clients))"


def test_a_rotation_gives_items_of_clients_in_turn():
    rotation = Rotation()
    for client, item in ((1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e")):
        rotation.put(client, item)
    assert rotation.peek() == "a"
    assert rotation.take() == (1, "a")
    rotation.remove(2, "d")
    rotation.remove(2, "d")
    assert 2 not in rotation
    assert [rotation.take() for _ in range(rotation.count)] == [(3, "e"), (1, "b"), (1, "c")]


def test_a_rotation_gives_items_of_owners_in_turn_and_of_their_clients():
    owners = {1: "a", 2: "a", 3: "b"}
    rotation = Rotation(owners.get)
    for client, item in ((1, "1"), (1, "1'"), (2, "2"), (2, "2'"), (3, "3"), (3, "3'")):
        rotation.put(client, item)
    owners[1] = "c"  # what is queued keeps its owner, for its order
    rotation.put(1, "1''")
    assert rotation.take(lambda owner: owner != "a") == (3, "3")
    assert rotation.take(lambda owner: owner == "c") is None
    rest = [rotation.take()[1] for _ in range(rotation.count)]
    assert rest == ["1", "3'", "2", "1'", "2'", "1''"]
    assert repr(rotation) == "Rotation(0 of 0 clients)"
    rotation.put(1, "own")
    assert rotation.take(lambda owner: owner == "c") == (1, "own")
