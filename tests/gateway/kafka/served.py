"""A node with a listener of Kafka's protocol in this process, and a client that speaks single messages to it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine.format import batch as record_batch
from engine.format.batch import NOT_SEQUENCED, BatchRows
from gateway.kafka.codec.messages import Message, Output, direction, read_message, write_message
from gateway.kafka.codec.tables import TABLES
from gateway.links.kafka_addresses import with_kafka_port
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from node.setup.kafka_listener import KafkaListener


class Connection:
    """One connection, which sends requests by their tables and reads the responses in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent: list[tuple[str, int, int]] = []
        self._next = 1

    def send(self, api: str, version: int, message: Message, client_id: str = "test") -> None:
        """Sends a request; `receive` reads its response."""
        out, table = Output(), TABLES[api]
        name = client_id.encode()
        out.tail += struct.pack(">hhih", table.key, version, self._next, len(name)) + name
        if version >= table.flexible:
            out.tail += b"\0"
        write_message(api, version, message, out, is_request=True)
        self.send_frame(b"".join(out.finished()))
        self._sent.append((api, version, self._next))
        self._next += 1

    def forget_sent(self) -> None:
        """Expects no response to the requests so far."""
        self._sent.clear()

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def frame(self) -> bytes:
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)

    async def receive(self, version: int | None = None) -> Message:
        """Returns the response to the oldest request without one; `version`: as which it is read."""
        api, sent_as, correlation_id = self._sent.pop(0)
        frame = await self.frame()
        assert struct.unpack_from(">i", frame)[0] == correlation_id, "the responses are out of order"
        version = sent_as if version is None else version
        has_tags = version >= TABLES[api].flexible and api != "ApiVersions"
        return read_message(api, version, memoryview(frame), 5 if has_tags else 4, is_request=False)

    async def ask(self, api: str, version: int, **fields: Any) -> Message:
        self.send(api, version, request(api, **fields))
        return await asyncio.wait_for(self.receive(), 10)

    async def is_closed(self) -> bool:
        """Returns whether the server ends the connection, without another response."""
        try:
            return await asyncio.wait_for(self._reader.read(1), 5) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._writer.close()


def request(api: str, path: str = "", /, **fields: Any) -> Message:
    """Returns a request, or the part of one at a path."""
    return direction(api, is_request=True).types[path](**fields)


def rows(*values: bytes, key: bytes | None = None, time_ms: int = 1000) -> BatchRows:
    return [(time_ms, key, value, []) for value in values]


def batch(*values: bytes, key: bytes | None = None, sequence: tuple[int, int, int] | None = None) -> bytes:
    """Returns a batch of records with these values."""
    data = record_batch.encode(rows(*values, key=key), record_batch.Codec.NONE)
    if sequence is not None:
        record_batch.stamp_sequence(data, *sequence)
    assert sequence != NOT_SEQUENCED
    return bytes(data)


def _named(topic: str | bytes, field: str = "topic") -> dict[str, str | bytes]:
    return {field: topic} if isinstance(topic, str) else {"topic_id": topic}


def produce(topic: str | bytes, batches: dict[int, bytes | None], acks: int = -1) -> Message:
    """Returns a produce request to partitions of one topic, by its name or its id."""
    data = [request("Produce", "topic_data.partition_data", index=n, records=one) for n, one in batches.items()]
    topics = [request("Produce", "topic_data", **_named(topic, "name"), partition_data=data)]
    return request("Produce", transactional_id=None, acks=acks, timeout_ms=5000, topic_data=topics)


def fetch(
    topic: str | bytes,
    offsets: dict[int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    forgotten: list[int] | None = None,
    rack: str = "",
    **fields: Any,
) -> Message:
    """Returns a fetch of partitions of one topic; `fields` are those of each partition."""
    partitions = [
        request("Fetch", "topics.partitions", partition=n, fetch_offset=at, partition_max_bytes=1 << 20, **fields)
        for n, at in offsets.items()
    ]
    topics = [request("Fetch", "topics", **_named(topic), partitions=partitions)] if partitions else []
    to_forget = [request("Fetch", "forgotten_topics_data", **_named(topic), partitions=forgotten)] if forgotten else []
    return request(
        "Fetch",
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 22,
        topics=topics,
        session_id=session[0],
        session_epoch=session[1],
        forgotten_topics_data=to_forget,
        rack_id=rack,
    )


@asynccontextmanager
async def kafka_node(path: Path, tokens: Any = None, **settings: Any) -> AsyncIterator[tuple[Node, KafkaListener]]:
    """Runs a node with a listener on a free port; `tokens` are those of a tokens file."""
    given = NodeSettings(data_dir=str(path / "data"), kafka_listen="127.0.0.1:0", **settings)
    with with_kafka_port(given) as with_port:
        async with running_node(with_port) as node:
            if tokens is not None:
                node.access.use_tokens(tokens)
            listener = KafkaListener(node.server, with_port)
            await listener.open()
            try:
                yield node, listener
            finally:
                await listener.drain()


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Connection]:
    """Connects to a node's listener."""
    host, _, port = node.settings.kafka_advertised.rpartition(":")
    connection = Connection(*await asyncio.open_connection(host, int(port)))
    try:
        yield connection
    finally:
        connection.close()
