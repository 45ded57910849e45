"""A real node whose wall clock is wrong or is stepped while it runs."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import orjson
import pytest

from tests.e2e.calls import call
from tests.e2e.node_process import running_process
from tests.skew.shifted_clock import ShiftedClock

pytestmark = pytest.mark.e2e

DAY_MS = 86_400_000
TOLERANCE_MS = 600_000


def produce(url: str, value: int, key: str) -> tuple[dict[str, int], bool, int]:
    """Return the result, whether it is a duplicate, and the promised window in seconds."""
    body = orjson.dumps({"records": [{"value": value}]})
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(f"{url}/v1/topics/t/records", body, headers, method="POST")
    with urllib.request.urlopen(request) as response:
        answer, headers = orjson.loads(response.read()), response.headers
    return answer["results"][0], "Penstock-Duplicate" in headers, int(headers["Penstock-Idempotency-Window"])


def test_a_node_stamps_what_its_own_clock_says(tmp_path: Path) -> None:
    clock = ShiftedClock(tmp_path / "clock", DAY_MS)
    with running_process(tmp_path, environment=clock.environment(), shards=2) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 1})
        result, is_duplicate, _ = produce(node.url, 1, "a")
        assert abs(result["timestamp"] - time.time() * 1000 - DAY_MS) < TOLERANCE_MS
        assert not is_duplicate


def test_steps_and_a_wrong_clock_at_a_start_forget_no_key_and_no_record(tmp_path: Path) -> None:
    """The steps are longer than the window of keys and the retention of records, in both directions."""
    clock = ShiftedClock(tmp_path / "clock")
    with running_process(tmp_path, environment=clock.environment(), shards=2) as node:
        week = {"retention_ms": 7 * DAY_MS, "local_retention_ms": 7 * DAY_MS}
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 1, "config": week})
        first, _, promised_s = produce(node.url, 1, "a")
        assert promised_s > 0
        call(f"{node.url}/v1/topics/t/roll", "POST")
        for ahead_ms in (30 * DAY_MS, -30 * DAY_MS):
            clock.step(ahead_ms)
            until_stamped(node.url, ahead_ms)
            again, is_duplicate, left_s = produce(node.url, 1, "a")
            assert (is_duplicate, again["base_offset"]) == (True, first["base_offset"])
            assert left_s > promised_s - 120
        node.kill()
    clock.step(60 * DAY_MS)
    with running_process(tmp_path, environment=clock.environment(), shards=2) as node:
        time.sleep(2.5)  # housekeeping visits every partition each second
        again, is_duplicate, _ = produce(node.url, 1, "a")
        assert (is_duplicate, again["base_offset"]) == (True, first["base_offset"])
        assert call(f"{node.url}/v1/topics/t")["partitions"][0]["local_log_start"] == 0
        read = call(f"{node.url}/v1/topics/t/partitions/0/records?offset=0")
        assert read["records"][0]["value"] == 1


def until_stamped(url: str, ahead_ms: int) -> None:
    """A process notices a step within 20 ms."""
    for number in range(200):
        result, _, _ = produce(url, 0, f"{ahead_ms} {number}".replace(" ", "-"))
        if abs(result["timestamp"] - time.time() * 1000 - ahead_ms) < TOLERANCE_MS:
            return
    raise AssertionError(f"the node does not notice a step to {ahead_ms} ms ahead")
