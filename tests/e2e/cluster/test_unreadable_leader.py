"""A leader whose disk cannot read a segment, or has damaged bytes in it: another node leads, and the copy is repaired.

Three nodes and ZooKeeper as real processes; strace makes the reads of one file fail. The store is not mounted, so no
segment is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtests.cluster.nodes import ClusterNode
from tests import disk_faults
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import Cluster, described, running_cluster, until, values
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(), reason=WHY_NOT),
    pytest.mark.skipif(disk_faults.why_no_injection() is not None, reason="strace is not installed"),
]

TEXTS = [str(number) + "x" * 20_000 for number in range(8)]


@contextmanager
def with_segments(path: Path, at: int, policy: str = "delete") -> Iterator[tuple[Cluster, int, Path]]:
    """Run a cluster whose topic has sealed segments. Yields its leader, and one of its segments: -1 is the active."""
    with running_cluster(path) as cluster:
        (path / "store").rename(path / "store-elsewhere")
        cluster.create("t", segment_bytes=64 * 1024, cleanup_policy=policy)
        for text in TEXTS:
            send(cluster.nodes[1].url, text)
        until(lambda: described(cluster.nodes[1].url, "t")[0]["in_sync"] == [1, 2, 3])
        leader = described(cluster.nodes[1].url, "t")[0]["leader"]
        segments = sorted(cluster.nodes[leader].data.glob("topics/t/**/*.log"))
        assert len(segments) >= 3
        assert segments[at].stat().st_size > 0
        yield cluster, leader, segments[at]


def send(url: str, text: str) -> None:
    """Produce with a key of its own, which a compacted topic needs."""
    call(f"{url}/v1/topics/t/records?acks=all", "POST", {"records": [{"key": text[0], "value": text}]})


def processes_of(node: ClusterNode) -> list[int]:
    children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text()
    return [node.pid, *map(int, children.split())]


def assert_repaired(cluster: Cluster, leader: int, segment: Path, good: bytes) -> None:
    until(lambda: described(cluster.nodes[leader].url, "t")[0]["in_sync"] == [1, 2, 3])
    until(lambda: segment.read_bytes() == good)
    errors = cluster.nodes[leader].errors
    assert errors.count("this leader cannot read its disk: another replica is to lead") == 1
    assert "a damaged segment was repaired from the leader" in errors
    for node in cluster.nodes.values():
        assert values(node.url, "t") == [*TEXTS, "later"]


@pytest.mark.long
@pytest.mark.parametrize("at", [0, -1])
def test_a_read_error_moves_the_leadership_and_every_record_is_read(tmp_path: Path, at: int) -> None:
    with with_segments(tmp_path, at) as (cluster, leader, segment):
        good = segment.read_bytes()
        options = ("-o", "/dev/null", "-P", str(segment))
        with disk_faults.injected(processes_of(cluster.nodes[leader]), "error=EIO", disk_faults.READS, options):
            other = cluster.others(leader)[0].url
            until(lambda: values(other, "t") == TEXTS)
            send(other, "later")
        assert_repaired(cluster, leader, segment, good)


@pytest.mark.parametrize(("at", "policy"), [pytest.param(0, "compact", marks=pytest.mark.long), (-1, "delete")])
def test_damaged_bytes_move_the_leadership_and_are_repaired(tmp_path: Path, at: int, policy: str) -> None:
    with with_segments(tmp_path, at, policy) as (cluster, leader, segment):
        good = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(10_000)
            file.write(b"\0" * 100)
        other = cluster.others(leader)[0].url
        until(lambda: values(other, "t") == TEXTS)
        send(other, "later")
        assert_repaired(cluster, leader, segment, good)
