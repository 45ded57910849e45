"""Producers of four kinds. Each writes its history, has one batch in flight, and sends each value in one batch only.

1. plain: one attempt a batch, since the server cannot recognise a repeat. 2. sequenced and 3. keyed: repeat the batch
  at any node until it is answered. 4. library: the client of this repository, with several batches in flight.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

import orjson

from penstock import Client, ClientOptions
from penstock.errors import ClientError
from tests.chaos.clients.node_client import ACK_TIMEOUT_MS, NOT_SENT, Answer, NodeClient, now
from tests.checking.history import History, Produced, outcome_of

GIVE_UP_S = 30.0
REPEATED = frozenset({0, 408, 429, *range(500, 600)})
NDJSON = {"Content-Type": "application/x-ndjson"}


class Producer:
    """`codes` counts the outcomes of attempts; the producers of a run share it."""

    def __init__(
        self,
        name: str,
        topic: str,
        partition: int,
        acks: str,
        client: NodeClient,
        history: History,
        codes: Counter[str],
    ) -> None:
        self.name, self.acks = name, acks
        self._partition_name = f"{topic}/{partition}"
        self._path = f"/v1/topics/{topic}/partitions/{partition}/records?acks={acks}&timeout_ms={ACK_TIMEOUT_MS}"
        self._client, self._history, self._codes = client, history, codes
        self._random = random.Random(name)
        self._number = 0

    async def run(self, stopping: asyncio.Event, every_s: float) -> None:
        while not stopping.is_set():
            self._number += 1
            values = tuple(f"{self.name}-{self._number}.{n}" for n in range(self._random.choice((1, 1, 2))))
            produced = Produced(self.name, self._partition_name, values, self.acks, now())
            self._history.produced.append(produced)
            await self._store(produced, b"".join(orjson.dumps(value) + b"\n" for value in values))
            await asyncio.sleep(every_s * self._random.uniform(0.5, 1.5))

    async def _store(self, produced: Produced, body: bytes) -> None:
        answer = await self._attempt(body, {})
        settle(produced, answer, certain(answer))

    async def _attempt(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        answer = await self._client.request("POST", self._path, body, {**NDJSON, **headers})
        if answer.status >= 300 or answer.status == 0:
            self._codes[f"{answer.status} {answer.code}"] += 1
            self._client.next_node()
        return answer


class Repeating(Producer):
    """Repeats a batch until it gets a final answer. A batch that every attempt definitely rejected was not stored."""

    async def _store(self, produced: Produced, body: bytes) -> None:
        is_maybe_stored, tries = False, 0
        headers = await self._headers(produced)
        while True:
            answer = await self._attempt(body, headers)
            outcome = certain(answer)
            is_maybe_stored |= outcome != "fail"
            if answer.status not in REPEATED or now() - produced.invoked_at > GIVE_UP_S:
                break
            await asyncio.sleep(min(0.02 * 2**tries, 0.3) * self._random.uniform(0.5, 1.5))
            tries += 1
        if outcome == "fail" and is_maybe_stored:
            outcome = "info"
        settle(produced, answer, outcome)
        self._after(produced)

    async def _headers(self, produced: Produced) -> Mapping[str, str]:
        raise NotImplementedError

    def _after(self, produced: Produced) -> None:
        pass


class Keyed(Repeating):
    async def _headers(self, produced: Produced) -> Mapping[str, str]:
        return {"Idempotency-Key": f"{self._partition_name}/{produced.values[0]}"}


class Sequenced(Repeating):
    """After a batch with an unknown result it starts over with a new producer id."""

    _producer: Mapping[str, str] | None = None
    _sequence = 0

    async def _headers(self, produced: Produced) -> Mapping[str, str]:
        while self._producer is None:
            answer = await self._client.request("POST", "/v1/producers", b"")
            if answer.status == 201:
                answered = answer.json
                self._producer = {
                    "Producer-Id": str(answered["producer_id"]),
                    "Producer-Epoch": str(answered["producer_epoch"]),
                }
                self._sequence = 0
            else:
                self._codes[f"producer id: {answer.status} {answer.code}"] += 1
                self._client.next_node()
                await asyncio.sleep(0.1)
        return {**self._producer, "Producer-Seq": str(self._sequence)}

    def _after(self, produced: Produced) -> None:
        if produced.outcome == "ok":
            self._sequence += len(produced.values)
        else:
            self._producer = None


class Library:
    """The Python client. Counts what it raises as an error that its user has to handle."""

    def __init__(self, name: str, topic: str, partition: int, urls: list[str], history: History) -> None:
        self.name, self._topic, self._partition, self._urls = name, topic, partition, urls
        self._history = history
        self.errors: Counter[str] = Counter()

    async def run(self, stopping: asyncio.Event, every_s: float) -> None:
        options = ClientOptions(linger_ms=2, request_timeout_ms=6_000, ack_timeout_ms=4_000)
        number, under_way = 0, set[asyncio.Task[None]]()
        async with Client(self._urls, options=options) as client, client.producer() as producer:
            while not stopping.is_set():
                number += 1
                value = f"{self.name}-{number}"
                produced = Produced(self.name, f"{self._topic}/{self._partition}", (value,), "all", now())
                self._history.produced.append(produced)
                delivery = await producer.send(self._topic, value, partition=self._partition)
                task = asyncio.create_task(self._record_outcome(produced, delivery))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(every_s)
            if under_way:
                await asyncio.wait(under_way, timeout=GIVE_UP_S)

    async def _record_outcome(self, produced: Produced, delivery: object) -> None:
        try:
            delivered = await delivery  # type: ignore[misc]
            produced.base_offset, produced.outcome, produced.code = delivered.offset, "ok", ""
        except ClientError as error:
            produced.outcome, produced.code = ("fail" if error.no_side_effects else "info"), error.code
            self.errors[f"client library: {error.code}"] += 1
        produced.done_at = now()


KINDS: dict[str, type[Producer]] = {"plain": Producer, "sequenced": Sequenced, "keyed": Keyed}


def certain(answer: Answer) -> str:
    """Return the outcome of one attempt: a client that could not connect has sent nothing."""
    if answer.code == NOT_SENT:
        return "fail"
    return outcome_of(answer.status, answer.json) if answer.status else "info"


def settle(produced: Produced, answer: Answer, outcome: str) -> None:
    """Note the result. A repeat whose offset the node no longer knows has an unknown offset."""
    offset = answer.json["results"][0]["base_offset"] if answer.status == 200 else None
    produced.base_offset = -1 if offset is None else offset
    produced.done_at, produced.outcome, produced.code = now(), outcome, answer.code
