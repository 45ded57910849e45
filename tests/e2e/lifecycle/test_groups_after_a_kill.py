"""A group after `kill -9` of its node: members, assignment and positions are those that were answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.calls import call
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e


def values(delivery: Any) -> list[int]:
    return sorted(record["value"] for part in delivery["partitions"] for record in part["records"])


def test_a_group_survives_a_kill_of_its_node(tmp_path: Path) -> None:
    poll = "/v1/groups/g/members/a/poll"
    with running_process(tmp_path) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 2})
        call(f"{node.url}/v1/topics/t/records", "POST", {"records": [{"value": 1, "partition": 0}]})
        first = call(node.url + poll, "POST", {"topics": ["t"]})
        call(f"{node.url}/v1/topics/t/records", "POST", {"records": [{"value": 2, "partition": 1}]})
        second = call(node.url + poll, "POST", {"token": first["token"]})
        assert (values(first), values(second)) == ([1], [2])
        node.kill()
    with running_process(tmp_path) as node:
        again = call(node.url + poll, "POST", {"token": first["token"]})
        assert (values(again), again["assigned"], again["member_epoch"]) == ([2], 2, first["member_epoch"])
        assert values(call(node.url + poll, "POST", {"token": again["token"]})) == []
        offsets = call(f"{node.url}/v1/groups/g/offsets")["offsets"]
        assert [one["offset"] for one in offsets] == [1, 1]
