"""Producers exactly as docs/produce.md says, as short as possible. A reference, not a client library.

`plain` has neither key nor sequence, so it may store a record twice; it shows the value of the other two.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import aiohttp
import orjson

from tests.checking.history import History, Produced, outcome_of

ATTEMPT_S = 10.0
REPEATED = frozenset({408, 429, *range(500, 600)})
NDJSON = {"Content-Type": "application/x-ndjson"}


class Job(NamedTuple):
    """Store these values in one partition, with this many a batch. `name` is the producer's in the history, and its
    seed.
    """

    name: str
    url: str
    topic: str
    partition: int
    values: Sequence[str]
    batch_lines: int

    @property
    def path(self) -> str:
        return f"{self.url}/v1/topics/{self.topic}/partitions/{self.partition}/records"

    @property
    def batches(self) -> list[Sequence[str]]:
        return [self.values[n : n + self.batch_lines] for n in range(0, len(self.values), self.batch_lines)]


class Answer(NamedTuple):
    """`status` 0 means no answer."""

    status: int
    json: Any


class Refused(Exception):
    """Permanently rejected, where the test expects that everything is stored."""


class Caller:
    def __init__(self, session: aiohttp.ClientSession, seed: str) -> None:
        self._session = session
        self._random = random.Random(seed)

    async def attempt(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            async with self._session.post(url, data=body, headers=headers) as response:
                return Answer(response.status, orjson.loads(await response.read()))
        except (aiohttp.ClientError, OSError, TimeoutError):
            return Answer(0, {})

    async def pause(self, tries: int) -> None:
        await asyncio.sleep(min(0.01 * 2**tries, 0.25) * self._random.uniform(0.5, 1.5))

    async def send_until_answered(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        tries = 0
        while (answer := await self.attempt(url, body, headers)).status in {0, *REPEATED}:
            await self.pause(tries)
            tries += 1
        return answer


def body_of(values: Sequence[str]) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in values)


def settle(produced: Produced, answer: Answer) -> None:
    produced.outcome = outcome_of(answer.status, answer.json)
    if produced.outcome != "ok":
        raise Refused(f"{produced.client}: {answer}")
    produced.acknowledge(answer.json["results"][0]["base_offset"] if answer.status == 200 else None, monotonic())


async def plain(job: Job, history: History) -> None:
    """At least once: repeat each batch until it is acknowledged, then send the next."""
    async with session() as connections:
        caller = Caller(connections, job.name)
        for batch in job.batches:
            produced = history.begin(job.name, batch, job.partition, monotonic())
            settle(produced, await caller.send_until_answered(job.path, body_of(batch), NDJSON))


async def keyed(job: Job, history: History) -> None:
    """An Idempotency-Key for each batch, one at a time."""
    async with session() as connections:
        caller = Caller(connections, job.name)
        for number, batch in enumerate(job.batches):
            headers = {**NDJSON, "Idempotency-Key": f"{job.topic}-{job.name}-{number}"}
            produced = history.begin(job.name, batch, job.partition, monotonic())
            settle(produced, await caller.send_until_answered(job.path, body_of(batch), headers))


async def sequenced(job: Job, history: History, in_flight_max: int = 5) -> None:
    """Producer ids: the first batch alone, then several at once."""
    async with session() as connections:
        caller = Caller(connections, job.name)
        answer = await caller.send_until_answered(f"{job.url}/v1/producers", b"", {})
        if answer.status != 201:
            raise Refused(f"{job.name}: {answer}")
        producer = _Sequenced(job, history, caller, answer.json)
        slots, tasks, sequence = asyncio.Semaphore(in_flight_max), set(), 0
        for batch in job.batches:
            await slots.acquire()
            producer.unanswered.append(sequence)
            task = asyncio.create_task(producer.store(sequence, batch))
            task.add_done_callback(lambda _: slots.release())
            tasks.add(task)
            if sequence == 0:
                await task
            sequence += len(batch)
            await asyncio.sleep(0)  # so that sends start in order
        await asyncio.gather(*tasks)


class _Sequenced:
    def __init__(self, job: Job, history: History, caller: Caller, producer: Mapping[str, int]) -> None:
        self._job, self._history, self._caller = job, history, caller
        self._headers = {
            **NDJSON,
            "Producer-Id": str(producer["producer_id"]),
            "Producer-Epoch": str(producer["producer_epoch"]),
        }
        self.unanswered: list[int] = []

    async def store(self, sequence: int, batch: Sequence[str]) -> None:
        headers = {**self._headers, "Producer-Seq": str(sequence)}
        produced = self._history.begin(self._job.name, batch, self._job.partition, monotonic())
        while True:
            is_oldest = self.unanswered[0] == sequence
            answer = await self._caller.send_until_answered(self._job.path, body_of(batch), headers)
            if answer.json.get("code") != "sequence_gap" or is_oldest:
                break
            await self._caller.pause(0)
        settle(produced, answer)
        self.unanswered.remove(sequence)


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ATTEMPT_S))
