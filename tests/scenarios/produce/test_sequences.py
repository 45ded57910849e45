"""Sequenced producers over HTTP: a repeated request is stored once, for every kind of body."""

import asyncio

import pytest

from engine.format import batch
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH

EVENT = "application/cloudevents+json"
BODIES = {
    JSON: b'{"records":[{"value":1},{"value":2}]}',
    NDJSON: b"1\n2",
    "text/plain": b"one",
    EVENT: b'{"specversion":"1.0","id":"4","source":"/s","type":"t","data":4}',
    RECORD_BATCH: bytes(batch.encode_values([b"1", b"2"], 5)),
}


def headers(producer: int, epoch: int, seq: int) -> dict[str, str]:
    return {"Producer-Id": str(producer), "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


async def new_id(gateway) -> int:
    return (await gateway.send("POST", "/v1/producers")).json["producer_id"]


class Producer:
    """One producer of one partition, with explicit sequence numbers."""

    def __init__(self, topic, partition: int, producer_id: int) -> None:
        self.topic, self.partition, self.id = topic, partition, producer_id

    async def send(self, seq: int, body: bytes = b"1", content_type: str = NDJSON, *, epoch: int = 0, **query):
        given = headers(self.id, epoch, seq)
        return await self.topic.post(body, content_type, given, to=self.partition, **query)


async def new_producer(topic, partition: int = 0) -> Producer:
    return Producer(topic, partition, await new_id(topic.gateway))


@pytest.mark.parametrize("partition", [0, 1])
async def test_a_request_sent_again_is_stored_once_and_answered_as_it_was(both, partition):
    producer = await new_producer(both, partition)
    first, again = await producer.send(0, b"1\n2"), await producer.send(0, b"1\n2")
    assert (first.status, again.status) == (200, 200)
    assert "Penstock-Duplicate" not in first.headers
    assert again.headers["Penstock-Duplicate"] == "true"
    (result,) = first.json["results"]
    assert again.json["results"] == [result | {"duplicate": True}]
    assert (await producer.send(2, b"3")).json["results"][0]["base_offset"] == 2
    assert await both.values(partition) == [1, 2, 3]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("content_type", [NDJSON, RECORD_BATCH])
async def test_what_is_stored_says_whose_it_is_and_keeps_a_right_checksum(new_topic, content_type, compression):
    topic = await new_topic(compression=compression, timestamp_type="append")
    producer = await new_producer(topic)
    await producer.send(0, BODIES[content_type], content_type, epoch=3)
    await producer.send(2, BODIES[content_type], content_type, epoch=3)
    data = (await topic.fetch(accept=RECORD_BATCH)).body
    stored = [header for at, header in batch.walk(data) if batch.has_valid_crc(data, at, header)]
    sequences = [(header.producer_id, header.producer_epoch, header.base_sequence) for header in stored]
    assert sequences == [(producer.id, 3, 0), (producer.id, 3, 2)]


@pytest.mark.parametrize("partition", [0, 1])
async def test_a_newer_epoch_shuts_out_the_older_one(both, partition):
    producer = await new_producer(both, partition)
    await producer.send(0, epoch=1)
    assert_problem(await producer.send(1, epoch=2), "sequence_gap", expected_seq=0)
    assert (await producer.send(0, epoch=2)).status == 200
    fenced = await producer.send(1, epoch=1)
    assert fenced.status == 403
    assert_problem(fenced, "producer_fenced", producer_epoch=2, retryable=False, no_side_effects=True)
    assert fenced.headers["Producer-Epoch"] == "2"


@pytest.mark.parametrize("partition", [0, 1])
async def test_a_repeat_while_the_first_is_under_way_is_stored_once(both, partition):
    producer = await new_producer(both, partition)
    answers = await asyncio.gather(*(producer.send(0, b"1\n2") for _ in range(6)))
    assert {answer.json["results"][0]["base_offset"] for answer in answers} == {0}
    assert sorted("Penstock-Duplicate" in answer.headers for answer in answers) == [False] + [True] * 5
    assert await both.values(partition) == [1, 2]


async def test_how_appends_were_judged_is_counted(both):
    names = ["duplicate_appends_total", "older_duplicates_total", "fenced_appends_total", "sequence_gaps_total"]
    names = ["penstock_producers", *(f"penstock_{name}" for name in names)]
    before = [await both.gateway.metric(name) for name in names]
    producer = await new_producer(both, 1)
    for seq in range(17):
        await producer.send(seq, epoch=1, acks="1")
    for seq, epoch in ((16, 1), (15, 1), (0, 1), (17, 0), (18, 1)):
        await producer.send(seq, epoch=epoch)
    after = [await both.gateway.metric(name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 2, 1, 1, 1]


@pytest.mark.parametrize("acks", ["0", "1"])
async def test_sequences_hold_with_other_acks_too(topic, acks):
    producer = await new_producer(topic)
    for _ in range(2):
        assert (await producer.send(0, acks=acks)).status in (200, 202)
    assert (await producer.send(1)).json["results"][0]["base_offset"] == 1
    assert await topic.values() == [1, 1]


@pytest.mark.parametrize("partition", [0, 1])
async def test_a_request_that_overtakes_the_first_one_is_refused(both, partition):
    """Before, it was stored, and the first one was then a gap permanently (KAFKA-15591)."""
    producer = await new_producer(both, partition)
    early = await producer.send(2, b"3")
    assert early.status == 409
    assert_problem(early, "sequence_gap", expected_seq=0, received_seq=2, retryable=True, no_side_effects=True)
    assert (await producer.send(0, b"1\n2")).status == 200
    assert (await producer.send(2, b"3")).status == 200
    assert await both.values(partition) == [1, 2, 3]
