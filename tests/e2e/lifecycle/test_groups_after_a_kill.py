"""A group after `kill -9` of its node: members, assignment and positions are those that were answered."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e


def call(url: str, path: str, body: object | None = None, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read() or b"null")


def values(delivery: Any) -> list[int]:
    return sorted(record["value"] for part in delivery["partitions"] for record in part["records"])


def test_a_group_survives_a_kill_of_its_node(tmp_path: Path) -> None:
    poll = "/v1/groups/g/members/a/poll"
    with running_process(tmp_path) as node:
        call(node.url, "/v1/topics/t", {"partitions": 2}, "PUT")
        call(node.url, "/v1/topics/t/records", {"records": [{"value": 1, "partition": 0}]})
        first = call(node.url, poll, {"topics": ["t"]})
        call(node.url, "/v1/topics/t/records", {"records": [{"value": 2, "partition": 1}]})
        second = call(node.url, poll, {"token": first["token"]})
        assert (values(first), values(second)) == ([1], [2])
        node.kill()
    with running_process(tmp_path) as node:
        again = call(node.url, poll, {"token": first["token"]})
        assert (values(again), again["assigned"], again["member_epoch"]) == ([2], 2, first["member_epoch"])
        assert values(call(node.url, poll, {"token": again["token"]})) == []
        offsets = call(node.url, "/v1/groups/g/offsets", method="GET")["offsets"]
        assert [one["offset"] for one in offsets] == [1, 1]
