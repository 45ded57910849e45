"""From produce to delivery: records are sent on a schedule, a consumer long-polls, and each record's delivery is timed.

Every record carries its number. Its time runs from its scheduled time to its arrival at the consumer. Every number must
arrive exactly once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
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


async def deliver(url: str, topic: str, acks: str, schedule: Schedule) -> DeliveryOutcome:
    """Produce on a schedule into partition 0 of an empty topic while long-polling it."""
    parts = urlsplit(url)
    target = f"/v1/topics/{topic}/partitions/0/records"
    template = numbered_request(parts.netloc, f"{target}?acks={acks}", 0)
    before, _, after = template.rpartition(b"%010d" % 0)
    loop = OpenLoop(connector(url), schedule, lambda number: before + b"%010d" % number + after)
    consumer = _Consumer(parts.netloc, target, schedule.count)
    connection = await connector(url)()
    consuming = asyncio.create_task(consumer.run(connection))
    try:
        produced = await loop.run()
        await asyncio.wait([consuming], timeout=GRACE_S)
    finally:
        consuming.cancel()
        connection.close()
    missing = schedule.count - produced.bad - len(consumer.arrivals)
    if missing > 0:
        consumer.problems.append(f"{missing} records had not arrived {GRACE_S:.0f} s after the last answer")
    delivered_us = [round((moment - loop.scheduled_at(n)) * 1e6) for n, moment in consumer.arrivals.items()]
    return DeliveryOutcome(produced, delivered_us, consumer.polls, "; ".join(consumer.problems[:3]))


class _Consumer:
    """Long-polls one partition until every number has arrived."""

    def __init__(self, host: str, target: str, expected: int) -> None:
        self._host = host
        self._target = target
        self.expected = expected
        self._offset = 0
        self.arrivals: dict[int, float] = {}
        self.polls = 0
        self.problems: list[str] = []

    async def run(self, connection: Connection) -> None:
        while len(self.arrivals) < self.expected:
            target = f"{self._target}?offset={self._offset}&wait_ms={WAIT_MS}&ndjson=values"
            answer = await connection.send(request_bytes("GET", self._host, target, b"", (("Accept", NDJSON_TYPE),)))
            if not answer.is_good:
                self.problems.append(f"a long poll got {answer.status}: {answer.body[:200].decode(errors='replace')}")
                return
            self.polls += 1
            self._take(numbers_in(answer.body), answer.next_offset)

    def _take(self, numbers: list[int], next_offset: int) -> None:
        now = time.perf_counter()
        for number in numbers:
            if number in self.arrivals:
                self.problems.append(f"record {number} arrived twice")
            self.arrivals[number] = now
        if next_offset - self._offset != len(numbers):
            self.problems.append(f"{len(numbers)} records came between the offsets {self._offset} and {next_offset}")
        self._offset = next_offset
