"""Leaders change while they ship to an S3 server: the store has no gap, no overlap, and no object of a replaced leader.

One leader is killed. The next is stopped during its work until another one leads, and then continues. Then an empty
node joins, when only the store has the oldest records, and becomes leader.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from engine.format.paths import base_offset_of, store_partition_prefix
from engine.tiering.manifest.chain import iter_entries, load_generation, load_newest
from engine.tiering.manifest.manifest import Manifest, problem_of
from engine.tiering.store.store import ObjectStore, open_store
from loadtests.cluster.nodes import ClusterNode
from spark_ingest.source.discovery import discover, slices_of
from spark_ingest.source.scan import scan
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import Cluster, described, running_cluster, until
from tests.e2e.lifecycle.test_shards import children
from tests.e2e.load import Ledger, Load, Log, read_log
from tests.engine.tiering import servers
from tests.engine.tiering.making import records_of
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

CONFIG = {"local_retention_bytes": 0, "min_insync_replicas": 1}
ROLL_EVERY_S = 0.1  # about the time to ship a segment, so that shipping is almost always in progress
ZOMBIE_S = 0.5  # for one upload and one commit; a shorter time only tests less
OWN = [1, 2]  # node 3 has no replica until late, and receives the clients' requests throughout


class Tiered(NamedTuple):
    cluster: Cluster
    store: ObjectStore

    @property
    def url(self) -> str:
        return self.cluster.nodes[3].url

    @property
    def row(self) -> dict[str, Any]:
        """Return the partition as its leader describes it."""
        return described(self.url, "t")[0]

    @property
    def tier(self) -> dict[str, Any]:
        """Return the partition's tiered state as its leader reports it."""
        row: dict[str, Any] = call(f"{self.url}/v1/topics/t/tier")["partitions"][0]
        return row

    @property
    def prefix(self) -> str:
        cluster_id = call(f"{self.url}/v1/cluster")["cluster_id"]
        return store_partition_prefix(cluster_id, "t", call(f"{self.url}/v1/topics/t")["topic_id"], 0)

    @property
    def manifest(self) -> Manifest:
        found = load_newest(self.store, self.prefix)
        assert found is not None
        return found


@pytest.fixture
def tiered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiered]:
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with servers.moto(tmp_path / "moto") as endpoint:
        servers.make_bucket(endpoint, "bucket")
        url = f"s3://bucket/penstock?endpoint={endpoint}&region=us-east-1"
        with running_cluster(tmp_path, store=url, tier_check_ms=100) as cluster:
            yield Tiered(cluster, open_store(url))


@pytest.mark.long
async def test_new_leaders_ship_on_where_the_old_one_stopped_and_a_new_replica_begins_from_the_store(
    tiered: Tiered,
) -> None:
    await asyncio.to_thread(prepare, tiered)
    load = Load(tiered.url, "t", 1, clients=4, acks=("all",), is_keyed=True)
    async with load.under_way() as ledger:
        await load.acknowledgements(30)
        await asyncio.to_thread(killed_while_it_ships, tiered)
        await asyncio.to_thread(stopped_while_it_ships, tiered)
        await load.acknowledgements(ledger.acks_of.total() + 30)
    assert not ledger.breaks
    assert not ledger.rejected
    await asyncio.to_thread(shipped_to_the_end, tiered)
    epochs = check_chain(tiered)
    assert len(epochs) >= 3, f"three leaders have shipped, not {epochs}"
    await check_records(tiered, ledger)
    again = Load(tiered.url, "t", 1, clients=4, first_client=10, acks=("all",), is_keyed=True)
    async with again.under_way() as later:
        await again.acknowledgements(30)
        await asyncio.to_thread(led_by_a_new_replica, tiered)
        await again.acknowledgements(later.acks_of.total() + 30)
    assert not later.breaks
    assert not later.rejected
    await asyncio.to_thread(shipped_to_the_end, tiered)
    assert check_chain(tiered)[-1] > epochs[-1]
    await check_records(tiered, ledger, later)


def prepare(tiered: Tiered) -> None:
    wish = {"partitions": 1, "replication_factor": 2, "config": CONFIG}
    until(lambda: call(f"{tiered.url}/v1/topics/t", "PUT", wish))
    call(f"{tiered.url}/v1/cluster/reassignments", "POST", {"topic": "t", "partitions": {"0": OWN}})
    until(lambda: tiered.row["replicas"] == OWN and is_whole(tiered))


@contextmanager
def rolling(url: str) -> Iterator[None]:
    """Roll repeatedly; between two leaders a roll is rejected."""
    ending = threading.Event()

    def roll_on() -> None:
        while not ending.wait(ROLL_EVERY_S):
            with suppress(urllib.error.HTTPError, TimeoutError):
                call(f"{url}/v1/topics/t/roll", "POST")

    thread = threading.Thread(target=roll_on)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def killed_while_it_ships(tiered: Tiered) -> None:
    with rolling(tiered.url):
        node, epoch = shipping_leader(tiered)
        node.kill()
        until_next_ships(tiered, epoch)
    node.begin_start()
    node.wait_until_ready()
    until(lambda: is_whole(tiered))


