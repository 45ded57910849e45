"""Runs stories with the Python client: `python -m tests.clients.runners.runner`; PENSTOCK_URL names the node."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import orjson

from penstock import Client, ClientError, ClientOptions, ProblemError, Record
from penstock.transport.exchange import Request

running: dict[int, asyncio.Task[None]] = {}
OPERATIONS = {"describe_topic": "/v1/topics/{topic}"}


def say(line: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
    sys.stdout.buffer.flush()


def shown(record: Record) -> dict[str, Any]:
    text = None if record.value is None else record.value.decode()
    key = None if record.key is None else record.key.decode()
    count = getattr(record, "delivery_count", 0)
    return {"partition": record.partition, "offset": record.offset, "key": key, "value": text, "count": count}


async def produce(client: Client, topic: str, records: list[Any], options: Mapping[str, Any] | None = None) -> Any:
    async with client.producer() as producer:
        sent = [await producer.send(topic, **record) for record in records]
    return [[position.partition, position.offset] for position in [await delivery for delivery in sent]]


async def count(client: Client, topic: str, records: list[Any]) -> Any:
    async with client.producer() as producer:
        for record in records:
            await producer.send(topic, **record)
        await producer.flush()
        now = producer.statistics()
        counts, left = producer.take_accepted_counts(), producer.take_accepted_counts()
    taken = [now.records_acknowledged, now.records_failed, 0, now.buffered_bytes]
    return {"counts": counts, "left": left, "statistics": taken}


async def append(client: Client, topic: str, records: list[Any], key: str | None = None) -> Any:
    body = orjson.dumps({"records": records})
    answer = await client.post_records(topic, body, "application/json", idempotency_key=key or str(uuid4()))
    return [
        {"partition": one["partition"], "baseOffset": one["base_offset"], "isDuplicate": one.get("duplicate", False)}
        for one in answer["results"]
    ]


async def consume(client: Client, topic: str, **given: Any) -> Any:
    saved, left = given.get("from", "earliest"), given.get("count", -1)
    start = {int(partition): at for partition, at in saved["offsets"].items()} if isinstance(saved, dict) else saved
    topic_id = saved["topicId"] if isinstance(saved, dict) else None
    filters = given.get("filter", ())
    consumer = client.consume(topic, start=start, topic_id=topic_id, follow=given.get("follow", False), filters=filters)
    async with consumer:
        async for record in consumer:
            say({"id": given["number"], "record": shown(record)})
            left -= 1
            if not left:
                break
        offsets = {str(partition): at for partition, at in sorted(consumer.positions().items())}
        return {"topicId": consumer.topic_id, "offsets": offsets}


async def work(client: Client, number: int, group: str, topic: str, member: str) -> None:
    async with client.consumer(group=group, topics=[topic], member_id=member) as consumer:
        async for record in consumer:
            say({"id": number, "record": shown(record)})


async def queue(client: Client, number: int, group: str, topic: str, count: int, outcomes: Mapping[str, str]) -> None:
    async with client.queue(group=group, topics=[topic]) as jobs:
        async for job in jobs:
            outcome = "accept" if job.delivery_count > 1 else outcomes.get((job.value or b"").decode(), "accept")
            await (job.release(delay_ms=0) if outcome == "release" else getattr(job, outcome)())
            say({"id": number, "record": shown(job)})
            count -= 1
            if not count:
                break


async def look_up(client: Client, topic: str, key: str, at_least: int | None = None) -> Any:
    try:
        found = await client.table(topic).get(key, at_least=at_least, wait_ms=5000)
    except ProblemError as problem:
        if problem.code != "unknown_key":
            raise
        return None
    return {"key": found["key"], "value": orjson.dumps(found["value"]).decode()}


async def table(client: Client, topic: str) -> Any:
    return {row["key"]: orjson.dumps(row["value"]).decode() async for row in client.table(topic).items()}


async def load(client: Client, topic: str, records: int, size: int) -> Any:
    value, began = "x" * (size - 2), time.perf_counter()
    async with client.producer() as producer:
        for _ in range(records):
            await producer.send(topic, value)
    return records / (time.perf_counter() - began)


async def call(client: Client, operation: str, path: Mapping[str, str]) -> Any:
    target = OPERATIONS[operation].format(**{name: quote(part, safe="") for name, part in path.items()})
    return await client.call(Request("GET", target))


async def run(client: Client, command: dict[str, Any]) -> None:
    name, number = command.pop("do"), command["id"]
    del command["id"]
    if name == "load":
        command["size"] = command.pop("bytes")
    if name in ("consume", "work", "queue"):
        command["number"] = number
    try:
        say({"id": number, "done": await globals()[name](client, **command)})
    except asyncio.CancelledError:
        say({"id": number, "done": None})
    except ClientError as error:
        status = error.status if isinstance(error, ProblemError) else 0
        promises = {"retryable": error.retryable, "maybe_done": not error.no_side_effects}
        say({"id": number, "error": {"code": error.code, "status": status, **promises}})
    except Exception as error:  # the judge shows it
        say({"id": number, "error": {"code": repr(error)}})


async def main() -> None:
    reader = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with Client(os.environ["PENSTOCK_URL"], options=ClientOptions(batch_bytes=200)) as client:
        async for line in reader:
            command = orjson.loads(line)
            if command["do"] == "stop":
                running[command["stop"]].cancel()
            else:
                running[command["id"]] = asyncio.create_task(run(client, command))


if __name__ == "__main__":
    asyncio.run(main())
