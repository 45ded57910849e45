"""A topic beside the run's, deleted and created under every kind of consumer while a node of it is down or paused.

The node comes back with the directory of the deleted topic. Each consumer has read the deleted topic to its end. The
judge wants each record of the new topic at each consumer, and afterwards none of the old one. Deliveries of push are
tested in tests/scenarios/push.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import orjson

from penstock import Client, ClientOptions, ProblemError
from penstock.errors import ClientError
from tests.chaos.machines.cluster import HEALTHY_S, PARTITIONS, Cluster

OLD, NEW = frozenset(range(30)), frozenset(range(100, 130))
PATIENT = ClientOptions(unreachable_timeout_ms=120_000, delivery_timeout_ms=120_000, backoff_ms_max=500)
RETRY_S = 0.2

Mend = Callable[[], Awaitable[None]]


@dataclass
class Reader:
    """One consumer: the values that it got from the deleted topic, and those since the creation of the new one."""

    name: str
    before: Counter[int] = field(default_factory=Counter)
    after: Counter[int] = field(default_factory=Counter)
    is_after: bool = False

    def take(self, value: int) -> None:
        (self.after if self.is_after else self.before)[value] += 1


def judged(reader: Reader) -> list[str]:
    """Return what is wrong. Pure. Repeated deliveries are allowed: members and nodes come and go."""
    found = []
    if missing := NEW - reader.after.keys():
        found.append(f"{reader.name}: {len(missing)} of {len(NEW)} records of the new topic did not come")
    if old := reader.after.keys() - NEW:
        found.append(f"{reader.name}: {len(old)} records of the deleted topic came after the creation of the new one")
    return found


async def recreate(cluster: Cluster, topic: str, break_node: Callable[[], Awaitable[Mend]]) -> list[str]:
    """Return what is wrong. `break_node` breaks a node before the deletion, and returns what mends it."""
    kept = f"{topic}.kept"  # a consumer whose topics are all deleted ends
    readers = {name: Reader(name) for name in ("fetch", "member", "caller", "stream", "follower")}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(cluster.urls, options=PATIENT))
        for name in (topic, kept):
            await cluster.create(name)
        await produce(client, topic, OLD)
        for name, reading in (
            ("member", _member(client, topic, kept, readers["member"])),
            ("caller", _caller(client, topic, kept, readers["caller"])),
            ("stream", _stream(cluster.urls, topic, readers["stream"])),
            ("follower", _follower(client, topic, readers["follower"])),
        ):
            await stack.enter_async_context(_running(reading, name))
        await _fetch_all(client, topic, readers["fetch"])
        await _until(lambda: all(one.before.keys() == OLD for one in readers.values()), "records of the first topic")
        mend_node = await break_node()
        await _delete(client, topic)
        for one in readers.values():
            one.is_after = True
        await asyncio.gather(mend_node(), cluster.create(topic))  # three replicas need the node
        await produce(client, topic, NEW)
        await cluster.wait_until_healthy(topic, is_quiet=True)
        await _fetch_all(client, topic, readers["fetch"])
        try:
            await _until(lambda: not any(map(judged, readers.values())), "records of the new topic")
        except AssertionError:
            return [text for one in readers.values() for text in judged(one)]
    async with Client(cluster.urls, options=PATIENT) as client:
        for name in (topic, kept):
            await _delete(client, name)
    return [text for one in readers.values() for text in judged(one)]


async def produce(client: Client, topic: str, values: Iterable[int]) -> None:
    """Produce to every partition, each value once."""
    for value in sorted(values):
        key = f"{topic}-{value}"
        await _until_done(
            lambda value=value, key=key: client.post_records(
                topic, b"%d\n" % value, partition=value % PARTITIONS, idempotency_key=key
            )
        )


async def _delete(client: Client, topic: str) -> None:
    async def delete() -> None:
        try:
            await client.delete_topic(topic)
        except ProblemError as problem:
            if problem.code != "unknown_topic":  # the answer to an earlier attempt was lost
                raise

    await _until_done(delete)


async def _fetch_all(client: Client, topic: str, reader: Reader) -> None:
    async with client.consume(topic, follow=False) as consumer:
        async for record in consumer:
            reader.take(record.json())


async def _member(client: Client, topic: str, kept: str, reader: Reader) -> None:
    async with client.consumer(group=f"{topic}.member", topics=[topic, kept]) as consumer:
        async for record in consumer:
            reader.take(record.json())


async def _caller(client: Client, topic: str, kept: str, reader: Reader) -> None:
    async with client.queue(f"{topic}.caller", topics=[topic, kept], max_records=10) as queue:
        async for record in queue:
            reader.take(record.json())
            await record.accept()


async def _follower(client: Client, topic: str, reader: Reader) -> None:
    """A consumer with positions of its own, which begins again where the topic is another one."""
    start: Mapping[int, int] | str = "earliest"
    topic_id: str | None = None
    while True:
        try:
            async with client.consume(topic, start=start, topic_id=topic_id) as consumer:
                async for record in consumer:
                    reader.take(record.json())
                    start, topic_id = consumer.positions(), consumer.topic_id
        except ProblemError as problem:
            if problem.code == "topic_id_mismatch":
                start, topic_id = "earliest", None
        await asyncio.sleep(RETRY_S)


async def _stream(urls: list[str], topic: str, reader: Reader) -> None:
    """A browser's EventSource: it keeps the last id and reconnects, here to the next node."""
    headers, at = {"Accept": "text/event-stream"}, 0
    while True:
        at += 1
        timeout = aiohttp.ClientTimeout(sock_connect=1, sock_read=20)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                url = f"{urls[at % len(urls)]}/v1/topics/{topic}/records?from=earliest"
                async with session.get(url, headers=headers) as answer:
                    async for line in answer.content if answer.status == 200 else _nothing():
                        name, _, text = line.rstrip(b"\n").partition(b": ")
                        if name == b"id":
                            headers["Last-Event-ID"] = text.decode()
                        elif name == b"data" and "value" in (found := orjson.loads(text)):
                            reader.take(found["value"])
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        await asyncio.sleep(RETRY_S)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


@asynccontextmanager
async def _running(reading: Awaitable[None], name: str) -> AsyncIterator[None]:
    """Read meanwhile. A consumer that ends by itself is an error."""
    task = asyncio.ensure_future(reading)
    try:
        yield
        assert not task.done(), f"the {name} ended: {task}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + HEALTHY_S
    while not is_so():
        assert asyncio.get_running_loop().time() < deadline, f"not every consumer got the {what}"
        await asyncio.sleep(RETRY_S)


async def _until_done(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat what a node that is down, or one that does not know of a change yet, refuses."""
    async with asyncio.timeout(HEALTHY_S):
        while True:
            try:
                await call()
                return
            except (ClientError, OSError):
                await asyncio.sleep(RETRY_S)
