"""An open loop: requests are sent on a schedule, whether or not earlier ones have been answered.

Times count from the scheduled time, not from the time of sending. Otherwise a stalled server would also stop the clock
of all requests that are due meanwhile (coordinated omission). A thread keeps the schedule, because an event loop rounds
its timers up to a millisecond.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

CONNECTIONS = 64
GRACE_S = 10.0  # for requests in flight at the end of the schedule


@dataclass(frozen=True, slots=True)
class Schedule:
    """`count` requests, one every 1/rate seconds."""

    rate: float
    count: int

    def offset_s(self, number: int) -> float:
        return number / self.rate

    def due_by(self, elapsed_s: float) -> int:
        """Returns the number of requests due."""
        return min(self.count, int(elapsed_s * self.rate) + 1)


@dataclass(frozen=True, slots=True)
class OpenOutcome:
    """Microseconds from the schedule to the successful answer, and from the schedule to the sending."""

    good: int
    bad: int
    seconds: float
    durations_us: list[int]
    send_delays_us: list[int]
    generator_cpu_s: float
    what_went_wrong: str = ""


class Answered(Protocol):
    """An answer to one request. `error` is empty if it succeeded."""

    @property
    def error(self) -> str: ...


Request = TypeVar("Request", contravariant=True)


class Sender(Protocol[Request]):
    """A connection with at most one request in flight."""

    def send(self, request: Request, /) -> Awaitable[Answered]: ...

    def close(self) -> None: ...


class OpenLoop(Generic[Request]):
    """Sends due requests over a pool of connections. A request without a free connection waits, and its clock runs."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Sender[Request]]],
        schedule: Schedule,
        make_request: Callable[[int], Request],
    ) -> None:
        self._connect = connect
        self._schedule = schedule
        self._make_request = make_request
        self._loop = asyncio.get_running_loop()
        self._idle: list[Sender[Request]] = []
        self._late: deque[int] = deque()
        self._sent = 0
        self._finished = asyncio.Event()
        self._durations_us: list[int] = []
        self._send_delays_us: list[int] = []
        self._bad = 0
        self._what_went_wrong = ""
        self.started = 0.0

    async def run(self) -> OpenOutcome:
        """Runs the schedule. Raises TimeoutError if answers are missing after its end."""
        self._idle = [await self._connect() for _ in range(CONNECTIONS)]
        connections = list(self._idle)
        cpu_before, self.started = time.process_time(), time.perf_counter()
        threading.Thread(target=self._keep_time, name="schedule", daemon=True).start()
        try:
            async with asyncio.timeout(self._schedule.offset_s(self._schedule.count) + GRACE_S):
                await self._finished.wait()
        finally:
            for connection in connections:
                connection.close()
        return OpenOutcome(
            good=len(self._durations_us),
            bad=self._bad,
            seconds=time.perf_counter() - self.started,
            durations_us=self._durations_us,
            send_delays_us=self._send_delays_us,
            generator_cpu_s=time.process_time() - cpu_before,
            what_went_wrong=self._what_went_wrong,
        )

    def scheduled_at(self, number: int) -> float:
        return self.started + self._schedule.offset_s(number)

    def _keep_time(self) -> None:
        """Wakes the loop whenever a request is due. Runs in the thread."""
        due = 0
        while due < self._schedule.count:
            wait_s = self.scheduled_at(due) - time.perf_counter()
            if wait_s > 0:
                time.sleep(wait_s)
            due = self._schedule.due_by(time.perf_counter() - self.started)
            self._loop.call_soon_threadsafe(self._send_up_to, due)

    def _send_up_to(self, due: int) -> None:
        while self._sent < due:
            number, self._sent = self._sent, self._sent + 1
            if self._idle:
                self._send(self._idle.pop(), number)
            else:
                self._late.append(number)

    def _send(self, connection: Sender[Request], number: int) -> None:
        request = self._make_request(number)
        self._send_delays_us.append(round((time.perf_counter() - self.scheduled_at(number)) * 1e6))
        future = asyncio.ensure_future(connection.send(request))
        future.add_done_callback(lambda done: self._on_answer(connection, number, done))

    def _on_answer(self, connection: Sender[Request], number: int, done: asyncio.Future[Answered]) -> None:
        error = done.exception()
        if error is not None:
            self._note_failure(repr(error))
        elif answer_error := done.result().error:
            self._note_failure(answer_error)
        else:
            self._durations_us.append(round((time.perf_counter() - self.scheduled_at(number)) * 1e6))
        if error is None and self._late:
            self._send(connection, self._late.popleft())
        elif error is None:
            self._idle.append(connection)
        if len(self._durations_us) + self._bad == self._schedule.count:
            self._finished.set()

    def _note_failure(self, why: str) -> None:
        self._bad += 1
        self._what_went_wrong = why
