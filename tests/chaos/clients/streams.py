"""Consumers of event streams that behave as a browser's EventSource: they keep a position and reconnect by themselves.

Some read all partitions of the topic and stay with one node. Others read one partition and change nodes every few
seconds, as behind a load balancer. An EventSource stops permanently if a reconnection is answered with anything but
200, and so do these. They retry a rejected first connection, as an application would. tests/chaos/judge.py judges the
results.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import orjson

from tests.chaos.clients.node_client import CONNECT_S, now
from tests.checking.history import History, Polled

RETRY_S = 0.5
SILENT_S = 40.0  # more than two heartbeats: the connection counts as dead
ROAM_S = (1.0, 4.0)
CAUGHT_UP_S = 60.0  # after recovery; a stream that has not resumed by then counts as stuck


@dataclass
class Streamed:
    """The result of one stream. `positions`: the next offset of each partition."""

    name: str
    topic: str
    positions: dict[int, int] = field(default_factory=dict)
    events: int = 0
    ended: str = ""  # why it stopped permanently
    wrong_ids: list[str] = field(default_factory=list)


class Stream:
    """`partition` None reads all of the topic. `roams`: switches nodes every few seconds, not only after a failure."""

    def __init__(
        self,
        streamed: Streamed,
        partitions: int,
        partition: int | None,
        urls: Sequence[str],
        first: int,
        history: History,
        codes: Counter[str],
        *,
        roams: bool,
    ) -> None:
        self._streamed = streamed
        self._numbers = list(range(partitions)) if partition is None else [partition]
        where = "" if partition is None else f"/partitions/{partition}"
        self._path = f"/v1/topics/{streamed.topic}{where}/records?from=earliest"
        self._urls, self._at, self._roams = urls, first % len(urls), roams
        self._history, self._codes = history, codes
        self._random = random.Random(streamed.name)
        self._last_id = ""
        streamed.positions = dict.fromkeys(self._numbers, 0)

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Read until the task is cancelled or the stream stops permanently."""
        while not self._streamed.ended:
            life_s = self._random.uniform(*ROAM_S) if self._roams else None
            try:
                async with asyncio.timeout(life_s):
                    await self._connect(session)
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass  # an EventSource reconnects after a network error
            if self._roams:
                self._at = (self._at + 1) % len(self._urls)
            await asyncio.sleep(RETRY_S * self._random.random())

    async def _connect(self, session: aiohttp.ClientSession) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        async with session.get(self._urls[self._at] + self._path, headers=headers) as answer:
            if answer.status != 200:
                await self._stop_refused(answer)
                return
            rest = b""
            async for piece in answer.content.iter_any():
                *events, rest = (rest + piece).split(b"\n\n")
                self._take(events)

    async def _stop_refused(self, answer: aiohttp.ClientResponse) -> None:
        problem = orjson.loads(await answer.read() or b"{}")
        what = f"{answer.status} {problem.get('code', '')}"
        self._codes[f"stream: {what}"] += 1
        if self._last_id:
            self._streamed.ended = f"{what} at {self._last_id} by node {self._at + 1}: {problem.get('detail', '')}"

    def _take(self, events: Sequence[bytes]) -> None:
        """Record the events of one read as one poll for the judges."""
        records_taken: dict[int, list[tuple[int, str]]] = {}
        asked = dict(self._streamed.positions)
        for event in events:
            fields = _fields_of(event)
            if fields.get("event") == "problem":
                self._problem(orjson.loads(fields["data"]))
                continue
            if "data" in fields:
                record = orjson.loads(fields["data"])
                number = record.get("partition", self._numbers[0])
                records_taken.setdefault(number, []).append((record["offset"], record["value"]))
                self._streamed.positions[number] = record["offset"] + 1
                self._streamed.events += 1
            if "id" in fields:
                self._last_id = fields["id"]
                self._check_id()
        for number, records in records_taken.items():
            partition, end = f"{self._streamed.topic}/{number}", records[-1][0] + 1
            at = self._streamed.name, partition, self._at + 1, asked[number]
            self._history.polled.append(Polled(*at, tuple(records), 0, end, now()))

    def _check_id(self) -> None:
        """Check that the id is the position after the last event."""
        expected = "-".join(str(self._streamed.positions[number]) for number in self._numbers)
        shown = self._last_id.rpartition(".")[2]  # behind the identity of the topic
        if shown != expected:
            self._streamed.wrong_ids.append(f"got {self._last_id} instead of {expected}")
            positions = zip(self._numbers, map(int, shown.split("-")), strict=True)
            self._streamed.positions.update(positions)

    def _problem(self, problem: Mapping[str, object]) -> None:
        """Record a problem event. After a retryable one the server closes the connection and the stream reconnects."""
        self._codes[f"stream: event {problem['code']}"] += 1
        if not problem["retryable"]:
            self._streamed.ended = f"event {problem['code']} at {self._last_id}: {problem['detail']}"


class Streams:
    """All event streams of a run."""

    def __init__(self, topic: str, partitions: int, urls: list[str], history: History, codes: Counter[str]) -> None:
        self.streamed: list[Streamed] = []
        self._streams: list[Stream] = []
        for first in range(len(urls)):
            self._add(f"stream-topic-{first + 1}", topic, partitions, None, urls, first, history, codes, roams=False)
        for number in range(partitions):
            self._add(f"stream-{number}", topic, partitions, number, urls, number, history, codes, roams=True)

    def _add(
        self,
        name: str,
        topic: str,
        partitions: int,
        partition: int | None,
        urls: list[str],
        first: int,
        history: History,
        codes: Counter[str],
        *,
        roams: bool,
    ) -> None:
        streamed = Streamed(name, topic)
        self.streamed.append(streamed)
        self._streams.append(Stream(streamed, partitions, partition, urls, first, history, codes, roams=roams))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            tasks = [asyncio.create_task(stream.run(session)) for stream in self._streams]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in tasks:
                if not task.cancelled() and (error := task.exception()):
                    raise error

    async def catch_up(self, ends: Mapping[int, int]) -> None:
        """Return when every running stream has reached the ends of its partitions, or after a timeout."""
        deadline = now() + CAUGHT_UP_S
        while now() < deadline and any(self._is_behind(stream, ends) for stream in self.streamed):
            await asyncio.sleep(0.1)

    @staticmethod
    def _is_behind(stream: Streamed, ends: Mapping[int, int]) -> bool:
        return not stream.ended and any(position < ends[number] for number, position in stream.positions.items())


def _fields_of(event: bytes) -> dict[str, str]:
    """Return the fields of an event; a comment has none. Every event of the service has one line of data."""
    lines = (line.partition(":") for line in event.decode().split("\n") if line and not line.startswith(":"))
    return {name: value.removeprefix(" ") for name, _, value in lines}
