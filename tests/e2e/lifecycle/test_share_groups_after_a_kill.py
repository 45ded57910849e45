"""A share group after `kill -9` of its node: outcomes hold, locks are gone, delivery counts are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.calls import call
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e

GROUP = "/v1/groups/g"


def test_outcomes_and_delivery_counts_survive_a_kill(tmp_path: Path) -> None:
    with running_process(tmp_path) as node:
        for topic in ("t", "dead"):
            call(f"{node.url}/v1/topics/{topic}", "PUT", {})
        call(node.url + GROUP, "PUT", {"config": {"kind": "share", "dead_letter_topic": "dead"}})
        call(f"{node.url}/v1/topics/t/records", "POST", {"records": [{"value": number} for number in range(600)]})
        held = call(f"{node.url}{GROUP}/acquire", "POST", {"topics": ["t"], "max_records": 500})
        entries = [
            {"topic": "t", "partition": 0, "offset": 1, "last_offset": 299},
            {"topic": "t", "partition": 0, "offset": 300, "outcome": "release", "delay_ms": 0},
            {"topic": "t", "partition": 0, "offset": 0, "outcome": "reject"},
        ]
        call(f"{node.url}{GROUP}/acknowledge", "POST", {"lock": held["lock"], "records": entries})
        node.kill()
    with running_process(tmp_path) as node:
        found = call(f"{node.url}{GROUP}/acquire", "POST", {"max_records": 1000})
        assert [record["offset"] for record in found["records"]] == list(range(300, 600))
        assert [record["delivery_count"] for record in found["records"]] == [2] * 200 + [1] * 100
        query = "?from=earliest&wait_ms=20000"
        [dead] = call(f"{node.url}/v1/topics/dead/partitions/0/records" + query)["records"]
        assert dead["headers"]["dead-letter-offset"] == "0"
        call(f"{node.url}{GROUP}/acknowledge", "POST", {"lock": found["lock"]})
        assert call(f"{node.url}{GROUP}/acquire", "POST", {})["records"] == []
