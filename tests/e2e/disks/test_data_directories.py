"""A node with several data directories, as real processes: a missing or failing directory affects only its own
partitions.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.calls import call, send
from tests.e2e.disks.test_disk_faults import injected
from tests.e2e.lifecycle.test_shards import children
from tests.e2e.node_process import NodeProcess, refused_start, running_process
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

PARTITIONS, SHARDS = 8, 2
OFFLINE = "a data directory is offline"


@contextmanager
def running(tmp_path: Path, shards: int):
    with running_process(tmp_path, data_dir=[tmp_path / "a", tmp_path / "b"], shards=shards) as node:
        yield node


def create(node: NodeProcess, topic: str = "t") -> None:
    call(f"{node.url}/v1/topics/{topic}", "PUT", {"partitions": PARTITIONS})


def produce(node: NodeProcess, number: int, topic: str = "t") -> tuple[int, Any]:
    """Return status and answer."""
    target = f"{node.url}/v1/topics/{topic}/partitions/{number}/records?acks=all"
    status, _, answer = send(target, "POST", {"records": [{"value": number}]})
    return status, orjson.loads(answer)


def statuses(node: NodeProcess, topic: str = "t") -> dict[int, int]:
    return {number: produce(node, number, topic)[0] for number in range(PARTITIONS)}


def records(node: NodeProcess, number: int) -> int:
    found = call(f"{node.url}/v1/topics/t/partitions/{number}/records?offset=0")
    return len(found["records"])


def lying_in(path: Path, topic: str = "t") -> list[int]:
    return sorted(int(one.name) for one in (path / "topics" / topic).glob("*/*") if one.is_dir())


def lines(node: NodeProcess) -> list[str]:
    """Return the error messages of the log."""
    parsed = [orjson.loads(line) for line in node.errors.splitlines()]
    return [str(line.get("message") or line.get("event")) for line in parsed if line["level"].lower() == "error"]


@pytest.mark.long
def test_a_missing_directory_takes_only_its_partitions(tmp_path):
    with running(tmp_path, SHARDS) as node:
        create(node)
        assert set(statuses(node).values()) == {200}
        assert node.stop() == 0
    a, b = lying_in(tmp_path / "a"), lying_in(tmp_path / "b")
    assert (len(a), len(b), sorted(a + b)) == (4, 4, list(range(PARTITIONS)))
    (tmp_path / "b").rename(tmp_path / "unplugged")
    with running(tmp_path, SHARDS) as node:
        assert statuses(node) == {number: 200 if number in a else 503 for number in range(PARTITIONS)}
        _, problem = produce(node, b[0])
        assert problem["code"] == "storage_failed"
        assert str(tmp_path / "b") in problem["detail"]
        create(node, "new")
        assert set(statuses(node, "new").values()) == {200}
        assert lines(node) == [OFFLINE]
        assert node.stop() == 0
    assert not (tmp_path / "a" / "running").exists(), "a was stopped cleanly"
    assert lying_in(tmp_path / "a", "new") == list(range(PARTITIONS))
    (tmp_path / "unplugged").rename(tmp_path / "b")
    with running(tmp_path, SHARDS) as node:
        assert {number: records(node, number) for number in range(PARTITIONS)} == {
            number: 2 if number in a else 1 for number in range(PARTITIONS)
        }
        assert set(statuses(node).values()) == {200}
        assert node.stop() == 0
    with running(tmp_path, 0) as node:  # the files do not depend on the number of shards
        assert set(statuses(node).values()) == {200}
        assert node.stop() == 0


def test_a_disk_that_fails_takes_its_directory_offline(tmp_path):
    with running(tmp_path, SHARDS) as node:
        create(node)
        assert set(statuses(node).values()) == {200}
        a, b = lying_in(tmp_path / "a"), lying_in(tmp_path / "b")
        (file,) = (tmp_path / "b" / "topics" / "t").glob(f"*/{b[0]}/*.log")
        pids = [pid for name, pid in children(node.pid).items() if "shard_process" in name]
        with injected(node, file, "error=EIO", tmp_path / "strace", pids):
            status, problem = produce(node, b[0])
            assert (status, problem["code"]) == (503, "storage_failed")
        expected = {number: 200 if number in a else 503 for number in range(PARTITIONS)}
        wait_until(lambda: statuses(node) == expected)
        assert lines(node) == [OFFLINE]
        create(node, "new")
        assert set(statuses(node, "new").values()) == {200}
        # a restarted shard does not open the partitions that the disk has failed
        (pid, *_) = pids
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in children(node.pid).values() and len(children(node.pid)) == SHARDS + 1)
        wait_until(lambda: _or_none(lambda: statuses(node)) == expected)
        node.stop()
    with running(tmp_path, SHARDS) as node:
        assert set(statuses(node).values()) == {200}
        assert all(records(node, number) >= 2 for number in range(PARTITIONS))


def test_partitions_move_between_the_disks_of_a_node_of_several_shards(tmp_path):
    data_dir = home, other = [tmp_path / "a", tmp_path / "b"]
    with running_process(tmp_path, data_dir=data_dir, shards=SHARDS) as node:
        create(node)
        assert set(statuses(node).values()) == {200}
        before = lying_in(home)
        moves = [moved(number, other if number in before else home) for number in range(PARTITIONS)]
        plan = call(f"{node.url}/v1/cluster/nodes/1/disks/moves", "POST", {"moves": moves, "dry_run": True})
        assert [move["state"] for move in plan["moves"]] == ["planned"] * PARTITIONS
        call(f"{node.url}/v1/cluster/nodes/1/disks/moves", "POST", {"moves": moves})
        assert set(statuses(node).values()) == {200}
        wait_until(lambda: disks(node)["moves"] == [])
        assert lying_in(other) == before
        assert {row["path"]: row["partitions"] for row in disks(node)["disks"]}[str(other)] == len(before)
        assert set(statuses(node).values()) == {200}
        assert [records(node, number) for number in range(PARTITIONS)] == [3] * PARTITIONS
        status, _, answer = send(f"{node.url}/v1/cluster/nodes/1/disks/moves", "POST", {"moves": [moved(0, "/tmp")]})
        assert (status, b"is not a data directory" in answer) == (400, True)
        assert node.stop() == 0
    assert list(tmp_path.glob("*/topics/t/*/*.*.*")) == []


@pytest.mark.long
def test_a_kill_during_a_move_leaves_one_replica(tmp_path):
    data_dir = [tmp_path / "a", tmp_path / "b"]
    with running_process(tmp_path, data_dir=data_dir, shards=SHARDS, disk_move_bytes_per_second=65536) as node:
        create(node)
        target = f"{node.url}/v1/topics/t/partitions/0/records"
        assert send(target, "POST", {"records": [{"value": "x" * 400_000}]})[0] == 200
        (other,) = [path for path in data_dir if 0 not in lying_in(path)]
        call(f"{node.url}/v1/cluster/nodes/1/disks/moves", "POST", {"moves": [moved(0, other)]})
        wait_until(lambda: list(other.glob("topics/t/*/0.*.future")))
        assert disks(node)["moves"][0]["state"] == "copying"
        node.kill()
    with running_process(tmp_path, data_dir=data_dir, shards=SHARDS) as node:
        assert disks(node)["moves"] == []
        assert records(node, 0) == 1
        assert list(tmp_path.glob("*/topics/t/*/*.*.*")) == []


def moved(number: int, to: Path | str) -> dict[str, Any]:
    return {"topic": "t", "partition": number, "to": str(to)}


def disks(node: NodeProcess) -> Any:
    return call(f"{node.url}/v1/cluster/nodes/1/disks")


def _or_none(what: Callable[[], Any]) -> Any:
    """Return None if the connection is refused or cut, as during a restart."""
    try:
        return what()
    except (OSError, AssertionError):
        return None


def test_a_further_directory_is_refused_as_the_first_and_in_use_with_it(tmp_path):
    with running(tmp_path, 0) as node:
        create(node)
        _, _, error = refused_start(port=0, data_dir=tmp_path / "a", shutdown_timeout_ms=0)
        assert "in use" in error
        assert node.stop() == 0
    code, _, error = refused_start(port=0, data_dir=tmp_path / "b")
    assert (code, "further data directory" in error) == (1, True)
    assert lying_in(tmp_path / "b")
