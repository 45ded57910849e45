"""A compacted topic in a cluster: each replica cleans its own log, and one that was away does not keep deleted keys."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import described, running_cluster, until
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

CONFIG = {"cleanup_policy": "compact", "min_cleanable_dirty_percent": 1, "delete_retention_ms": 100}


def write(url: str, rows: dict[str, object]) -> None:
    records = [{"key": key, "value": value} for key, value in rows.items()]
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/topics/t/records", orjson.dumps({"records": records}), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
    call(f"{url}/v1/topics/t/roll", "POST")


def records(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call(f"{url}/v1/topics/t/partitions/0/records?from=earliest")["records"]
    return found


def row(url: str, key: str) -> object:
    try:
        return call(f"{url}/v1/topics/t/table/{key}")["value"]
    except urllib.error.HTTPError as error:
        return orjson.loads(error.read())["code"]


def is_on_a_disk(word: bytes, directory: Path) -> bool:
    try:
        return any(word in path.read_bytes() for path in directory.glob("node-*/topics/t/*/0/*.log"))
    except FileNotFoundError:  # a compaction has replaced the file since it was listed
        return True


@pytest.mark.long
def test_a_replica_that_was_away_sees_the_tombstones_when_it_returns(tmp_path: Path) -> None:
    with running_cluster(tmp_path, **{"compaction-check-ms": 50}) as cluster:
        cluster.create("t", **CONFIG)
        leader = described(cluster.nodes[1].url, "t")[0]["leader"]
        url, (away, _) = cluster.nodes[leader].url, cluster.others(leader)
        write(url, {"gone": 1, "stays": 1})
        until(lambda: len(described(url, "t")[0]["in_sync"]) == 3)
        away.kill()
        until(lambda: len(described(url, "t")[0]["in_sync"]) == 2)
        write(url, {"gone": None, "stays": 2})
        until(lambda: [one["offset"] for one in records(url)] == [2, 3])  # compacted
        time.sleep(1)  # ten times the retention
        assert [one["offset"] for one in records(url)] == [2, 3]
        away.begin_start()
        away.wait_until_ready()
        until(lambda: len(described(url, "t")[0]["in_sync"]) == 3)
        until(lambda: row(away.url, "gone") == "unknown_key")
        write(url, {"more": 1})  # a follower seals its segment when the next one begins at the leader
        until(lambda: [one["offset"] for one in records(url)] == [3, 4])  # all have compacted beyond the tombstone
        until(lambda: not is_on_a_disk(b"gone", tmp_path))
        cluster.nodes[leader].kill()
        until(lambda: row(away.url, "stays") == 2)
        assert row(away.url, "gone") == "unknown_key"
