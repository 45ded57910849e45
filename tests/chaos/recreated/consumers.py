"""Consumers of every kind at a topic that is deleted and created again under them. Each runs until it is cancelled.

They do what the pages for users say, and no more: a position is sent as it is, after a failure to another node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from penstock import Client, ClientOptions
from penstock.errors import ClientError, ProblemError
from tests.chaos.clients.node_client import CONNECT_S, Answer, NodeClient
from tests.checking.recreation_history import Consumed

RETRY_S = 0.1
WAIT_MS = 300
LOCK_MS = 2_000
SILENT_S = 20.0  # more than a heartbeat: the connection counts as dead
JSON = {"Content-Type": "application/json"}
FINAL = frozenset({400, 410, 416})  # the position or the request is refused permanently


async def fetch(consumed: Consumed, client: NodeClient, topic: str, partition: int, topic_id: str) -> None:
    """A client that keeps a position and the id of its topic, and begins again after topic_id_mismatch."""
    offset = 0
    while True:
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        answer = await client.request("GET", f"{path}?wait_ms={WAIT_MS}&offset={offset}&topic_id={topic_id}")
        if answer.status == 200:
            for record in answer.json["records"]:
                consumed.take(topic_id, partition, record["offset"], record["value"])
            offset = answer.json["next_offset"]
        elif answer.code == "topic_id_mismatch":
            topic_id, offset = answer.json["topic_id"], 0
            consumed.notice(topic_id)
        else:
            await _other_node(consumed, client, answer, f"partition {partition} at {offset} of {topic_id}")


async def follow(consumed: Consumed, urls: list[str], topic: str) -> None:
    """The Python client with saved positions. It reads all partitions by `POST /v1/fetch`."""
    start: Mapping[int, int] | str = "earliest"
    topic_id: str | None = None
    options = ClientOptions(unreachable_timeout_ms=5_000, backoff_ms_max=500, fetch_wait_ms=WAIT_MS)
    async with Client(urls, options=options) as client:
        while True:
            try:
                async with client.consume(topic, start=start, topic_id=topic_id) as consumer:
                    while True:
                        records = await consumer.poll(WAIT_MS)
                        if topic_id is None and consumer.topic_id is not None:
                            consumed.notice(consumer.topic_id)
                        for record in records:
                            consumed.take(consumer.topic_id or "", record.partition, record.offset, record.json())
                        if consumer.topic_id is not None:
                            start, topic_id = consumer.positions() or start, consumer.topic_id
            except ClientError as error:
                if isinstance(error, ProblemError) and error.code == "topic_id_mismatch":
                    start, topic_id = "earliest", None
                elif error.code == "offset_above_high_watermark":
                    consumed.refused.append(f"{error.code} at {start} of {topic_id}")
            await asyncio.sleep(RETRY_S)


async def member(consumed: Consumed, client: NodeClient, group: str, topic: str) -> None:
    """A member of a consumer group, which commits with the token of each poll."""
    token = ""
    while True:
        body = {"topics": [topic], "token": token, "wait_ms": WAIT_MS, "max_records": 40}
        answer = await client.request("POST", f"/v1/groups/{group}/members/m/poll", orjson.dumps(body), JSON)
        if answer.status in (200, 207):
            topic_ids = answer.json["topic_ids"]
            for part in answer.json["partitions"]:
                for record in part.get("records", ()):
                    consumed.take(topic_ids.get(topic, ""), part["partition"], record["offset"], record["value"])
            token = answer.json["token"]
            if not any(part.get("records") for part in answer.json["partitions"]):
                await asyncio.sleep(RETRY_S)
        elif answer.code == "stale_token":
            token = ""
        else:
            await _other_node(consumed, client, answer, "poll")


async def caller(consumed: Consumed, client: NodeClient, group: str, topic: str) -> None:
    """A caller of a share group that accepts what it gets, once. An outcome that is not answered repeats records."""
    while True:
        request = {"topics": [topic], "max_records": 20, "wait_ms": WAIT_MS, "lock_ms": LOCK_MS}
        answer = await client.request("POST", f"/v1/groups/{group}/acquire", orjson.dumps(request), JSON)
        if answer.status not in (200, 207):
            await _other_node(consumed, client, answer, "acquire")
            continue
        for record in answer.json["records"]:
            consumed.take("", record["partition"], record["offset"], record["value"])
        if answer.json["records"]:
            body = orjson.dumps({"lock": answer.json["lock"], "outcome": "accept"})
            ended = await client.request("POST", f"/v1/groups/{group}/acknowledge", body, JSON)
            if ended.status not in (200, 207, 409):
                await _other_node(consumed, client, ended, "acknowledge")


async def stream(consumed: Consumed, urls: Sequence[str], path: str, partition: int | None, first: int) -> None:
    """An EventSource of a page that opens it again whatever the answer was, at the next node, with the last id."""
    last_id, at = "", first
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True)) as session:
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
            try:
                async with session.get(urls[at % len(urls)] + path, headers=headers) as answer:
                    if answer.status in FINAL:
                        consumed.refused.append(f"{answer.status} {await answer.text()} at {last_id}")
                    elif answer.status == 200:
                        rest = b""
                        async for piece in answer.content.iter_any():
                            *events, rest = (rest + piece).split(b"\n\n")
                            for event in events:
                                last_id = _take(consumed, event, last_id, partition)
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass  # an EventSource reconnects after a network error
            at += 1
            await asyncio.sleep(RETRY_S)


def _take(consumed: Consumed, event: bytes, last_id: str, partition: int | None) -> str:
    """Record one event; return the last id. The beginning of the topic's id is before the point."""
    fields = dict(line.split(": ", 1) for line in event.decode().split("\n") if ": " in line and line[0] != ":")
    if fields.get("event") == "topic_recreated":
        consumed.notice(orjson.loads(fields["data"])["topic_id"])
    elif "data" in fields and "event" not in fields:
        document: dict[str, Any] = orjson.loads(fields["data"])
        topic_id = document["value"].partition("/")[0]
        label = fields["id"].rpartition(".")[0] if consumed.is_notified else ""  # a member's id is another one
        if not last_id:  # it had no position: the first topic that it reads
            consumed.notice(topic_id)
        named = topic_id if topic_id.startswith(label) and label else label
        number = document["partition"] if partition is None else partition
        consumed.take(named, number, document["offset"], document["value"])
    return fields.get("id", last_id)


async def _other_node(consumed: Consumed, client: NodeClient, answer: Answer, what: str) -> None:
    if answer.status in FINAL:
        consumed.refused.append(f"{answer.status} {answer.code}: {what}: {answer.json.get('detail', '')}")
    client.next_node()
    await asyncio.sleep(RETRY_S)
