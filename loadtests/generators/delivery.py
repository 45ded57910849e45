"""From produce to delivery: records are sent on a schedule, a consumer long-polls, and each record's delivery is timed.

Every record carries its number. Its time runs from its scheduled time to its arrival at the consumer. Every number must
arrive exactly once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from loadtests.generators.bodies import NDJSON_TYPE
from loadtests.generators.http1 import Connection, connector, request_bytes
from loadtests.generators.open_loop import GRACE_S, OpenLoop, OpenOutcome, Schedule
from loadtests.generators.records import numbered_value, numbers_in

WAIT_MS = 2000


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The producers' outcome, and the delivery time of each record that arrived, in microseconds."""

    produced: OpenOutcome
    delivered_us: list[int]
    polls: int
    what_went_wrong: str = ""


def numbered_request(host: str, target: str, number: int) -> bytes:
    """Returns a produce request of one record with its number."""
    return request_bytes("POST", host, target, numbered_value(number) + b"\n", (("Content-Type", NDJSON_TYPE),))


class Arrivals:
    """The records that a consumer got, each with its time, and what was wrong with them."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.times: dict[int, float] = {}
        self.polls = 0
        self.problems: list[str] = []

    @property
    def is_complete(self) -> bool:
        return len(self.times) >= self._expected

    def take(self, numbers: list[int]) -> None:
        now = time.perf_counter()
        for number in numbers:
            if number in self.times:
                self.problems.append(f"record {number} arrived twice")
            self.times[number] = now


async def deliver_all(
    loop: OpenLoop[Any], arrivals: Arrivals, consume: Coroutine[Any, Any, None], schedule: Schedule
) -> DeliveryOutcome:
    """Runs the loop while a consumer reads what it produces. The consumer ends when all has arrived."""
    consuming = asyncio.create_task(consume)
    try:
        produced = await loop.run()
        await asyncio.wait([consuming], timeout=GRACE_S)
        if consuming.done() and (error := consuming.exception()) is not None:
            arrivals.problems.append(f"the consumer failed: {error!r}")
    finally:
        consuming.cancel()
    missing = schedule.count - produced.bad - len(arrivals.times)
    if missing > 0:
        arrivals.problems.append(f"{missing} records had not arrived {GRACE_S:.0f} s after the last answer")
    delivered_us = [round((moment - loop.scheduled_at(n)) * 1e6) for n, moment in arrivals.times.items()]
    return DeliveryOutcome(produced, delivered_us, arrivals.polls, "; ".join(arrivals.problems[:3]))


async def deliver(url: str, topic: str, acks: str, schedule: Schedule) -> DeliveryOutcome:
    """Produces on a schedule into partition 0 of an empty topic while long-polling it."""
    parts = urlsplit(url)
    target = f"/v1/topics/{topic}/partitions/0/records"
    template = numbered_request(parts.netloc, f"{target}?acks={acks}", 0)
    before, _, after = template.rpartition(b"%010d" % 0)
    loop = OpenLoop(connector(url), schedule, lambda number: before + b"%010d" % number + after)
    arrivals = Arrivals(schedule.count)
    connection = await connector(url)()
    try:
        return await deliver_all(loop, arrivals, _long_poll(connection, parts.netloc, target, arrivals), schedule)
    finally:
        connection.close()


async def _long_poll(connection: Connection, host: str, path: str, arrivals: Arrivals) -> None:
    """Long-polls one partition until every number has arrived."""
    offset = 0
    while not arrivals.is_complete:
        target = f"{path}?offset={offset}&wait_ms={WAIT_MS}&ndjson=values"
        answer = await connection.send(request_bytes("GET", host, target, b"", (("Accept", NDJSON_TYPE),)))
        if not answer.is_good:
            arrivals.problems.append(f"a long poll got {answer.error}")
            return
        arrivals.polls += 1
        numbers = numbers_in(answer.body)
        arrivals.take(numbers)
        if answer.next_offset - offset != len(numbers):
            arrivals.problems.append(
                f"{len(numbers)} records came between the offsets {offset} and {answer.next_offset}"
            )
        offset = answer.next_offset
