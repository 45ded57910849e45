"""`Content-Encoding` gzip and zstd on any body, and decompression bombs."""

import gzip

import pytest
import zstandard

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import JSON, NDJSON, http2_only

pytestmark = http2_only

PACK = {"gzip": gzip.compress, "zstd": zstandard.compress}
LIMIT = 8 * 2**20


@pytest.mark.parametrize("encoding", PACK)
async def test_every_kind_of_body_may_be_compressed(topic, encoding):
    headers = {"Content-Encoding": encoding}
    await topic.post(PACK[encoding](b'{"records":[{"value":"json"}]}'), JSON, headers)
    await topic.post(PACK[encoding](b'"lines"\n'), NDJSON, headers)
    await topic.post(PACK[encoding](b"raw"), "text/plain", headers)
    assert await topic.values() == ["json", "lines", "raw"]


@pytest.mark.parametrize("encoding", PACK)
async def test_several_members_are_one_body(topic, encoding):
    packed = PACK[encoding](b"1\n2") + PACK[encoding](b"3\n") + PACK[encoding](b"4\n")
    await topic.post(packed, NDJSON, {"Content-Encoding": encoding})
    assert await topic.values() == [1, 23, 4]


@pytest.mark.parametrize("encoding", PACK)
async def test_a_body_of_exactly_the_limit_is_unpacked_and_one_byte_more_is_not(start_gateway, encoding):
    gateway = await start_gateway(request_body_bytes_max=100_000)
    topic = await gateway.create("limits")
    headers = {"Content-Encoding": encoding}
    assert (await topic.post(PACK[encoding](b"x" * 100_000), "text/plain", headers)).status == 200
    refused = await topic.post(PACK[encoding](b"x" * 100_001), "text/plain", headers)
    assert_problem(refused, "body_too_large", limit=100_000)


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("members", [1, 100])
async def test_a_bomb_is_stopped_at_the_limit(topic, encoding, members):
    """100 MiB in 200 kB or less, in one member or in many."""
    bomb = PACK[encoding](bytes(100 * 2**20 // members)) * members
    assert len(bomb) < 200_000
    answer = await topic.post(bomb, "application/octet-stream", {"Content-Encoding": encoding})
    assert_problem(answer, "body_too_large", limit=LIMIT)


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("damage", ["plain", "cut", "flipped", "trailing"])
async def test_a_body_that_is_not_what_its_encoding_says_is_refused(topic, encoding, damage):
    packed = PACK[encoding](b'{"records":[{"value":"' + bytes(range(97, 123)) * 40 + b'"}]}')
    middle = len(packed) // 2
    body = {
        "plain": b'{"records":[]}',
        "cut": packed[:-3],
        "flipped": packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :],
        "trailing": packed + b"garbage",
    }[damage]
    answer = await topic.post(body, JSON, {"Content-Encoding": encoding})
    assert answer.status == 400
    assert await topic.records() == []


async def test_lines_that_arrived_of_a_body_that_was_cut_off_are_not_taken_for_the_body(topic):
    """zstd returns the decoded data without an error for an incomplete frame."""
    packing = zstandard.ZstdCompressor().compressobj()
    cut = packing.compress(b"1\n2\n") + packing.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert_problem(await topic.post(cut, NDJSON, {"Content-Encoding": "zstd"}), "invalid_body")
    assert await topic.records() == []


async def test_a_body_of_nothing_but_empty_members_is_refused(topic):
    """Before their number was bounded, 400,000 members in 8 MB used a core for seconds."""
    body = gzip.compress(b"") * (LIMIT // 20)
    assert_problem(await topic.post(body, NDJSON, {"Content-Encoding": "gzip"}), "invalid_body")


async def test_the_encoding_may_be_written_in_any_case(topic):
    assert (await topic.post(gzip.compress(b"1\n"), NDJSON, {"Content-Encoding": "GZIP"})).status == 200
