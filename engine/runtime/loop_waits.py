"""What all waits of one event loop share: their deadlines, and the two lines in which they are woken.

One of each per loop and not per partition, because 10,000 waits may be on 10,000 partitions.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from weakref import WeakKeyDictionary

from engine.runtime.deadlines import Deadlines
from engine.runtime.wakeups import Wakeups


class LoopWaits(NamedTuple):
    """Acknowledgements have a line of their own: a produce never waits behind the long polls that it wakes."""

    deadlines: Deadlines
    polls: Wakeups
    acks: Wakeups


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaits] = WeakKeyDictionary()
_last: list[tuple[asyncio.AbstractEventLoop, LoopWaits]] = []  # asked for last: a process has one loop, as a rule


def loop_waits(loop: asyncio.AbstractEventLoop | None = None) -> LoopWaits:
    """Those of a loop. By default the running one, which takes a system call to find."""
    loop = loop or asyncio.get_running_loop()
    if _last and _last[0][0] is loop:
        return _last[0][1]
    found = _BY_LOOP.get(loop)
    if found is None:
        polls = Wakeups()
        found = _BY_LOOP[loop] = LoopWaits(Deadlines(loop, polls), polls, Wakeups())
    _last[:] = [(loop, found)]
    return found
