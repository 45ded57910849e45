"""Connections: what is not a request ends them, with one line in the log; ApiVersions is answered in any version."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.kafka.codec.messages import Malformed
from gateway.kafka.errors import Error
from gateway.kafka.frames import Frames
from node.node import Node
from tests.gateway.kafka.served import Connection, batch, connected, kafka_node, produce, request


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with kafka_node(tmp_path) as (node, _):
        await node.shard.create_topic("t", 1, 1, {})
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),  # no such API
        struct.pack(">ihhih", 10, 3, 99, 1, -1),  # no such version
        struct.pack(">ihhih", 10, 0, 2, 1, -1),  # Produce 0 to 2 are advertised and refused
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    ],
)
async def test_garbage_ends_the_connection_with_one_line(
    client: Connection, node: Node, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.kafka"):
        client.send_bytes(sent)
        assert await client.is_closed()
    assert len([one for one in caplog.records if one.name == "penstock.kafka"]) == 1
    assert node.bodies.held_bytes == 0
    assert node.metrics.requests_in_flight.value == 0


async def test_a_failure_ends_the_connection_behind_earlier_answers(client: Connection) -> None:
    client.send("Produce", 9, produce("t", {0: batch(b"a")}))
    client.send_frame(struct.pack(">hhih", 999, 0, 1, -1))
    assert (await client.receive()).responses[0].partition_responses[0].base_offset == 0
    assert await client.is_closed()


async def test_pipelined_failures_end_the_connection(
    client: Connection, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.kafka.produce.ProduceAnswer", None)  # a bug in the answer
    for _ in range(3):
        client.send("Produce", 9, produce("t", {0: batch(b"a")}))
    assert await client.is_closed()
    assert node.metrics.requests_in_flight.value == 0
    assert node.metrics.delayed_produces.value == 0


async def test_every_client_gets_the_versions(client: Connection) -> None:
    for version in range(3):
        found = await client.ask("ApiVersions", version)
        ranges = {one.api_key: (one.min_version, one.max_version) for one in found.api_keys}
        assert ranges[0] == (0, 13)  # librdkafka turns compression off without version 0
        assert ranges[1] == (4, 18)
    for version in (3, 4):
        named = {"client_software_name": "test-client", "client_software_version": "1.0"}
        assert (await client.ask("ApiVersions", version, **named)).error_code == 0
    bad = await client.ask("ApiVersions", 3, client_software_name="-bad-", client_software_version="1")
    assert bad.error_code == Error.INVALID_REQUEST


async def test_an_unknown_version_of_api_versions_gets_the_oldest_form(client: Connection) -> None:
    client.send_frame(struct.pack(">hhih", 18, 77, 5, -1) + b"\0whatever")
    frame = await client.frame()
    assert struct.unpack(">ihi", frame[:10]) == (5, Error.UNSUPPORTED_VERSION, 1)
    assert struct.unpack(">hhh", frame[10:]) == (18, 0, 4)
    assert (await client.ask("ApiVersions", 0)).error_code == 0  # the connection is kept


async def test_metadata_of_every_version(client: Connection, node: Node) -> None:
    topic_id = bytes.fromhex(node.shard.topic("t").record.topic_id)
    for version in range(14):
        found = await client.ask("Metadata", version, topics=[] if version == 0 else None)
        [topic] = found.topics
        [partition] = topic.partitions
        assert (topic.name, partition.leader_id, partition.error_code) == ("t", node.settings.node_id, 0)
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert len(found.brokers) == 1
        if version:
            assert found.controller_id == node.settings.node_id
            assert (await client.ask("Metadata", version, topics=[])).topics == []
    one = request("Metadata", "topics", name=None, topic_id=topic_id)
    other = request("Metadata", "topics", name=None, topic_id=b"1" * 16)
    found = await client.ask("Metadata", 12, topics=[one, other])
    assert [(topic.name, topic.error_code) for topic in found.topics] == [("t", 0), (None, Error.UNKNOWN_TOPIC_ID)]
    named = [request("Metadata", "topics", name=name) for name in ("absent", "__groups", "no/name")]
    found = await client.ask("Metadata", 9, topics=named)
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.error_code for topic in found.topics] == [unknown, Error.INVALID_TOPIC, Error.INVALID_TOPIC]
    assert (await client.ask("DescribeCluster", 1, endpoint_type=2)).error_code == Error.UNSUPPORTED_ENDPOINT_TYPE
    assert (await client.ask("DescribeCluster", 1, endpoint_type=1)).cluster_id == found.cluster_id


async def test_a_frame_may_come_byte_by_byte(client: Connection) -> None:
    client.send_bytes(b"")
    frame = struct.pack(">ihhih", 10, 18, 0, 9, -1)
    for byte in frame:
        client.send_bytes(bytes([byte]))
        await asyncio.sleep(0)
    assert struct.unpack(">i", (await client.frame())[:4]) == (9,)


def test_frames_are_split_at_any_place() -> None:
    data = b"".join(struct.pack(">i", size) + b"x" * size for size in (0, 1, 5, 300))
    for step in (1, 2, 3, 7, 64, 1000):
        frames, found = Frames(300), list[bytes]()
        for at in range(0, len(data), step):
            found += [bytes(one) for one in frames.receive(memoryview(data[at : at + step]))]
        assert [len(one) for one in found] == [0, 1, 5, 300]
        assert frames.partial_bytes == 0
    with pytest.raises(Malformed, match="announces 301"):
        Frames(300).receive(memoryview(struct.pack(">i", 301)))