def stopped_while_it_ships(tiered: Tiered) -> None:
    """The worker continues its work before any other process of the node can report the change."""
    with rolling(tiered.url):
        node, epoch = shipping_leader(tiered)
        node.send(signal.SIGSTOP)
        try:
            until_next_ships(tiered, epoch)
            os.kill(children(node.pid)["node.processes.worker_process"], signal.SIGCONT)
            time.sleep(ZOMBIE_S)
        finally:
            node.send(signal.SIGCONT)
    until(lambda: is_whole(tiered))


def until_next_ships(tiered: Tiered, epoch: int) -> None:
    until(lambda: tiered.manifest.leader_epoch > epoch)
    end = tiered.manifest.end_offset
    until(lambda: tiered.manifest.end_offset > end)


def shipping_leader(tiered: Tiered) -> tuple[ClusterNode, int]:
    """Return a leader that has shipped in its epoch and has more to ship."""
    until(lambda: load_newest(tiered.store, tiered.prefix) is not None)
    until(lambda: tiered.manifest.leader_epoch == tiered.row["leader_epoch"])
    end = tiered.manifest.end_offset
    until(lambda: tiered.tier["tiered_end"] > end and tiered.tier["pending_segments"] > 0)
    return tiered.cluster.nodes[tiered.row["leader"]], tiered.manifest.leader_epoch


def is_whole(tiered: Tiered) -> bool:
    return bool(tiered.row["in_sync"] == tiered.row["replicas"])


def shipped_to_the_end(tiered: Tiered) -> None:
    """Roll, then wait until everything is shipped and the leader has deleted its local copies."""
    call(f"{tiered.url}/v1/topics/t/roll", "POST")
    until(lambda: tiered.tier["tiered_end"] == tiered.row["log_end"])
    until(lambda: tiered.row["local_log_start"] == tiered.row["log_end"])


def led_by_a_new_replica(tiered: Tiered) -> None:
    """The leader's disk has only the last records, so the new replica can copy only those."""
    begin = tiered.row["local_log_start"]
    assert 0 < begin < tiered.row["log_end"]
    call(f"{tiered.url}/v1/topics/t", "PATCH", {"replication_factor": 3})
    until(lambda: sorted(tiered.row["replicas"]) == [1, 2, 3] and sorted(tiered.row["in_sync"]) == [1, 2, 3])
    for number in OWN:
        call(f"{tiered.url}/v1/cluster/nodes/{number}/drain", "POST", {"drained": True})
    until(lambda: tiered.row["leader"] == 3)
    files = (tiered.cluster.nodes[3].data / "topics" / "t").glob("*/0/*.log")
    assert min(base_offset_of(path.name) or 0 for path in files) >= begin
    assert tiered.row["log_start"] == 0


def check_chain(tiered: Tiered) -> list[int]:
    """Check that every manifest ever written contains its predecessor's entries and more. Return the leaders'
    epochs.
    """
    newest = tiered.manifest
    chain = [load_generation(tiered.store, tiered.prefix, n) for n in range(1, newest.generation + 1)]
    assert [problem for one in chain if (problem := problem_of(one))] == []
    for before, after in pairwise(chain):
        assert before.leader_epoch <= after.leader_epoch, "a former leader has written a manifest"
        entries, grown = [[*iter_entries(tiered.store, one)] for one in (before, after)]
        assert grown[: len(entries)] == entries
    entries = [*iter_entries(tiered.store, newest)]
    assert all(a.end_offset == b.base_offset for a, b in pairwise(entries))
    assert (entries[0].base_offset, entries[-1].end_offset) == (0, newest.end_offset)
    return sorted({one.leader_epoch for one in chain if one.entries})


async def check_records(tiered: Tiered, *ledgers: Ledger) -> None:
    """Check that each acknowledged record is once in the store, and once in the leader's answers."""
    found = await asyncio.to_thread(stored_log, tiered)
    assert await read_log(tiered.url, "t", 1) == found
    for ledger in ledgers:
        found.assert_holds(ledger)


def stored_log(tiered: Tiered) -> Log:
    """Read with the reader of Spark's ingestion, which asks no node."""
    (partition,) = discover(tiered.store, call(f"{tiered.url}/v1/cluster")["cluster_id"], lambda _: True)
    slices = slices_of(partition, partition.log_start, partition.tiered_end, {})
    records = [record for scanned in scan(tiered.store, slices) for record in records_of(scanned)]
    assert [record.offset for record in records] == [*range(tiered.row["log_end"])]
    return Log([[orjson.loads(bytes(record.value or b"")) for record in records]])
