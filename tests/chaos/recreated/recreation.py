"""Creates a topic, deletes it and creates it again, twice, under load and under consumers of every kind.

The values of a topic name its id. A value is sent with a key, so that it is stored once, and never after the deletion
has been answered: a request names its topic by name only, so it would be right to store it in the new one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import orjson

from engine.format.paths import GROUPS_TOPIC
from tests.chaos.clients.final import final_polls
from tests.chaos.clients.node_client import NodeClient, now, open_session
from tests.chaos.machines.cluster import CLIENTS, HEALTHY_S, PARTITIONS, Cluster, NotHealthy
from tests.chaos.recreated import consumers
from tests.chaos.recreated.receiver import receiving
from tests.checking.recreation_history import Consumed, Delivered, Recreations, Written, value_of

WRITE_S = (1.0, 3.0, 0.6)  # the second topic grows beyond the positions in the first; the third stays below
WHILE_DELETED_S = 0.5  # the writers continue before and during the deletion
EVERY_S = 0.02
RECORDS_MAX = 4
CAUGHT_UP_S = 60.0
ACK_TIMEOUT_MS = 4_000
NDJSON = {"Content-Type": "application/x-ndjson"}

Mend = Callable[[], Awaitable[None]]
Break = Callable[[], Awaitable[Mend]]


class Recreation:
    def __init__(self, cluster: Cluster, topic: str, draw: random.Random) -> None:
        self.history = Recreations(topic)
        self._cluster, self._topic, self._draw = cluster, topic, draw
        self._numbers = [0] * PARTITIONS

    async def run(self, break_node: Break) -> None:
        """Fill `history`. `break_node` breaks a node before one of the deletions, and returns what mends it."""
        topic_id = await self._create()
        broken = self._draw.randrange(len(WRITE_S) - 1)
        async with self._consuming(topic_id):
            for number, write_s in enumerate(WRITE_S):
                async with self._writing(topic_id, is_settled=True):
                    await asyncio.sleep(write_s)
                if not await self._settle(topic_id):
                    break
                if number + 1 < len(WRITE_S):
                    topic_id = await self._recreate(topic_id, break_node if number == broken else None)
        await self._request("DELETE", f"/v1/subscriptions/{self._topic}.push", None)
        await self._delete()

    async def _recreate(self, topic_id: str, break_node: Break | None) -> str:
        """Delete the topic under load and create it; return its new id. Three replicas need the broken node."""
        async with self._writing(topic_id, is_settled=False):
            await asyncio.sleep(WHILE_DELETED_S)
            if break_node is None:
                await self._delete()
        if break_node is not None:  # no request of the writers is under way, which a paused node would store later
            mend = await break_node()
            await self._delete()
            await mend()
        return await self._create()

    async def _create(self) -> str:
        """Return the id. A node that has not seen the deletion yet describes the old topic."""
        request = {"partitions": PARTITIONS, "replication_factor": 3, "config": {"min_insync_replicas": 2}}
        deadline = now() + HEALTHY_S
        while now() < deadline:
            answer = await self._cluster.request("PUT", f"/v1/topics/{self._topic}", orjson.dumps(request))
            if answer is not None and answer["topic_id"] not in self.history.topic_ids:
                self.history.topic_ids.append(answer["topic_id"])
                return str(answer["topic_id"])
            await asyncio.sleep(0.1)
        raise NotHealthy(f"{self._topic} cannot be created")

    async def _delete(self) -> None:
        """Delete the topic at any node; 404 is the answer to a repeat."""
        await self._request("DELETE", f"/v1/topics/{self._topic}", None, 404)

    async def _request(self, method: str, path: str, request: object, *also: int) -> None:
        deadline = now() + HEALTHY_S
        body = None if request is None else orjson.dumps(request)
        async with open_session() as session:
            client = NodeClient(session, self._cluster.urls, self._draw.randrange(3))
            while True:
                answer = await client.request(method, path, body, consumers.JSON)
                if 200 <= answer.status < 300 or answer.status in also:
                    return
                if now() > deadline:
                    raise NotHealthy(f"{method} {path}: {answer.status} {answer.code}")
                client.next_node()
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def _consuming(self, topic_id: str) -> AsyncIterator[None]:
        """Run a consumer of each kind. One that ends by itself is an error."""
        topic, urls, made = self._topic, self._cluster.urls, self.history.consumers
        path = f"/v1/topics/{topic}"
        fetching = [Consumed(f"fetch of partition {n}", is_notified=True, partition=n) for n in range(PARTITIONS)]
        following, streaming = Consumed("client library", is_notified=True), Consumed("event stream", is_notified=True)
        single = [Consumed(f"event stream of partition {n}", is_notified=True, partition=n) for n in range(PARTITIONS)]
        member, caller = Consumed("member"), Consumed("share group", is_ordered=False)
        events, push = Consumed("member's event stream"), Consumed("push")
        await self._request("PUT", f"/v1/groups/{topic}.share", {"config": {"kind": "share"}})
        await self._cluster.wait_until_healthy(GROUPS_TOPIC)
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(open_session())
            hook = await stack.enter_async_context(receiving(push, self._cluster.network.address(CLIENTS)))
            request = {"url": hook, "topics": [topic], "start": "earliest", "delivery": {"order": "partition"}}
            request["delivery"] |= {"form": "batch", "batch_records_max": 50, "backoff_ms_max": 1000}  # type: ignore[operator]
            await self._request("PUT", f"/v1/subscriptions/{topic}.push", request)
            clients = [NodeClient(session, urls, n) for n in range(PARTITIONS + 2)]
            runs = [
                *(consumers.fetch(consumer, clients[n], topic, n, topic_id) for n, consumer in enumerate(fetching)),
                consumers.follow(following, urls, topic),
                consumers.member(member, clients[-1], f"{topic}.members", topic),
                consumers.caller(caller, clients[-2], f"{topic}.share", topic),
                consumers.stream(streaming, urls, f"{path}/records?from=earliest", None, 0),
                consumers.stream(events, urls, f"/v1/groups/{topic}.events/members/m/events?topics={topic}", None, 1),
                *(
                    consumers.stream(consumer, urls, f"{path}/partitions/{n}/records?from=earliest", n, n)
                    for n, consumer in enumerate(single)
                ),
            ]
            made += [*fetching, following, member, caller, streaming, events, *single, push]
            tasks = [asyncio.ensure_future(run) for run in runs]
            try:
                yield
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def _writing(self, topic_id: str, *, is_settled: bool) -> AsyncIterator[None]:
        """Write meanwhile. On exit no request is under way."""
        stopping = asyncio.Event()
        async with open_session() as session, asyncio.TaskGroup() as tasks:
            for partition in range(PARTITIONS):
                client = NodeClient(session, self._cluster.urls, partition)
                tasks.create_task(self._write(client, topic_id, partition, stopping, is_settled=is_settled))
            try:
                yield
            finally:
                stopping.set()

    async def _write(
        self, client: NodeClient, topic_id: str, partition: int, stopping: asyncio.Event, *, is_settled: bool
    ) -> None:
        path = f"/v1/topics/{self._topic}/partitions/{partition}/records?timeout_ms={ACK_TIMEOUT_MS}"
        while not stopping.is_set():
            first = self._numbers[partition]
            self._numbers[partition] += self._draw.randint(1, RECORDS_MAX)
            values = [value_of(topic_id, partition, n) for n in range(first, self._numbers[partition])]
            body = b"".join(orjson.dumps(value) + b"\n" for value in values)
            headers = {**NDJSON, "Idempotency-Key": values[0]}
            deadline = now() + HEALTHY_S
            while (answer := await client.request("POST", path, body, headers)).status != 200:
                if stopping.is_set() and (not is_settled or now() > deadline):
                    return
                client.next_node()
                await asyncio.sleep(0.1)
            if (offset := answer.json["results"][0]["base_offset"]) is not None:
                self.history.written += [
                    Written(topic_id, partition, offset + n, value, is_settled) for n, value in enumerate(values)
                ]
            await asyncio.sleep(EVERY_S)

    async def _settle(self, topic_id: str) -> bool:
        """Wait for the consumers, at most for a time; read the topic as a new reader does. Return whether they have all
        records.
        """
        await self._cluster.wait_until_healthy(self._topic, is_quiet=True)
        deadline = now() + CAUGHT_UP_S
        settled = {n: self.history.settled(n) for n in (None, *range(PARTITIONS))}
        while is_missing := any(settled[consumer.partition] - consumer.values for consumer in self.history.consumers):
            if now() > deadline:
                break
            await asyncio.sleep(0.1)
        async with open_session() as session:
            for partition in range(PARTITIONS):
                polls = await final_polls(NodeClient(session, self._cluster.urls, partition), self._topic, partition)
                records = (record for poll in polls for record in poll.records)
                self.history.read += [Delivered(topic_id, partition, *record) for record in records]
        return not is_missing
