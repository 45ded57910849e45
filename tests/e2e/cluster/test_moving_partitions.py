"""An operator moves a partition under load: with a throttle, with progress reports, cancelled, and then to the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson
import pytest

from loadtests.cluster.nodes import ROOT, ClusterNode
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import Cluster, described, running_cluster, until
from tests.e2e.load import Load, Log, read_log
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

THROTTLE = 300_000  # bytes per second, of node 1
FILLER = 99  # the client that fills the log before the others start
FILLER_COUNT, FILLER_BYTES = 48, 250_000  # takes forty seconds at THROTTLE, and a fraction of one without it
WATCHED_S, REPORTED_BYTES = 2.5, 600_000  # the move is cancelled after both, and after progress was seen


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster in which replicas copy slowly from node 1, and no session ends because the machine is busy."""
    own = {1: {"replica-catchup-bytes-per-second": THROTTLE}}
    with running_cluster(tmp_path, own=own, **{"session-timeout-ms": 20_000}) as cluster:
        yield cluster


class Observed(NamedTuple):
    """The state of a move at one time: its minimum duration so far, the data of the new node, and the reported
    progress.
    """

    seconds: float
    copied_bytes: int
    row: dict[str, Any]

    @property
    def remaining_bytes(self) -> int:
        return int(self.row["left_bytes"]["3"])

    @property
    def reported_bytes(self) -> int:
        """Return the reported number of copied bytes."""
        return int(self.row["size_bytes"]) - self.remaining_bytes


@pytest.mark.long
async def test_a_reassignment_under_load_is_throttled_reported_cancelled_and_completed(cluster: Cluster) -> None:
    await asyncio.to_thread(prepare, cluster)
    leader, other = cluster.nodes[1], cluster.nodes[3]
    kind: Any = {"clients": 3, "acks": ("all",), "is_keyed": True}  # without keys a drain causes errors
    loads = [Load(node.url, "t", 1, first_client=10 * node.node_id, **kind) for node in (leader, other)]
    async with loads[0].under_way() as one, loads[1].under_way() as two:
        await all_progress(loads)
        observed = await asyncio.to_thread(begun_and_watched, cluster)
        await all_progress(loads)
        await asyncio.to_thread(cancel, cluster)
        await all_progress(loads)
        await asyncio.to_thread(move, cluster)
        await all_progress(loads)
    for ledger in (one, two):
        assert not ledger.breaks
        assert not ledger.rejected
    for node in cluster.nodes.values():
        found = await read_log(node.url, "t", 1)
        log = Log([[value[:2] for value in values] for values in found.partitions])
        for ledger in (one, two):
            log.assert_holds(ledger)
        assert sum(client == FILLER for client, _ in log.partitions[0]) == FILLER_COUNT
    assert_throttled(observed)
    assert_progress_is_reported(observed)


def prepare(cluster: Cluster) -> None:
    """Create a topic led by node 1 and copied by node 2, with data that only a move to node 3 has to copy."""
    url = cluster.nodes[1].url
    until(lambda: call(f"{url}/v1/topics/t", "PUT", {"partitions": 1, "replication_factor": 2}))
    penstock("reassign", "t", "0=1,2", url=url)
    until(lambda: is_on(cluster, [1, 2], leader=1))
    for number in range(FILLER_COUNT):
        noise = b64encode(Random(number).randbytes(FILLER_BYTES * 3 // 4)).decode()
        wish = {"records": [{"value": [FILLER, number, noise]}]}
        call(f"{url}/v1/topics/t/partitions/0/records?acks=all", "POST", wish)


def begun_and_watched(cluster: Cluster) -> list[Observed]:
    begun = time.monotonic()
    (row,) = penstock("reassign", "t", "0=1,3", url=cluster.nodes[2].url)["reassignments"]
    assert (row["replicas"], row["adding"], row["removing"]) == ([1, 3], [3], [2])
    observed: list[Observed] = []
    while (
        not observed
        or observed[-1].seconds < WATCHED_S
        or observed[-1].reported_bytes < max(REPORTED_BYTES, observed[0].reported_bytes + 1)
    ):
        rows = call(f"{cluster.nodes[3].url}/v1/cluster/reassignments")["reassignments"]
        assert rows, f"all of it was copied in {time.monotonic() - begun:.1f} s, faster than the throttle"
        copied_bytes = sum(path.stat().st_size for path in log_files(cluster.nodes[3]))
        observed.append(Observed(time.monotonic() - begun, copied_bytes, rows[0]))
        time.sleep(0.1)
    return observed


def assert_throttled(observed: list[Observed]) -> None:
    """A second's worth may be sent at once; twice that is always too much."""
    for one in observed:
        assert one.copied_bytes <= 2 * THROTTLE * (1 + one.seconds), f"{one.copied_bytes} bytes in {one.seconds:.1f} s"


def assert_progress_is_reported(observed: list[Observed]) -> None:
    """The report is older than the look at the new node's disk, so it never exceeds what is there."""
    for one in observed:
        assert one.row["size_bytes"] > FILLER_COUNT * FILLER_BYTES
        assert 0 < one.remaining_bytes <= one.row["size_bytes"]
        assert one.reported_bytes <= one.copied_bytes + FILLER_BYTES, "an index is as coarse as a batch"
    assert observed[0].reported_bytes < observed[-1].reported_bytes


def cancel(cluster: Cluster) -> None:
    url = cluster.nodes[2].url
    assert penstock("cancel", "t", "0", url=url) == {"topic": "t", "partition": 0, "moving": False}
    until(lambda: is_on(cluster, [1, 2], leader=1))
    until(lambda: not directories(cluster.nodes[3]))


def move(cluster: Cluster) -> None:
    """Move through node 2, which has no throttle: node 1 gives up the leadership first."""
    penstock("drain", "1", url=cluster.nodes[3].url)
    until(lambda: is_on(cluster, [1, 2], leader=2))
    penstock("reassign", "t", "0=2,3", url=cluster.nodes[1].url)
    until(lambda: is_on(cluster, [2, 3], leader=2))
    until(lambda: not directories(cluster.nodes[1]))


def is_on(cluster: Cluster, nodes: list[int], leader: int) -> bool:
    """True if every node reports it there, and reports no move."""
    for node in cluster.nodes.values():
        (row,) = described(node.url, "t")
        if call(f"{node.url}/v1/cluster/reassignments")["reassignments"]:
            return False
        if (row["replicas"], row["in_sync"], row["leader"]) != (nodes, nodes, leader):
            return False
    return True


def log_files(node: ClusterNode) -> list[Path]:
    return list((node.data / "topics" / "t").glob("*/*/*.log"))


def directories(node: ClusterNode) -> list[Path]:
    """Return the directories of the topic's partitions, anywhere in the node's data."""
    return [path for path in node.data.glob("**/t/*/*") if path.is_dir()]


async def all_progress(loads: list[Load]) -> None:
    for load in loads:
        await load.acknowledgements(load.ledger.acks_of.total() + 30)


def penstock(*arguments: str, url: str) -> Any:
    """Return the output of `penstock cluster`."""
    command = [sys.executable, "-m", "penstock.cli.main", "cluster", *arguments, "--json", "--url", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return orjson.loads(done.stdout)
