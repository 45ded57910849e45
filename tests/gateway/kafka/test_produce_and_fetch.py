"""Produce and Fetch by single messages: what is stored, in which order it is answered, and what is refused."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.format import batch as record_batch
from engine.format.batch_header import read_header
from engine.format.keyed_batch import KeyEntry, stored_entry
from gateway.kafka import service
from gateway.kafka.codec.messages import Message
from gateway.kafka.errors import Error
from node.node import Node
from replication.replica.acks import Acks
from tests.gateway.kafka.served import Connection, batch, connected, fetch, kafka_node, produce, request, rows
from tests.gateway.registry.registries import AVRO, avro_ride, stub_registry


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with kafka_node(tmp_path) as (node, _):
        await node.shard.create_topic("t", 2, 1, {})
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Connection]:
    async with connected(node) as connection:
        yield connection


def values_of(data: object) -> list[bytes | None]:
    return [record.value for record in record_batch.decode(bytes(data))]  # type: ignore[call-overload]


async def append(node: Node, data: bytes | bytearray, number: int = 0) -> None:
    """Appends a batch as nodes do it themselves."""
    topic = node.shard.topic("t")
    await node.partitions.leader(topic, number).produce_all([(data, None, None)], Acks.ALL, 5000)[0]


@pytest.mark.parametrize("version", range(3, 19))
async def test_what_is_produced_is_fetched_as_it_was_sent(client: Connection, node: Node, version: int) -> None:
    sent = batch(b"a", b"b", key=b"k")
    topic = "t" if version < 13 else bytes.fromhex(node.shard.topic("t").record.topic_id)
    client.send("Produce", min(version, 13), produce(topic, {0: sent, 1: batch(b"c")}))
    answer = await client.receive()
    rows = answer.responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(0, 0, 0), (1, 0, 0)]
    assert rows[0].log_append_time_ms == -1
    client.send("Fetch", max(version, 4), fetch(topic, {0: 0, 1: 0}))
    [first, second] = (await client.receive()).responses[0].partitions
    assert bytes(first.records)[12 + 9 :] == sent[12 + 9 :]  # but offset and epoch, which the leader stamps
    assert (values_of(second.records), second.high_watermark, second.last_stable_offset) == ([b"c"], 1, 1)


async def test_responses_leave_in_the_order_of_requests(client: Connection) -> None:
    for number in range(40):
        client.send("Produce", 9, produce("t", {number % 2: batch(b"%d" % number)}))
        if number % 5 == 0:
            client.send("Metadata", 9, request("Metadata", topics=None))
    for number in range(40):
        answer = await asyncio.wait_for(client.receive(), 10)
        assert answer.responses[0].partition_responses[0].base_offset == number // 2
        if number % 5 == 0:
            assert (await client.receive()).topics[0].name == "t"
    client.send("Fetch", 12, fetch("t", {0: 0}))
    [row] = (await client.receive()).responses[0].partitions
    assert values_of(row.records) == [b"%d" % number for number in range(0, 40, 2)]


async def test_each_partition_has_its_own_error(client: Connection) -> None:
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    client.send("Produce", 9, produce("t", {0: batch(b"a"), 1: bytes(broken), 7: batch(b"b")}))
    rows = (await client.receive()).responses[0].partition_responses
    assert [row.error_code for row in rows] == [0, Error.CORRUPT_MESSAGE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert rows[1].base_offset == -1


@pytest.mark.parametrize(
    ("attributes", "version", "error"),
    [
        (0b1_0000, 9, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (0b10_0000, 9, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (0b1000, 9, Error.INVALID_TIMESTAMP),
        (4, 6, Error.UNSUPPORTED_COMPRESSION_TYPE),
        (7, 9, Error.INVALID_RECORD),
    ],
)
async def test_batches_that_are_not_taken(client: Connection, attributes: int, version: int, error: Error) -> None:
    data = bytearray(batch(b"x"))
    struct.pack_into(">h", data, 21, attributes)
    record_batch.set_crc(data)
    client.send("Produce", version, produce("t", {0: bytes(data)}))
    [row] = (await client.receive()).responses[0].partition_responses
    assert row.error_code == error
    client.send("Fetch", 12, fetch("t", {0: 0}))
    assert (await client.receive()).responses[0].partitions[0].high_watermark == 0


async def test_without_acks_there_is_no_response_and_a_failure_ends_the_connection(client: Connection) -> None:
    client.send("Produce", 9, produce("t", {0: batch(b"a")}, acks=0))
    client._sent.clear()
    client._next = 2
    answer = await client.ask("Metadata", 9, topics=None)
    assert answer.topics[0].name == "t"
    client.send("Fetch", 12, fetch("t", {0: 0}, max_wait_ms=2000))
    assert values_of((await client.receive()).responses[0].partitions[0].records) == [b"a"]
    client.send("Produce", 9, produce("absent", {0: batch(b"a")}, acks=0))
    assert await client.is_closed()


async def test_acks_of_another_kind_and_a_transaction_are_refused(client: Connection) -> None:
    client.send("Produce", 9, produce("t", {0: batch(b"a")}, acks=2))
    assert (await client.receive()).responses[0].partition_responses[0].error_code == Error.INVALID_REQUIRED_ACKS
    found = await client.ask("FindCoordinator", 4, key_type=1, coordinator_keys=["tx"])
    assert found.coordinators[0].error_code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    found = await client.ask("InitProducerId", 4, transactional_id="tx", transaction_timeout_ms=1)
    assert found.error_code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_sequences_are_exact(client: Connection) -> None:
    producer = (await client.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1)).producer_id

    async def send(base: int, *values: bytes, number: int = 0, producer_id: int = producer) -> tuple[int, int]:
        client.send("Produce", 9, produce("t", {number: batch(*values, sequence=(producer_id, 0, base))}))
        row = (await client.receive()).responses[0].partition_responses[0]
        return row.error_code, row.base_offset

    for number in (0, 1):
        assert await send(17, b"late", number=number) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(0, b"a", b"b") == (0, 0)
    assert await send(0, b"a", b"b") == (0, 0)  # a repeat has its first offset
    assert await send(5, b"c") == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(2, b"c") == (0, 2)
    assert await send(0, b"x", producer_id=producer + 10_000) == (Error.PRODUCER_FENCED, -1)


async def test_a_wrong_latest_time_is_repaired_and_records_without_a_time_are_named(client: Connection) -> None:
    async def send(times: list[int], latest: int) -> Message:
        data = record_batch.encode([(time, None, b"v", []) for time in times], record_batch.Codec.NONE)
        struct.pack_into(">q", data, 35, latest)
        record_batch.set_crc(data)
        client.send("Produce", 9, produce("t", {0: bytes(data)}))
        return (await client.receive()).responses[0].partition_responses[0]

    assert (await send([1000, 3000, 2000], 1500)).error_code == 0
    refused = await send([1000, -1], 1000)
    assert (refused.error_code, refused.base_offset) == (Error.INVALID_RECORD, -1)
    assert [one.batch_index for one in refused.record_errors] == [1]
    client.send("Fetch", 12, fetch("t", {0: 0}))
    data = bytes((await client.receive()).responses[0].partitions[0].records)
    header = read_header(data)
    assert (header.max_timestamp, header.record_count, record_batch.has_valid_crc(data, 0, header)) == (3000, 3, True)


async def test_topics_are_named_by_their_ids(client: Connection, node: Node) -> None:
    absent = b"1" * 16
    client.send("Produce", 13, produce(absent, {0: batch(b"a")}))
    [topic] = (await client.receive()).responses
    assert (topic.topic_id, topic.partition_responses[0].error_code) == (absent, Error.UNKNOWN_TOPIC_ID)
    client.send("Fetch", 13, fetch(absent, {0: 0}))
    [topic] = (await client.receive()).responses
    assert (topic.topic_id, topic.partitions[0].error_code) == (absent, Error.UNKNOWN_TOPIC_ID)
    former = bytes.fromhex(node.shard.topic("t").record.topic_id)
    await node.shard.delete_topic("t")
    await node.shard.create_topic("t", 1, 1, {})
    client.send("Fetch", 13, fetch(former, {0: 0}))  # never by the name that it had
    assert (await client.receive()).responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID


async def test_a_fetch_waits_and_another_request_ends_its_wait(client: Connection, node: Node) -> None:
    client.send("Fetch", 12, fetch("t", {0: 0, 1: 0}, max_wait_ms=8000))
    await asyncio.sleep(0.05)
    async with connected(node) as other:
        other.send("Produce", 9, produce("t", {1: batch(b"now")}))
        await other.receive()
    answer = await asyncio.wait_for(client.receive(), 4)
    assert [values_of(row.records) for row in answer.responses[0].partitions] == [[], [b"now"]]
    began = asyncio.get_running_loop().time()
    client.send("Fetch", 12, fetch("t", {0: 0}, max_wait_ms=8000))
    client.send("Metadata", 9, request("Metadata", topics=None))
    row = (await client.receive()).responses[0].partitions[0]
    assert (row.records, row.error_code) == (b"", 0)  # empty, and never null
    await client.receive()
    assert asyncio.get_running_loop().time() - began < 4


async def test_a_fetch_without_a_wait_answers_at_once_with_empty_records(client: Connection) -> None:
    for version in range(4, 13):
        client.send("Fetch", version, fetch("t", {0: 0}))
        row = (await asyncio.wait_for(client.receive(), 2)).responses[0].partitions[0]
        assert row.records == b""
        assert row.aborted_transactions is None
    committed = fetch("t", {0: 0})
    committed.isolation_level = 1
    client.send("Fetch", 12, committed)
    assert (await client.receive()).responses[0].partitions[0].aborted_transactions == []


async def test_positions_and_epochs_that_do_not_fit(client: Connection) -> None:
    client.send("Produce", 9, produce("t", {0: batch(b"a")}))
    await client.receive()

    async def error(offset: int, **fields: int) -> int:
        client.send("Fetch", 12, fetch("t", {0: offset}, max_wait_ms=50, **fields))
        code: int = (await client.receive()).responses[0].partitions[0].error_code
        return code

    assert await error(1) == 0
    assert await error(2) == Error.OFFSET_OUT_OF_RANGE
    assert await error(-5) == Error.OFFSET_OUT_OF_RANGE
    assert await error(0, current_leader_epoch=0) == 0
    assert await error(0, current_leader_epoch=3) == Error.UNKNOWN_LEADER_EPOCH
    client.send("Fetch", 12, fetch("absent", {0: 0}))
    assert (await client.receive()).responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fence_at_the_end_is_passed_and_its_token_is_not_shown(client: Connection, node: Node) -> None:
    client.send("Produce", 9, produce("t", {0: batch(b"a")}))
    await client.receive()
    from gateway.admin.partition_calls import SET_FENCE, SetFence

    await node.router.call(SET_FENCE, "t", 0, SetFence("secret-token", None))
    client.send("Fetch", 12, fetch("t", {0: 0}))
    row = (await client.receive()).responses[0].partitions[0]
    assert (values_of(row.records), row.high_watermark) == ([b"a"], 2)
    client.send("Fetch", 12, fetch("t", {0: 1}))
    data = bytes((await client.receive()).responses[0].partitions[0].records)
    header = read_header(data)
    assert (header.base_offset, header.next_offset, header.is_control) == (1, 2, True)
    assert b"secret-token" not in data
    assert record_batch.has_valid_crc(data, 0, header)


async def test_the_entry_of_a_keyed_batch_is_not_shown(client: Connection, node: Node) -> None:
    entry = stored_entry(KeyEntry(b"k" * 16, b"r" * 16, 1, 5))
    await append(node, record_batch.encode(rows(b"a"), record_batch.Codec.NONE, entry=entry))
    client.send("Fetch", 12, fetch("t", {0: 0}))
    data = bytes((await client.receive()).responses[0].partitions[0].records)
    header = read_header(data)
    assert (header.producer_id, header.base_sequence) == (-1, -1)
    assert b"__penstock" not in data
    assert record_batch.has_valid_crc(data, 0, header)
    assert values_of(data) == [b"a"]


async def test_offsets_are_listed(client: Connection) -> None:
    for time_ms in (1000, 3000, 2000):
        data = record_batch.encode([(time_ms, None, b"v", [])], record_batch.Codec.NONE)
        client.send("Produce", 9, produce("t", {0: bytes(data)}))
        await client.receive()

    async def find(timestamp: int, version: int = 7) -> tuple[int, int, int]:
        partition = request("ListOffsets", "topics.partitions", partition_index=0, timestamp=timestamp)
        topic = request("ListOffsets", "topics", name="t", partitions=[partition])
        answer = await client.ask("ListOffsets", version, replica_id=-1, topics=[topic])
        row = answer.topics[0].partitions[0]
        return row.error_code, row.offset, row.timestamp

    assert await find(-1) == (0, 3, -1)
    assert await find(-2) == (0, 0, -1)
    assert await find(-3) == (0, 1, 3000)
    assert await find(-3, 6) == (Error.UNSUPPORTED_VERSION, -1, -1)
    assert await find(-4, 8) == (0, 0, -1)
    assert await find(-5, 9) == (0, -1, -1)  # the store has nothing yet
    assert await find(-6, 11) == (0, 0, -1)
    for timestamp, version in ((-4, 7), (-5, 8), (-6, 10)):
        assert await find(timestamp, version) == (Error.UNSUPPORTED_VERSION, -1, -1)
    assert await find(2500) == (0, 1, 3000)
    assert await find(9000) == (0, -1, -1)  # there is none, and it is not an error
    assert await find(-9) == (Error.UNSUPPORTED_VERSION, -1, -1)


async def test_the_end_of_an_epoch_is_found(client: Connection) -> None:
    client.send("Produce", 9, produce("t", {0: batch(b"a", b"b")}))
    await client.receive()

    async def end(epoch: int) -> tuple[int, int]:
        one = request("OffsetForLeaderEpoch", "topics.partitions", partition=0, leader_epoch=epoch)
        topic = request("OffsetForLeaderEpoch", "topics", topic="t", partitions=[one])
        row = (await client.ask("OffsetForLeaderEpoch", 4, topics=[topic])).topics[0].partitions[0]
        return row.leader_epoch, row.end_offset

    assert await end(0) == (0, 2)
    assert await end(4) == (-1, -1)


async def test_records_are_deleted(client: Connection) -> None:
    client.send("Produce", 9, produce("t", {0: batch(b"a", b"b")}))
    await client.receive()
    one = request("DeleteRecords", "topics.partitions", partition_index=0, offset=-1)
    topic = request("DeleteRecords", "topics", name="t", partitions=[one])
    row = (await client.ask("DeleteRecords", 2, topics=[topic], timeout_ms=1000)).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (0, 2)
    client.send("Fetch", 12, fetch("t", {0: 0}))
    assert (await client.receive()).responses[0].partitions[0].error_code == Error.OFFSET_OUT_OF_RANGE


async def test_a_topic_without_a_name_is_answered(client: Connection) -> None:
    partition = request("ListOffsets", "topics.partitions", partition_index=0, timestamp=-1)
    topic = request("ListOffsets", "topics", name="", partitions=[partition])
    row = (await client.ask("ListOffsets", 11, replica_id=-1, topics=[topic])).topics[0].partitions[0]
    assert row.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_latest_time_is_that_of_a_record_even_if_a_header_says_another(
    client: Connection, node: Node
) -> None:
    async def latest() -> tuple[int, int]:
        partition = request("ListOffsets", "topics.partitions", partition_index=0, timestamp=-3)
        topic = request("ListOffsets", "topics", name="t", partitions=[partition])
        row = (await client.ask("ListOffsets", 11, replica_id=-1, topics=[topic])).topics[0].partitions[0]
        return row.offset, row.timestamp

    assert await latest() == (-1, -1)
    for time_ms, said_ms in ((1000, 1000), (5000, 9000), (5000, 5000), (0, 0)):
        data = record_batch.encode([(time_ms, None, b"v", [])], record_batch.Codec.NONE)
        await append(node, record_batch.stamped_max_timestamp(data, said_ms))
    assert await latest() == (1, 5000)


@pytest.mark.parametrize("version", [10, 12])
async def test_a_topic_is_asked_for_by_its_id_where_an_answer_can_leave_out_its_name(
    client: Connection, version: int
) -> None:
    asked = request("Metadata", "topics", topic_id=b"0" * 16, name=None)
    [topic] = (await client.ask("Metadata", version, topics=[asked])).topics
    assert topic.error_code == (Error.INVALID_REQUEST if version < 12 else Error.UNKNOWN_TOPIC_ID)


async def test_an_answer_that_cannot_be_written_ends_the_connection(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("this version has no null here")

    monkeypatch.setattr(service, "finish_response", fail)
    client.send("Metadata", 12, request("Metadata", topics=None))
    assert await client.is_closed()


@pytest.mark.parametrize("codec", [record_batch.Codec.NONE, record_batch.Codec.LZ4])
async def test_a_value_that_does_not_follow_the_schema_is_named(
    client: Connection, node: Node, codec: record_batch.Codec
) -> None:
    schema = '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
    await node.shard.create_topic("rides", 2, 1, {"value_schema": schema})
    values = [b'{"id":1}', b'{"id":2}', b'{"id":"x"}']
    wrong, right = (
        record_batch.encode([(1, None, value, []) for value in some], codec) for some in (values, values[:2])
    )
    client.send("Produce", 9, produce("rides", {0: bytes(wrong), 1: bytes(right)}))
    refused, stored = (await client.receive()).responses[0].partition_responses
    assert (refused.error_code, refused.base_offset) == (Error.INVALID_RECORD, -1)
    assert [one.batch_index for one in refused.record_errors] == [2]
    assert '/id: the value is not of type "integer"' in refused.error_message
    assert (stored.error_code, stored.base_offset) == (0, 0)


async def test_a_value_of_a_registry_is_checked_and_waits_for_its_schema(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    with stub_registry() as registry:
        good = registry.add("rides-value", json.dumps(AVRO))
        async with kafka_node(tmp_path, schema_registry_url=registry.url) as (node, _), connected(node) as client:
            await node.shard.create_topic("rides", 1, 1, {"value_schema_type": "avro"})

            async def produced(*values: bytes) -> Message:
                data = record_batch.encode([(1, b"k", value, []) for value in values])
                client.send("Produce", 9, produce("rides", {0: bytes(data)}))
                return (await client.receive()).responses[0].partition_responses[0]

            assert (await produced(avro_ride(good))).error_code == 0
            refused = await produced(avro_ride(good), avro_ride(9))
            assert refused.error_code == Error.INVALID_RECORD
            assert [one.batch_index for one in refused.record_errors] == [1]
            registry.is_silent = True
            assert (await produced(avro_ride(7))).error_code == Error.NOT_ENOUGH_REPLICAS
            assert (await produced(avro_ride(good))).error_code == 0
