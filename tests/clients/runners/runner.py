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

from penstock import Client, ClientError, ClientOptions, OutgoingRecord, ProblemError, Producer, Record
from penstock.producer.lines import pairs_of
from penstock.transport.exchange import Request

running: dict[int, asyncio.Task[None]] = {}
kept: dict[str, Producer] = {}
trace = ""
token = os.environ.get("PENSTOCK_TOKEN", "")
LATE_S = 1.5  # longer than a lock of the stories
OPERATIONS = {"describe_topic": "/v1/topics/{topic}"}


def say(line: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
    sys.stdout.buffer.flush()


def shown(record: Record) -> dict[str, Any]:
    text = None if record.value is None else record.value.decode()
    key = None if record.key is None else record.key.decode()
    count = getattr(record, "delivery_count", 0)
    return {
        "partition": record.partition,
        "offset": record.offset,
        "key": key,
        "value": text,
        "count": count,
        "trace": record.trace_context.get("traceparent"),
    }


async def produce(
    client: Client, topic: str, records: list[Any], options: Mapping[str, Any] | None = None, keep: str | None = None
) -> Any:
    """With `keep` the producer stays, for the commands with the same name."""
    producer = (kept.get(keep) if keep else None) or client.producer(interceptors=[Traced()])
    if keep:
        kept[keep] = producer
    sent = [await producer.send(topic, **record) for record in records]
    await (producer.flush() if keep else producer.close())
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
    consumer = client.consume(
        topic, start=start, topic_id=topic_id, follow=given.get("follow", False), filters=filters,
        out_of_range=given.get("outOfRange", "fail"),
    )  # fmt: skip
    async with consumer:
        async for record in consumer:
            say({"id": given["number"], "record": shown(record)})
            left -= 1
            if not left:
                break
        offsets = {str(partition): at for partition, at in sorted(consumer.positions().items())}
        return {"topicId": consumer.topic_id, "offsets": offsets}


async def work(client: Client, number: int, group: str, topic: str, member: str, hold: int = 0) -> None:
    """Stays at work on the record with the number `hold`, so that it is never finished."""
    async with client.consumer(group=group, topics=[topic], member_id=member) as consumer:
        async for record in consumer:
            say({"id": number, "record": shown(record)})
            hold -= 1
            if hold == 0:
                await asyncio.Event().wait()


async def queue(client: Client, number: int, group: str, topic: str, count: int, outcomes: Mapping[str, str]) -> None:
    async with client.queue(group=group, topics=[topic]) as jobs:
        async for job in jobs:
            outcome = "accept" if job.delivery_count > 1 else outcomes.get((job.value or b"").decode(), "accept")
            if outcome == "hold":
                say({"id": number, "record": shown(job)})
                await asyncio.Event().wait()
            if outcome == "late":
                await asyncio.sleep(LATE_S)
                outcome = "accept"
            is_stored = await (job.release(delay_ms=0) if outcome == "release" else getattr(job, outcome)())
            if not is_stored:
                raise ProblemError(
                    "the lock is over", status=409, code="lock_expired", retryable=False, no_side_effects=True
                )
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


async def events(client: Client, number: int, topic: str, **given: Any) -> Any:
    left, start = given.get("count", -1), given.get("from", "latest")
    names = {"position": "position", "filter": "filters", "url": "url", "outOfRange": "out_of_range"}
    options = {names[name]: value for name, value in given.items() if name in names}
    async with client.events(topic, start=start, **options) as stream:
        async for record in stream:
            say({"id": number, "record": shown(record)})
            left -= 1
            if not left:
                break
        return stream.position


async def sign(client: Client, path: str, method: str = "GET") -> Any:
    return client.url + (await client.sign_url(path, method=method))["url"]


async def set_trace(client: Client, value: str) -> None:
    """Python's spans come from an interceptor (penstock/tracing.py); here it has one context."""
    global trace
    trace = value


class Traced:
    def before_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return record._replace(headers=[*pairs_of(record.headers or ()), ("traceparent", trace)]) if trace else record

    def on_delivery(self, record: OutgoingRecord, result: Any) -> None:
        pass


async def set_token(client: Client, value: str) -> None:
    global token
    token = value


async def run(client: Client, command: dict[str, Any]) -> None:
    name, number = command.pop("do"), command["id"]
    del command["id"]
    if name == "load":
        command["size"] = command.pop("bytes")
    if name in ("consume", "work", "queue", "events"):
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
    attempt_ms = int(os.environ.get("PENSTOCK_ATTEMPT_MS", "30000"))
    options = ClientOptions(batch_bytes=200, request_timeout_ms=attempt_ms, fetch_wait_ms=min(attempt_ms, 20_000))
    async with Client(os.environ["PENSTOCK_URL"].split(","), token=lambda: token, options=options) as client:
        async for line in reader:
            command = orjson.loads(line)
            if command["do"] == "stop":
                running[command["stop"]].cancel()
            else:
                running[command["id"]] = asyncio.create_task(run(client, command))


if __name__ == "__main__":
    asyncio.run(main())
