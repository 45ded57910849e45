"""A worker and a node are killed in the middle of a compaction: the table stays, and is compacted later."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.e2e.calls import call
from tests.e2e.lifecycle.test_shards import children, is_alive
from tests.e2e.node_process import NodeProcess, running_process
from tests.waiting import wait_until

KEYS = 200
SETTINGS = {"shards": 2, "compaction_check_ms": 50}
CONFIG = {"cleanup_policy": "compact", "segment_bytes": 65536, "min_cleanable_dirty_percent": 1}


def write(node: NodeProcess, round_: int) -> dict[str, int]:
    rows = {f"k{at}": 1000 * round_ + at for at in range(KEYS)}
    for _ in range(20):
        lines = b"\n".join(b'{"key":"%b","value":%d}' % (key.encode(), value) for key, value in rows.items())
        call(f"{node.url}/v1/topics/t/records?ndjson=records", "POST", lines, "application/x-ndjson")
    call(f"{node.url}/v1/topics/t/roll", "POST")
    return rows


def table_of(node: NodeProcess) -> dict[str, int]:
    """Return the fold of the log."""
    table, offset = {}, 0
    while True:
        answer = call(f"{node.url}/v1/topics/t/partitions/0/records?offset={offset}")
        assert [one["offset"] for one in answer["records"]] == sorted({one["offset"] for one in answer["records"]})
        table |= {one["key"]: one["value"] for one in answer["records"]}
        if answer["next_offset"] == offset:
            return table
        offset = answer["next_offset"]


def is_compacting(directory: Path) -> bool:
    return bool(list(directory.glob("**/*.compacted.tmp")))


def is_compacted(node: NodeProcess) -> bool:
    return call(f"{node.url}/v1/topics/t")["partitions"][0]["size_bytes"] < 40_000


@pytest.mark.e2e
def test_kills_of_the_worker_and_of_the_node_in_the_middle_of_a_compaction(tmp_path: Path) -> None:
    slow = SETTINGS | {"compaction_bytes_per_second": 65536}
    with running_process(tmp_path, **slow) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 1, "config": CONFIG})
        rows = write(node, 1)
        wait_until(lambda: is_compacting(tmp_path))
        os.kill(children(node.pid)["node.processes.worker_process"], signal.SIGKILL)
        assert table_of(node) == rows
        rows = write(node, 2)
        wait_until(lambda: is_compacting(tmp_path))
        processes = children(node.pid).values()
        for process in (node.pid, *processes):
            os.kill(process, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, processes)))
    assert is_compacting(tmp_path)
    with running_process(tmp_path, **SETTINGS) as node:
        assert table_of(node) == rows
        wait_until(lambda: is_compacted(node))
        assert table_of(node) == rows
        assert not is_compacting(tmp_path)
        assert call(f"{node.url}/v1/topics/t/table/k7")["value"] == 2007
        with pytest.raises(HTTPError, match="404"):
            call(f"{node.url}/v1/topics/t/table/none")
