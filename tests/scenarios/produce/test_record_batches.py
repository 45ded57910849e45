"""`application/vnd.penstock.recordbatch`: stored bytes in and out; checked and stamped, not encoded again."""

from engine.format import batch as record_batch
from engine.format.batch import Codec, Row
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import RECORD_BATCH, in_process_only

T0 = 1_700_000_000_000


def batch_of(*values: bytes, codec: Codec = Codec.NONE) -> bytearray:
    return record_batch.encode([Row(T0 + n, b"k%d" % n, value, [("h", b"x")]) for n, value in enumerate(values)], codec)


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


async def test_a_batch_without_a_time_gets_that_of_its_arrival(topic):
    [before] = [result["timestamp"] for result in (await topic.post_lines("0")).json["results"]]
    rows = [Row(record_batch.NO_TIMESTAMP, None, value, []) for value in (b"1", b"2")]
    await topic.post(bytes(record_batch.encode(rows)), RECORD_BATCH)
    [_, first, second] = await topic.records()
    assert before <= first["timestamp"] == second["timestamp"] < before + 3_600_000


@in_process_only
async def test_a_batch_over_the_record_limit_is_refused(start_gateway):
    topic = await (await start_gateway(records_per_request_max=2)).create("few")
    assert (await topic.post(bytes(batch_of(b"1", b"2")), RECORD_BATCH)).status == 200
    assert_problem(await topic.post(bytes(batch_of(b"1", b"2", b"3")), RECORD_BATCH), "body_too_large", limit=2)
