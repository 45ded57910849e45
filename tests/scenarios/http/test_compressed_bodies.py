"""`Content-Encoding` gzip and zstd on any body, and decompression bombs."""

import gzip

import pytest
import zstandard

from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON, http2_only

pytestmark = http2_only

PACK = {"gzip": gzip.compress, "zstd": zstandard.compress}
LIMIT = 8 * 2**20


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


async def test_a_body_of_nothing_but_empty_members_is_refused(topic):
    """Before their number was bounded, 400,000 members in 8 MB used a core for seconds."""
    body = gzip.compress(b"") * (LIMIT // 20)
    assert_problem(await topic.post(body, NDJSON, {"Content-Encoding": "gzip"}), "invalid_body")
