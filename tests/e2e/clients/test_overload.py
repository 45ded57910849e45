"""Ten times the capacity at once: rejections carry Retry-After, accepted records are stored once, and retries after
that time succeed.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.disks.test_disk_faults import injected, log_file
from tests.e2e.node_process import running_process
from tests.scenarios.conformity import assert_problem
from tests.scenarios.gateways import NDJSON, over_http2

pytestmark = pytest.mark.e2e

MIB = 2**20
BODY_BYTES = 200_000
BODIES = 100


def line(number: int) -> bytes:
    return b'"%d%s"\n' % (number, b"x" * BODY_BYTES)


def check_refusal(answer) -> float:
    """Check that a rejection is well-formed; return how long to wait."""
    assert answer.status in (429, 503), answer.body[:300]
    problem = assert_problem(answer, answer.json["code"], retryable=True, no_side_effects=True)
    assert problem["code"] in ("overloaded", "too_many_requests")
    return float(answer.headers["Retry-After"])


async def stored(topic) -> list[int]:
    numbers, offset = [], 0
    while True:
        answer = await topic.fetch(offset, max_bytes=4 * MIB)
        if not answer.json["records"]:
            return numbers
        numbers += [int(record["value"].rstrip("x")) for record in answer.json["records"]]
        offset = answer.json["next_offset"]


async def come_back(topic, numbers: list[int], wait_s: float) -> None:
    """Retry rejected requests after their Retry-After, a few at a time."""
    await asyncio.sleep(wait_s)
    for start in range(0, len(numbers), 4):
        answers = await asyncio.gather(*(topic.post(line(n), NDJSON) for n in numbers[start : start + 4]))
        assert [answer.status for answer in answers] == [200] * len(answers)


async def test_a_burst_of_bodies_is_shed_and_is_over_after_retry_after(tmp_path):
    settings = {
        "request_bytes_in_flight_max": 2 * MIB,
        "connection_bytes_in_flight_max": 2 * MIB,
        "request_body_bytes_max": MIB,
        "body_read_timeout_ms": 10_000,
    }
    with running_process(tmp_path, **settings) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("burst")
            answers = await asyncio.gather(*(topic.post(line(n), NDJSON) for n in range(BODIES)))
            refused = [n for n, answer in enumerate(answers) if answer.status != 200]
            assert refused, "20 MB at once are ten times what fits"
            await come_back(topic, refused, max(check_refusal(answers[n]) for n in refused))
            assert sorted(await stored(topic)) == list(range(BODIES)), (
                "each once; rejected bodies only after their retry"
            )
        assert process.stop() == 0
        assert "Traceback" not in process.errors


async def test_a_full_append_queue_is_shed_and_is_over_after_retry_after(tmp_path):
    """The disk stalls until a request is refused, so that requests pile up."""
    settings = {"append_queue_bytes_max": 2 * MIB, "request_body_bytes_max": MIB}
    with running_process(tmp_path, **settings) as process:
        async with over_http2(process.port) as gateway:
            topic = await gateway.create("t")
            assert (await topic.post(line(0), NDJSON)).status == 200
            with injected(process, log_file(tmp_path, 0), "delay_enter=90000000:when=1", tmp_path / "strace"):
                posts = [asyncio.create_task(topic.post(line(n), NDJSON)) for n in range(1, BODIES)]
                await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
                assert (await topic.fetch(0, max_records=1)).status == 200, "reads go on"
            answers = await asyncio.gather(*posts)
            refused = [n for n, answer in enumerate(answers, 1) if answer.status != 200]
            assert refused, "20 MB are ten times what may wait"
            assert len(refused) < BODIES - 1, "what fits is taken"
            await come_back(topic, refused, max(check_refusal(answers[n - 1]) for n in refused))
            assert sorted(await stored(topic)) == list(range(BODIES))
        assert process.stop() == 0
        assert "Traceback" not in process.errors
