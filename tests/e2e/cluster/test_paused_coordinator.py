"""A coordinator of a share group that was paused hands out nothing that another one has had accepted meanwhile."""

from __future__ import annotations

import os
import signal
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import described, group_coordinated_by, produce, running_cluster, until
from tests.e2e.lifecycle.test_shards import children
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

LOCK_MS = 4000


def acquire(url: str, group: str, count: int = 10, wait_ms: int = 0) -> dict[str, Any]:
    body = {"topics": ["t"], "max_records": count, "wait_ms": wait_ms, "lock_ms": LOCK_MS}
    found: dict[str, Any] = call(f"{url}/v1/groups/{group}/acquire", "POST", body)
    return found


def values(acquired: dict[str, Any]) -> list[Any]:
    return [record["value"] for record in acquired["records"]]


def accept(url: str, group: str, acquired: dict[str, Any]) -> None:
    records = [{key: one[key] for key in ("topic", "partition", "offset")} for one in acquired["records"]]
    body = {"lock": acquired["lock"], "outcome": "accept", "records": records}
    assert call(f"{url}/v1/groups/{group}/acknowledge", "POST", body)["refused"] == []


def test_a_paused_coordinator_delivers_nothing_that_was_accepted_elsewhere(tmp_path: Path) -> None:
    """Before: it delivered the four records again. Its shard goes on before its supervisor can report a new leader."""
    with running_cluster(tmp_path, **{"produce-timeout-ms": 1000}) as cluster:
        cluster.create("t")
        leader = described(cluster.nodes[1].url, "t")[0]["leader"]
        node, other = cluster.others(leader)
        for value in range(5):
            produce(other.url, "t", value)
        group = group_coordinated_by(other.url, node.node_id)
        call(f"{other.url}/v1/groups/{group}", "PUT", {"config": {"kind": "share"}})
        first = acquire(node.url, group, 1)
        assert values(first) == [0]
        accept(node.url, group, first)

        node.send(signal.SIGSTOP)
        try:
            taken: dict[str, Any] = {}

            def is_taken_over() -> bool:
                taken.update(acquire(other.url, group))
                return bool(taken["records"])

            until(is_taken_over)
            assert values(taken) == [1, 2, 3, 4]
            accept(other.url, group, taken)
            os.kill(children(node.pid)["node.processes.shard_process"], signal.SIGCONT)
            # the calls that reached it while it was paused may hold the records: it waits until such locks are over
            with pytest.raises(urllib.error.HTTPError, match="503"):
                acquire(node.url, group, wait_ms=2 * LOCK_MS)
        finally:
            node.send(signal.SIGCONT)

        produce(other.url, "t", 5)
        last: dict[str, Any] = {}

        def is_delivered() -> bool:
            last.update(acquire(node.url, group))
            return bool(last["records"])

        until(is_delivered)
        assert values(last) == [5], "the node asks the coordinator of now"
