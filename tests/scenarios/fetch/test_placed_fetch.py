"""Large stored batches of partitions of either shard: the accepting shard reads those of the other from its file."""

from engine.format import batch as record_batch
from tests.scenarios.gateways import RECORD_BATCH

PARTITIONS, BATCHES, SEALED = 4, 8, 5


async def test_stored_batches_are_the_same_from_either_shard(new_topic):
    topic = await new_topic(PARTITIONS)
    for number in range(BATCHES):
        for partition in range(PARTITIONS):
            values = [b'"%d %d %b"' % (partition, number, b"x" * 20_000)] * 2
            body = record_batch.encode_values(values, 1_700_000_000_000)
            path = f"{topic.path}/partitions/{partition}/records"
            stored = await topic.gateway.send("POST", path, body, {"Content-Type": RECORD_BATCH}, acks="all")
            assert stored.status == 200
        if number == SEALED - 1:
            await topic.roll()
    for partition in range(PARTITIONS):
        path = f"{topic.path}/partitions/{partition}/records"
        for offset, max_bytes in ((0, 1 << 20), (3, 1 << 20), (0, 90_000), (2 * SEALED + 1, 1 << 20), (0, 1)):
            for _ in range(2):
                answer = await topic.gateway.send(
                    "GET", path, b"", {"Accept": RECORD_BATCH}, offset=offset, max_bytes=max_bytes
                )
                headers = [header for _, header in record_batch.walk(answer.body)]
                values = [
                    record.value
                    for _, batch in _batches(answer.body)
                    for record in record_batch.decode_one(batch, 1 << 20)
                ]
                first = offset // 2
                assert headers[0].base_offset == 2 * first == int(answer.headers["Penstock-Base-Offset"])
                end = int(answer.headers["Penstock-Next-Offset"])
                assert headers[-1].next_offset == end
                assert [value.split()[:2] for value in values] == [
                    [b'"%d' % partition, b"%d" % (at // 2)] for at in range(2 * first, end)
                ]
                assert answer.headers["Penstock-High-Watermark"] == str(2 * BATCHES)
                assert ("ETag" in answer.headers) == (offset < 2 * SEALED)
            if "ETag" in answer.headers:
                conditional = {"Accept": RECORD_BATCH, "If-None-Match": answer.headers["ETag"]}
                again = await topic.gateway.send("GET", path, b"", conditional, offset=offset, max_bytes=max_bytes)
                assert (again.status, again.body) == (304, b"")


def _batches(data):
    return [(position, data[position : position + header.size_bytes]) for position, header in record_batch.walk(data)]
