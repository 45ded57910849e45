"""Invalid content of client batches: `verify=full` rejects it on receipt; with `header` it does not harm readers."""

import pytest
import zstandard

from engine.format.batch import Codec
from tests.engine.handmade import batch, record
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON, RECORD_BATCH, in_process_only

pytestmark = in_process_only

MIB = 2**20
BOMBS = 8


def bomb(mib: int = 944) -> bytes:
    """Return 28 kB that decompress to nearly a gigabyte."""
    return batch(b"", 1, Codec.ZSTD, pack=lambda _: zstandard.compress(bytes(mib * MIB)))


@pytest.fixture(scope="module")
def large_bomb():
    return bomb()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
async def test_honest_batches_are_taken_whatever_their_size(topic, codec):
    """A few records are checked inline, many in a thread."""
    for count in (1, 1000, 60_000):
        records = b"".join(record(n, b"a value") for n in range(count))
        answer = await topic.post(batch(records, count, codec), RECORD_BATCH)
        assert answer.json["results"][0]["count"] == count


async def test_a_bomb_is_refused_at_the_bound(topic, large_bomb):
    assert len(large_bomb) < 40_000
    assert_problem(await topic.post(large_bomb, RECORD_BATCH), "invalid_batch", limit=64 * MIB)


async def test_the_bound_is_a_setting_of_the_topic(new_topic):
    topic = await new_topic(batch_decoded_bytes_max=10_000)
    records = b"".join(record(n, b"v" * 1000) for n in range(9))
    assert (await topic.post(batch(records, 9, Codec.ZSTD), RECORD_BATCH)).status == 200
    more = batch(records + record(9, b"v" * 1000), 10, Codec.ZSTD)
    assert_problem(await topic.post(more, RECORD_BATCH), "invalid_batch", limit=10_000)


async def test_json_is_not_compressed_into_what_could_not_be_read_again(new_topic):
    topic = await new_topic(batch_decoded_bytes_max=10_000, compression="zstd")
    assert (await topic.post(b'"a value"\n' * 100, NDJSON)).status == 200
    assert_problem(await topic.post(b'"a value"\n' * 10_000, NDJSON), "batch_too_large", limit=10_000)
    assert len(await topic.records()) == 100


async def test_with_verify_header_a_bomb_stops_no_reader(new_topic, large_bomb):
    """Eight of them decompress to 7.5 GB. Each answer has a few batches, and no larger data is buffered."""
    topic = await new_topic(verify="header")
    for _ in range(BOMBS):
        assert (await topic.post(large_bomb, RECORD_BATCH)).status == 200
    await topic.post_lines('"behind"')
    offset, records = 0, []
    while offset <= BOMBS:
        document = (await topic.fetch(offset=offset)).json
        assert document["next_offset"] > offset
        records += document["records"]
        offset = document["next_offset"]
    assert [record["offset"] for record in records] == list(range(BOMBS + 1))
    assert {record.get("error") for record in records[:BOMBS]} == {"undecodable"}
    assert records[BOMBS]["value"] == "behind"


async def test_an_answer_decodes_no_more_than_the_node_allows(start_gateway):
    """40 kB stored that are 6 MiB of records: readers get them in several answers, each record once."""
    topic = await (await start_gateway(fetch_bytes_max=2 * MIB)).create("packed", record_bytes_max=2 * MIB)
    for _ in range(6):
        values = b"".join(record(n, b"v" * 1024) for n in range(1024))
        await topic.post(batch(values, 1024, Codec.ZSTD), RECORD_BATCH)
    offset, answers = 0, []
    while offset < 6 * 1024:
        document = (await topic.fetch(offset=offset)).json
        answers.append([record["offset"] for record in document["records"]])
        assert document["next_offset"] == answers[-1][-1] + 1
        offset = document["next_offset"]
    assert [offset for offsets in answers for offset in offsets] == list(range(6 * 1024))
    assert len(answers) == 3
