"""The disk of a leader fails a partition: another node becomes leader, and producers see a pause."""

from __future__ import annotations

import time
import urllib.error
from pathlib import Path

import orjson
import pytest

from tests import disk_faults
from tests.e2e.cluster.test_cluster import described, produce, running_cluster, until, values
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(), reason=WHY_NOT),
    pytest.mark.skipif(disk_faults.why_no_injection() is not None, reason="strace is not installed"),
]


def test_a_failed_fsync_moves_the_leadership(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create("t")
        assert produce(cluster.nodes[1].url, "t", 0) == 0
        leader = described(cluster.nodes[1].url, "t")[0]["leader"]
        children = Path(f"/proc/{cluster.nodes[leader].pid}/task/{cluster.nodes[leader].pid}/children").read_text()
        with disk_faults.injected([int(pid) for pid in children.split()], "error=EIO"):
            other = cluster.others(leader)[0].url
            assert _produced(other, "t", 1) == 1, "retried under its key until it is accepted"
            until(lambda: described(other, "t")[0]["leader"] != leader)
        assert values(other, "t") == [0, 1]


def _produced(url: str, topic: str, value: object) -> int:
    """Produce as a client does: the disk may fail after the append, and the client retries with the same key."""
    while True:
        try:
            return produce(url, topic, value)
        except urllib.error.HTTPError as error:
            problem = orjson.loads(error.read())
            assert problem["retryable"], problem
            time.sleep(0.1)
