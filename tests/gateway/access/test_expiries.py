"""Open waits are checked again at each time at which a credential ends."""

import asyncio

from engine.runtime.clock import SystemClock
from gateway.access import expiries
from gateway.access.expiries import Expiries
from tests.virtual_time import run_in_virtual_time


class LoopClock(SystemClock):
    """A wall clock that goes with the loop's, from 1,000,000 ms on."""

    def now_ms(self):
        return 1_000_000 + int(1000 * asyncio.get_running_loop().time())


def checks(*added, until_s=10.0, clock=None):
    """Return the seconds at which waits are checked, when these times are added at 0 s."""
    at = []

    async def story():
        loop = asyncio.get_running_loop()
        ends = Expiries(clock or LoopClock(), lambda: at.append(round(loop.time(), 2)))
        for time_s in added:
            ends.add(1_000_000 + int(1000 * time_s))
        await asyncio.sleep(until_s)

    run_in_virtual_time(story())
    return at


def test_each_time_is_followed_by_one_check():
    assert checks(3, 1, 2, 1, 3) == [1, 2, 3]


def test_what_has_ended_is_not_waited_for():
    assert checks(0, -5) == []


def test_a_clock_that_is_set_is_looked_at_every_hour():
    class Still(SystemClock):
        def now_ms(self):
            return 1_000_000

    assert checks(7200, until_s=8000, clock=Still()) == [3600, 7200]


def test_the_number_of_times_has_a_bound(monkeypatch):
    monkeypatch.setattr(expiries, "TIMES_MAX", 2)
    assert checks(1, 2, 3) == [1, 2]
