"""`application/vnd.penstock.recordbatch`: stored bytes in and out; checked and stamped, not encoded again."""

import struct

import pytest
from crc32c import crc32c

from engine.format import batch as record_batch
from engine.format.batch import Codec, Row
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import RECORD_BATCH, in_process_only

T0 = 1_700_000_000_000
ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, MAX_TIMESTAMP_AT, COUNT_AT = 21, 23, 35, 57


def batch_of(*values: bytes, codec: Codec = Codec.NONE) -> bytearray:
    return record_batch.encode([Row(T0 + n, b"k%d" % n, value, [("h", b"x")]) for n, value in enumerate(values)], codec)


def with_crc(batch: bytearray) -> bytes:
    """Return the batch with a correct checksum for its current content."""
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
async def test_a_batch_in_any_compression_is_stored_and_read_as_records(topic, codec):
    sent = batch_of(b'{"a":1}', b"[2]", codec=codec)
    (result,) = (await topic.post(bytes(sent), RECORD_BATCH)).json["results"]
    assert (result["base_offset"], result["count"]) == (0, 2)
    first, second = await topic.records()
    assert (first["offset"], first["key"], first["value"], first["timestamp"]) == (0, "k0", {"a": 1}, T0)
    assert (second["offset"], second["key"], second["value"], second["headers"]) == (1, "k1", [2], {"h": "x"})


async def test_only_offset_and_epoch_of_a_batch_are_changed(topic):
    await topic.post_lines("0", "1", "2")
    sent = batch_of(b"a", b"b", codec=Codec.ZSTD)
    await topic.post(bytes(sent), RECORD_BATCH)
    back = await topic.fetch(offset=3, accept=RECORD_BATCH)
    header = record_batch.read_header(back.body)
    assert (header.base_offset, header.next_offset) == (3, 5)
    assert back.body[16:] == sent[16:]


async def test_a_fetched_batch_can_be_produced_again(new_topic):
    source, target = await new_topic(), await new_topic()
    await source.post_records({"key": "k", "value": {"a": 1}, "timestamp": 5})
    stored = await source.fetch(accept=RECORD_BATCH)
    await target.post(stored.body, RECORD_BATCH)
    assert await target.records() == await source.records()


async def test_append_time_is_stamped_into_a_batch(new_topic):
    topic = await new_topic(timestamp_type="append")
    await topic.post(bytes(batch_of(b"1", b"2")), RECORD_BATCH)
    assert all(record["timestamp"] > T0 + 1 for record in await topic.records())


async def test_a_batch_goes_to_the_partition_that_is_asked_for(new_topic):
    topic = await new_topic(3)
    await topic.post(bytes(batch_of(b"1")), RECORD_BATCH, to=2)
    await topic.post(bytes(batch_of(b"2")), RECORD_BATCH, partition=1)
    assert (await topic.values(2), await topic.values(1)) == ([1], [2])


def wrong_checksum() -> bytes:
    batch = batch_of(b"value")
    batch[-3] ^= 1
    return bytes(batch)


def patched(at: int, form: str, value: int) -> bytes:
    batch = batch_of(b"1", b"2")
    struct.pack_into(form, batch, at, value)
    return with_crc(batch)


@in_process_only
@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(wrong_checksum(), "corrupt_batch", id="wrong checksum"),
        pytest.param(bytes(batch_of(b"1"))[:-1], "invalid_batch", id="cut off"),
        pytest.param(bytes(batch_of(b"1")) + b"\0", "invalid_batch", id="a byte too many"),
        pytest.param(bytes(batch_of(b"1")) * 2, "invalid_batch", id="two batches"),
        pytest.param(b"", "invalid_batch", id="empty"),
        pytest.param(bytes(60), "invalid_batch", id="shorter than a header"),
        pytest.param(bytes(61), "invalid_batch", id="zeros"),
        pytest.param(patched(16, ">b", 1), "invalid_batch", id="magic 1"),
        pytest.param(patched(LAST_OFFSET_DELTA_AT, ">i", 7), "invalid_batch", id="offset delta lies"),
        pytest.param(patched(COUNT_AT, ">i", 0), "invalid_batch", id="no records"),
        pytest.param(patched(COUNT_AT, ">i", -1), "invalid_batch", id="negative count"),
        pytest.param(patched(ATTRIBUTES_AT, ">h", 5), "invalid_batch", id="unknown compression"),
        pytest.param(patched(ATTRIBUTES_AT, ">h", 0x10), "invalid_batch", id="transactional"),
        pytest.param(patched(ATTRIBUTES_AT, ">h", 0x20), "invalid_batch", id="control"),
        pytest.param(patched(MAX_TIMESTAMP_AT, ">q", 2**62), "invalid_body", id="from the far future"),
    ],
)
async def test_a_batch_with_wrong_header_fields_is_refused(topic, body, code):
    assert_problem(await topic.post(body, RECORD_BATCH), code, no_side_effects=True)
    assert await topic.records() == []


@in_process_only
async def test_keys_are_in_the_batch_and_nowhere_else(topic):
    body = bytes(batch_of(b"1"))
    assert_problem(await topic.post(body, RECORD_BATCH, key="k"), "invalid_query")
    assert_problem(await topic.post(body, RECORD_BATCH, {"Penstock-Key": "k"}), "invalid_query")
    assert_problem(await topic.post(body, RECORD_BATCH, key_pointer="/k"), "invalid_query")


@in_process_only
async def test_a_batch_over_the_limit_of_the_topic_is_refused(new_topic):
    topic = await new_topic(batch_bytes_max=1024)
    answer = await topic.post(bytes(batch_of(b"x" * 2000)), RECORD_BATCH)
    assert_problem(answer, "batch_too_large", limit=1024)


@in_process_only
async def test_a_batch_over_the_record_limit_is_refused(start_gateway):
    topic = await (await start_gateway(records_per_request_max=2)).create("few")
    assert (await topic.post(bytes(batch_of(b"1", b"2")), RECORD_BATCH)).status == 200
    assert_problem(await topic.post(bytes(batch_of(b"1", b"2", b"3")), RECORD_BATCH), "body_too_large", limit=2)
