"""Runs a story until the power fails, at each of its operations in turn, and yields the possible disk states.

Everything is a function of story, seed, operation and state number, so one test can be rerun to replay a failure.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import contextmanager
from random import Random
from typing import Protocol

import pytest

from engine.errors import EngineError
from engine.testing.recording_disk import RecordingDisk
from tests.engine.crash.teller import Teller

# Operations between two losses in the largest tests, and a divisor of random stories; `make power-loss-long` sets 1.
EVERY = int(os.environ.get("PENSTOCK_TEST_POWER_LOSS_EVERY", "24"))
# The first of every third operation, for a story that is slow: `make test` has a third, `make test-long` the others.
THIRDS = [pytest.param(first, marks=[pytest.mark.long] if first > 1 and EVERY > 1 else []) for first in (1, 2, 3)]
SPARSE = 1 if EVERY == 1 else 2  # a factor of the distance in tests that are slow for each operation

Steps = Callable[[Teller], Awaitable[None]]


async def play(lives: tuple[Steps, ...], seed: int = 0, power_lost_after: int = 0) -> tuple[RecordingDisk, Teller]:
    """Return the disk and the teller after all of a story, or at the power loss."""
    teller = Teller(seed)
    disk = RecordingDisk(teller.clock)
    if power_lost_after:
        disk.lose_power_after(power_lost_after)
    with until_power_is_lost(disk):
        for steps in lives:
            await teller.life(disk, steps)
    return disk, teller


@contextmanager
def until_power_is_lost(disk: RecordingDisk):
    """Ends quietly at the power loss; any other failure of the engine fails the test."""
    try:
        yield
    except (EngineError, OSError):
        if not disk.has_lost_power:
            raise


async def crash_points(
    lives: tuple[Steps, ...], seed: int = 0, every: int = 1
) -> AsyncIterator[tuple[int, RecordingDisk, Teller]]:
    """Yield the disk without power, and what was promised, for each operation or each n-th one."""
    counted, _ = await play(lives, seed)
    for n in range(1 + seed % every, counted.operations + 1, every):
        disk, teller = await play(lives, seed, n)
        yield n, disk, teller


class Story(Protocol):
    """A sequence of steps on a disk, and the condition for every state after a power loss."""

    async def story(self, disk: RecordingDisk) -> None: ...
    async def check(self, disk: RecordingDisk) -> None: ...


async def check_story(begun: Callable[[], Story], *, first: int = 1, every: int = 1, limit: int) -> None:
    """Cut the power at every n-th operation of a new run of the story, and judge some states of each disk."""
    await begun().story(counted := RecordingDisk())
    for n in range(first, counted.operations + 1, every):
        disk, story = RecordingDisk(), begun()
        disk.lose_power_after(n)
        with until_power_is_lost(disk):
            await story.story(disk)
        await asyncio.sleep(0)
        for number, state in enumerate(disk.crash_states(limit, Random(n))):
            with telling(f"operation {n}, state {number}: {state!r}"):
                await story.check(state)


async def check_states(disk: RecordingDisk, teller: Teller, where: str, limit: int) -> None:
    """Judge the states that a power loss may leave of this disk."""
    for number, state in enumerate(disk.crash_states(limit, Random(limit))):
        with telling(f"{where}, state {number}: {state!r}"):
            await teller.check(state)


async def check_next_life(
    state: RecordingDisk, survivor: Teller, steps: Steps, where: str, every: int, limit: int
) -> None:
    """Continue with a recovered disk, cut the power again, and judge the states after both lives."""
    counted = state.snapshot()
    await survivor.fork().life(counted, steps)
    for k in range(1, counted.operations + 1, every):
        disk, teller = state.snapshot(), survivor.fork()
        disk.lose_power_after(k)
        with until_power_is_lost(disk):
            await teller.life(disk, steps)
        await check_states(disk, teller, f"{where}, then {k} of the next life", limit)


@contextmanager
def telling(where: str):
    """Prefix an error with the place where it happened."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{where}\n{type(error).__name__}: {error}") from error
