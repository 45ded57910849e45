"""Shared state of the waits of one event loop: their deadlines, their two wake-up queues, and the turns of the loop.

One of each for a loop and not for a partition, because 10,000 waits may be on 10,000 partitions.

`Wakeups` ends at most 64 waits in one iteration of the loop, so that thousands do not block it: each wake-up is
followed by the work of its waiter, usually a response. `Deadlines` keeps buckets of 10 ms under a single timer: a wait
that ends in time costs two dictionary operations and no timer of its own. `LoopTurns` shares the time of the loop
between clients and their owners; a process whose clients have one owner pays nothing for it. None knows the waiters.
Invariants: wake-ups run in the order of their requests, and while some are pending, a slice is scheduled; a deadline
never passes early, and at most one bucket late plus the time that other wake-ups of the same bucket take; the timer is
set for the earliest bucket that may have waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, ref

from engine.runtime.fair_shares import FairShares
from engine.runtime.rotation import Rotation

T = TypeVar("T")

SLICE = 64  # a response takes about 0.2 ms: together 13 of the 20 ms that may block the loop


class Wakeups:
    """One queue of wake-ups. A wait that must not be behind others has its own queue."""

    def __init__(self) -> None:
        self.slices = 0
        self._woken = 0  # since the last slice
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()

    def __repr__(self) -> str:
        return f"Wakeups(waiting={len(self._waiting)}, slices={self.slices})"

    def __len__(self) -> int:
        return len(self._waiting)

    def wake(self, action: Callable[[Any], None], subject: Any) -> None:
        """Calls `action(subject)`: now, or in a later iteration of the loop after 64 wake-ups since the last slice."""
        if self._woken == SLICE:
            self._waiting.append((action, subject))
            return
        self._woken += 1
        if self._woken == SLICE:
            asyncio.get_running_loop().call_soon(self._next_slice)
        action(subject)

    def wake_all(self, action: Callable[[T], None], subjects: Sequence[T]) -> None:
        """Wakes many in their order, as `wake` does."""
        room = SLICE - self._woken
        for subject in subjects[:room]:
            self.wake(action, subject)
        self._waiting.extend((action, subject) for subject in subjects[room:])

    def _next_slice(self) -> None:
        self.slices += 1
        self._woken = min(SLICE, len(self._waiting))
        if self._woken == SLICE:
            asyncio.get_running_loop().call_soon(self._next_slice)
        for _ in range(self._woken):
            action, subject = self._waiting.popleft()
            action(subject)


BUCKET_S = 0.01
FAR_S = 10.0  # a deadline further away than this is up to FAR_BUCKETS buckets late: 1 % of the wait
FAR_BUCKETS = 10  # so that produces with a timeout of 30 s keep 1,200 buckets and not 3,000

Bucket = dict[Any, Callable[[Any], None]]  # a waiter, and its callback at the deadline


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wakeups: Wakeups) -> None:
        self.timers_set = 0
        self._loop = ref(loop)
        self._wakeups = wakeups
        self._buckets: dict[int, Bucket] = {}  # by tick: a multiple of BUCKET_S of the loop's clock
        self._ticks: list[int] = []  # a heap of the same ticks
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def __repr__(self) -> str:
        return f"Deadlines(waiting={len(self)}, buckets={len(self._buckets)})"

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def put(self, deadline: float, subject: Any, on_deadline: Callable[[Any], None]) -> Bucket:
        """Calls `on_deadline(subject)` once the loop's clock has reached the deadline.

        `pop(subject, None)` on the returned bucket cancels it.
        """
        loop = self._loop()
        assert loop is not None, "a deadline is put from its loop"
        tick = int(deadline / BUCKET_S) + 1
        if deadline - loop.time() > FAR_S:
            tick += -tick % FAR_BUCKETS
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if self._timer is None or tick < self._timer_tick:
                self._set_timer(loop, tick)
        bucket[subject] = on_deadline
        return bucket

    async def wait_until(self, deadline: float, future: asyncio.Future[T]) -> T:
        """Waits for a future of our own until a time of the loop's clock. Raises TimeoutError.

        At the deadline the future ends with that error; code that sets a result must check that it is not done.
        """
        if future.done():
            return future.result()
        bucket = self.put(deadline, future, expire)
        try:
            return await future
        finally:
            bucket.pop(future, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.timers_set += 1
        self._timer_tick = tick
        self._timer = loop.call_at(tick * BUCKET_S, self._on_timer)

    def _on_timer(self) -> None:
        """Ends due waits. A loop may fire up to a millisecond early: then the timer is set again."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._ticks and (self._ticks[0] * BUCKET_S <= now or not self._buckets[self._ticks[0]]):
            bucket = self._buckets.pop(heappop(self._ticks))
            for subject in list(bucket):  # what is called may cancel others of the bucket
                if (on_deadline := bucket.pop(subject, None)) is not None:
                    self._wakeups.wake(on_deadline, subject)
        if self._ticks:
            self._set_timer(loop, self._ticks[0])


