"""Cut the power at the operations of a story: recovery keeps the engine's promises in every possible disk state."""

from random import Random

import pytest

from tests.engine.crash import stories
from tests.engine.crash.power_loss import (
    EVERY,
    SPARSE,
    check_next_life,
    check_states,
    crash_points,
    telling,
    until_power_is_lost,
)

STORIES = {
    "appends": (stories.appends,),
    "rolls": (stories.rolls,),
    "expiry": (stories.expiry,),
    "unsynced_expiry": (stories.unsynced_expiry,),
    "deletion": (stories.deletion,),
    "unsynced_deletion": (stories.unsynced_deletion,),
    "two_lives": (stories.two_lives, stories.two_lives),
    "appends_os": (stories.under_os(stories.appends),),
    "rolls_os": (stories.under_os(stories.rolls),),
    "expiry_os": (stories.under_os(stories.expiry),),
}
IS_LONG = [pytest.mark.long] if EVERY > 1 else []
every_story = pytest.mark.parametrize("lives", STORIES.values(), ids=STORIES)
# `make test` has the stories that sync themselves; what the operating system syncs later is left to `make test-long`.
synced_stories = pytest.mark.parametrize(
    "lives", [pytest.param(lives, id=name, marks=IS_LONG * name.endswith("_os")) for name, lives in STORIES.items()]
)
more = pytest.mark.long if EVERY > 1 else pytest.mark.slow


@every_story
async def test_what_was_promised_is_there_and_only_what_was_sent(lives):
    async for n, disk, teller in crash_points(lives, seed=3, every=9):
        await check_states(disk, teller, f"operation {n}", limit=4)


@more
@every_story
async def test_the_same_at_more_operations(lives):
    async for n, disk, teller in crash_points(lives, every=EVERY):
        await check_states(disk, teller, f"operation {n}", limit=6)


@pytest.mark.parametrize("seed", range(4))
async def test_random_stories(seed):
    async for n, disk, teller in crash_points((stories.random_steps,) * 2, seed, every=23):
        await check_states(disk, teller, f"operation {n}", limit=4)


@more
@pytest.mark.parametrize("seed", range(100, 100 + max(1, 12 // EVERY)))
async def test_more_random_stories(seed):
    async for n, disk, teller in crash_points((stories.random_steps,) * 2, seed, every=17):
        await check_states(disk, teller, f"operation {n}", limit=5)


@synced_stories
async def test_what_recovery_found_is_durable_and_found_again(lives):
    """Recovery serves what it finds at once, so a second power loss must not remove any of it."""
    async for n, disk, teller in crash_points(lives, seed=5, every=13 * SPARSE):
        for state in disk.crash_states(3, Random(n)):
            survivor = teller.fork()
            with telling(f"operation {n}: {state!r}"):
                found = await survivor.check(state, go_on=True)
                assert await survivor.check(state.snapshot()) == found
                for again in state.crash_states(3, Random(n)):
                    assert await survivor.check(again) == found


@synced_stories
async def test_the_power_may_go_again_during_recovery(lives):
    async for n, disk, teller in crash_points(lives, seed=7, every=31 * SPARSE):
        for state in disk.crash_states(2, Random(n)):
            counted = state.snapshot()
            await teller.open(counted)
            for k in range(1, counted.operations + 1, 3):
                recovering = state.snapshot()
                recovering.lose_power_after(k)
                with until_power_is_lost(recovering):
                    await teller.open(recovering)
                await check_states(recovering, teller, f"operation {n}, then {k} of recovery", limit=3)


@synced_stories
async def test_what_is_appended_after_recovery_survives_the_next_power_loss(lives):
    async for n, disk, teller in crash_points(lives, seed=11, every=37 * SPARSE):
        for state in disk.crash_states(2, Random(n)):
            survivor = teller.fork()
            await survivor.check(state, go_on=True)
            await check_next_life(state, survivor, stories.more, f"operation {n}", every=7, limit=3)


@synced_stories
async def test_a_killed_process_loses_nothing_that_was_written(lives):
    """kill -9 keeps the page cache, so acks=1 suffices there."""
    async for n, disk, teller in crash_points(lives, seed=2, every=5 * SPARSE):
        for ledger in teller.ledgers.values():
            ledger.promise(ledger.written_end)
        with telling(f"operation {n}"):
            await teller.check(disk.snapshot())
