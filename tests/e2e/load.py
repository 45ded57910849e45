"""Running clients and a ledger of their answers, to be compared with a node's records after a stop or a kill.

Each client is one task that sends to one partition and waits for each answer, so its values are in the log in the order
of its sequence. Clients do not retry: an unacknowledged record may be stored once or not at all. With keys (`is_keyed`)
the node may retry by itself, when leadership moves between append and acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

NDJSON = {"Content-Type": "application/x-ndjson"}
LINES_PER_REQUEST = 5


@dataclass
class Ledger:
    """The sent and the acknowledged values. A value is `[client, sequence]`."""

    acknowledged: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # by partition and offset
    acks_of: Counter[str] = field(default_factory=Counter)  # requests acknowledged, by acks
    rejected: Counter[str] = field(default_factory=Counter)  # problems by code
    breaks: Counter[str] = field(default_factory=Counter)  # requests without an answer, by the type of the exception


@dataclass(frozen=True)
class Log:
    """All records of a topic: the values of each partition, from offset 0."""

    partitions: list[list[list[int]]]

    def assert_holds(self, ledger: Ledger) -> None:
        """Assert that every acknowledged record is at its offset, none is stored twice, and each client's are in
        order.
        """
        missing = {
            (partition, offset): value
            for (partition, offset), value in ledger.acknowledged.items()
            if self.partitions[partition][offset : offset + 1] != [value]
        }
        assert missing == {}, f"{len(missing)} acknowledged records are not at their offsets"
        everything = [tuple(value) for values in self.partitions for value in values]
        assert len(everything) == len(set(everything)), "a record is there twice"
        for values in self.partitions:
            last_of: dict[int, int] = {}
            for client, sequence in values:
                assert last_of.get(client, -1) < sequence, f"client {client}: {sequence} is out of order"
                last_of[client] = sequence


class Load:
    """Clients of one topic."""

    def __init__(
        self,
        url: str,
        topic: str,
        partitions: int,
        clients: int,
        first_client: int = 0,
        acks: tuple[str, ...] = ("all", "1"),
        is_keyed: bool = False,
    ) -> None:
        self.ledger = Ledger()
        self._path = f"{url}/v1/topics/{topic}/partitions"
        self._partitions = partitions
        self._clients = range(first_client, first_client + clients)
        self._acks = acks
        self._is_keyed = is_keyed
        self._is_ending = False

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[Ledger]:
        """Run the clients until the context or their node ends."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            tasks = [asyncio.create_task(self._send_on(session, client)) for client in self._clients]
            try:
                yield self.ledger
            finally:
                self._is_ending = True
                await asyncio.gather(*tasks)

    async def acknowledgements(self, count: int) -> None:
        """Wait until this many requests have been acknowledged in total."""
        async with asyncio.timeout(60):
            while self.ledger.acks_of.total() < count:
                await asyncio.sleep(0.005)

    async def _send_on(self, session: aiohttp.ClientSession, client: int) -> None:
        """Send batches with each of the acks in turn. A failed connection means that the node has ended."""
        partition, sequence = client % self._partitions, 0
        while not self._is_ending:
            acks = self._acks[sequence // LINES_PER_REQUEST % len(self._acks)]
            values = [[client, sequence + n] for n in range(LINES_PER_REQUEST)]
            sequence += LINES_PER_REQUEST
            url = f"{self._path}/{partition}/records?acks={acks}"
            headers = NDJSON | ({"Idempotency-Key": f"{client}-{sequence}"} if self._is_keyed else {})
            try:
                async with session.post(url, data=b"\n".join(map(orjson.dumps, values)), headers=headers) as response:
                    answer = orjson.loads(await response.read())
            except aiohttp.ClientConnectorError:
                return
            except (aiohttp.ClientError, OSError) as error:
                self.ledger.breaks[type(error).__name__] += 1
                continue
            if response.status == 200:
                (result,) = answer["results"]
                self._note(partition, result["base_offset"], values)
                self.ledger.acks_of[acks] += 1
            else:
                self.ledger.rejected[answer["code"]] += 1
                await asyncio.sleep(float(response.headers.get("Retry-After", 0)))

    def _note(self, partition: int, base_offset: int, values: list[list[int]]) -> None:
        for n, value in enumerate(values):
            assert (partition, base_offset + n) not in self.ledger.acknowledged, "an offset was given out twice"
            self.ledger.acknowledged[partition, base_offset + n] = value


async def create(url: str, topic: str, partitions: int, **config: Any) -> None:
    async with aiohttp.ClientSession() as session:
        wish = {"partitions": partitions, "config": config}
        async with session.put(f"{url}/v1/topics/{topic}", json=wish) as response:
            assert response.status == 201, await response.text()


async def read_log(url: str, topic: str, partitions: int) -> Log:
    """Return every record of a topic; asserts that offsets are gapless from 0."""
    async with aiohttp.ClientSession() as session:
        path = f"{url}/v1/topics/{topic}/partitions"
        return Log([await _read_partition(session, f"{path}/{partition}") for partition in range(partitions)])


async def metric(url: str, name: str) -> float:
    """Return the sum over all shards."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + " ", name + "{"))]
    assert found, f"no metric is called {name}"
    return sum(found)


async def _read_partition(session: aiohttp.ClientSession, path: str) -> list[list[int]]:
    values: list[list[int]] = []
    while True:
        async with session.get(f"{path}/records?offset={len(values)}&max_bytes=8000000") as response:
            assert response.status == 200, await response.text()
            document = orjson.loads(await response.read())
        for record in document["records"]:
            assert record["offset"] == len(values), "offsets have a gap"
            values.append(record["value"])
        if not document["records"]:
            return values