def expire(future: asyncio.Future[Any]) -> None:
    """Ends a future with a TimeoutError, at its deadline."""
    if not future.done():
        future.set_exception(TimeoutError())


TURN_S = 0.005  # with a last piece of some milliseconds less than the 20 ms that may block the loop
PIECES_MAX = 16  # that begin in one turn without a look at the clock in between; 1 after a turn that was too long
LOOK_S = 0.01  # between two looks at how long a turn takes, while clients of several owners send
LONG_S = 0.002  # a turn that takes longer delays other owners
WATCHED_S = 1.0  # for which turns are watched after the last one that was long, or that left work for later

Work = Callable[[], object]

# the client whose work a task does. A number: a long-lived task that inherits it keeps nothing else alive
client_key: ContextVar[int] = ContextVar("client_key", default=0)


class LoopTurns:
    """Shares the time of the loop between clients: queued work goes on in turns of the loop, client by client.

    The next piece is that of the next client, so that a client with a thousand pieces delays another one by a few of
    them. A client without queued work does not wait while the turn has time, and its owner a share of it. Work that has
    begun is not stopped: a caller divides it into pieces of a few milliseconds. Invariants: the work of one client
    begins in the order in which it was queued; while work is queued, a turn is scheduled, and some of it begins in each
    or in the next one. `now_s` is a monotonic clock, in seconds; `look_at` is of the clock of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._loop = ref(loop)
        self._now_s = now_s
        self.is_queued = False  # some client waits
        self.is_counted = False  # the time of the current turn: it has work that takes time
        self._ends_at = 0.0
        self._pieces = 1
        self._called = 0  # in the current turn, without the queue
        self._woken: set[int] = set()  # clients whose waits ended in the last turn; they go on in this one
        self._owners: dict[int, Hashable] = {}  # of clients
        self._clients: Counter[Hashable] = Counter()  # by owner; none is 0
        self._queue: Rotation[Work | asyncio.Future[None]] = Rotation(self.owner_of)
        self.look_at = inf  # when a client that sends is to call `look`
        self.is_watched = False  # turns are long, and owners have shares of them
        self._watched_until = 0.0
        self._shares = FairShares()

    def __repr__(self) -> str:
        return f"LoopTurns({self._queue})"

    def owner_of(self, client: int) -> Hashable:
        """Returns the owner of a client: that of `own`, or itself."""
        return self._owners.get(client, client)

    def own(self, client: int, owner: Hashable) -> None:
        """Notes the owner of a client, until `leave`."""
        if self._owners.get(client) != owner:
            self.leave(client)
            self._owners[client] = owner
            self._clients[owner] += 1
            if len(self._clients) > 1 and self.look_at == inf:
                self.look_at = 0.0

    def leave(self, client: int) -> None:
        """Forgets a client that has ended."""
        owner = self._owners.pop(client, None)
        if owner is not None:
            self._clients[owner] -= 1
            if not self._clients[owner]:
                del self._clients[owner]

    def clients_of(self, owner: Hashable) -> int:
        """Returns how many clients have this owner."""
        return self._clients[owner]

    def look(self, now_s: float) -> None:
        """Looks at how long a turn takes. `now_s` is of the clock of the loop."""
        self.look_at = now_s + LOOK_S if len(self._clients) > 1 or self.is_watched else inf
        loop = self._running_loop()
        loop.call_soon(lambda: loop.call_soon(self._end_look, self._now_s()))  # from one turn to the next

    def _end_look(self, began_s: float) -> None:
        now_s = self._now_s()
        if len(self._clients) > 1 and (now_s - began_s > LONG_S or self._queue.count):
            self.is_watched, self._watched_until = True, now_s + WATCHED_S
        elif self.is_watched and now_s >= self._watched_until:
            self.is_watched = False
            self._shares.forget()

    def is_over(self) -> bool:
        """Returns whether the time of this turn is used up. The first call of a turn begins to count it."""
        if self.is_counted:
            return self._now_s() >= self._ends_at
        self._begin()
        return False

    def must_wait(self, client: int) -> bool:
        """Returns whether a client's work is to `wait`.

        The turn is over, its owner has used its share of it, or earlier work of the client waits.
        """
        if self.is_over() or (self.is_queued and self.is_waiting(client)):
            return True
        return self.is_watched and self._shares.is_used_up(self.owner_of(client))

    def run(self, client: int, work: Work) -> None:
        """Runs work of a client now, and notes its time while turns are watched."""
        if not self.is_watched:
            work()
            return
        began_s = self._now_s()
        try:
            work()
        finally:
            now_s = self._now_s()
            self.spend(client, now_s, now_s - began_s)

    def spend(self, client: int, now_s: float, seconds: float) -> None:
        """Notes time of the loop that a client has used, until `now_s`."""
        self._shares.spend(self.owner_of(client), seconds, now_s)

    def is_waiting(self, client: int) -> bool:
        """Returns whether work of a client waits for its turn."""
        return client in self._queue or client in self._woken

    async def wait(self, client: int) -> None:
        """Waits for the client's turn."""
        waiter = self._running_loop().create_future()
        self._put(client, waiter)
        await waiter

    def call(self, client: int, work: Work) -> None:
        """Calls `work` in the next turn, or in a later one if there is much of it."""
        if not self.must_wait(client) and self._called < self._pieces:
            self._called += 1
            self._running_loop().call_soon(partial(self.run, client, work) if self.is_watched else work)
        else:
            self._put(client, work)

    def _put(self, client: int, work: Work | asyncio.Future[None]) -> None:
        self._queue.put(client, work)
        self.is_queued = True
        if not self.is_counted:
            self._begin()

    def _begin(self) -> None:
        """Begins to count the time of a turn, which ends with the next one."""
        self.is_counted = True
        self._ends_at = self._now_s() + TURN_S
        self._running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begins the next turn, with work that is queued."""
        self._called = 0
        self._woken.clear()
        self._pieces = 1 if self._now_s() >= self._ends_at else min(2 * self._pieces, PIECES_MAX)
        if self.is_watched:
            self._shares.next_turn()
        self.is_counted = self.is_queued = self._queue.count > 0
        if self.is_counted:
            self._ends_at = self._now_s() + TURN_S
            try:
                self._take()
                self.is_queued = bool(self._queue.count or self._woken)
            finally:  # behind the waits that have ended, whose work counts to this turn
                self._running_loop().call_soon(self._next)

    def _take(self) -> None:
        woken = 0
        while self._queue.count and woken < self._pieces and self._now_s() < self._ends_at:
            taken = self._queue.take(self._may_work)
            if taken is None:
                break
            client, work = taken
            if not isinstance(work, asyncio.Future):
                self.run(client, work)
            elif not work.done():  # else it was cancelled
                woken += 1
                self._woken.add(client)
                work.set_result(None)

    def _may_work(self, owner: Hashable) -> bool:
        return not (self.is_watched and self._shares.is_used_up(owner))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop()
        assert loop is not None, "turns are those of a loop that runs"
        return loop


class LoopWaits(NamedTuple):
    """Acknowledgements have their own queue: a produce never waits behind the long polls that it wakes."""

    deadlines: Deadlines
    polls: Wakeups
    acks: Wakeups
    turns: LoopTurns


_BY_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaits] = WeakKeyDictionary()
_last: list[tuple[asyncio.AbstractEventLoop, LoopWaits]] = []  # a cache: a process usually has one loop


def loop_waits(loop: asyncio.AbstractEventLoop | None = None) -> LoopWaits:
    """Returns the waits of a loop. By default the running one, which takes a system call to find."""
    loop = loop or asyncio.get_running_loop()
    if _last and _last[0][0] is loop:
        return _last[0][1]
    waits = _BY_LOOP.get(loop)
    if waits is None:
        polls = Wakeups()
        waits = _BY_LOOP[loop] = LoopWaits(Deadlines(loop, polls), polls, Wakeups(), LoopTurns(loop))
    _last[:] = [(loop, waits)]
    return waits


async def wait_turn() -> None:
    """Waits for a turn of the running loop that has time for the client of this task."""
    turns, client = loop_waits().turns, client_key.get()
    if turns.must_wait(client):
        await turns.wait(client)
