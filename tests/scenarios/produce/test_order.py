"""Requests of one HTTP/2 connection are appended in the order in which they were sent, also in another process."""

import orjson
import pytest

from tests.scenarios.gateways import NDJSON, sharded_only

SMALL, LARGE = 10, 600_000  # LARGE is decoded in a thread


@sharded_only
@pytest.mark.parametrize("acks", ["1", "all"])
async def test_requests_sent_one_behind_the_other_keep_their_order(new_topic, acks):
    tries = [await offsets_of_a_run(await new_topic(2), acks) for _ in range(3)]
    assert [n // 2 for n in range(60)] in tries, "a stalled machine may let one through, but not each time"


async def offsets_of_a_run(topic, acks: str) -> list[int]:
    client = topic.gateway.client
    await client.wait_for_window(LARGE)
    sent = [(n % 2, b'"%d %s"' % (n, b"x" * (LARGE if n % 7 == 0 else SMALL))) for n in range(60)]
    paths = [f"{topic.path}/partitions/{partition}/records?acks={acks}" for partition, _ in sent]
    answers = await client.pipelined("POST", paths, {"Content-Type": NDJSON}, [body for _, body in sent])
    assert {status for status, _ in answers} == {200}
    return [orjson.loads(body)["results"][0]["base_offset"] for _, body in answers]
