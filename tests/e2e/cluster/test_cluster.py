"""Three nodes and ZooKeeper as real processes: the promises of a cluster."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pytest

from loadtests.cluster.nodes import ClusterNode
from tests.e2e.calls import call
from tests.e2e.load import Load, read_log
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

TIMEOUT_S = 300.0
SESSION_TIMEOUT_MS = 2000
Own = Mapping[int, Mapping[str, object]]
NOTHING: Own = {}
SETTINGS = {"port": 0, "session-timeout-ms": SESSION_TIMEOUT_MS, "log-level": "info"}


class Cluster:
    """Nodes 1, 2, 3 over one ZooKeeper at `address`. `own`: extra options of single nodes."""

    def __init__(self, directory: Path, address: str, count: int = 3, own: Own = NOTHING, **settings: object) -> None:
        self.coordination = f"zookeeper://{address}/penstock"
        self.directory = directory
        store = directory / "store"
        store.mkdir()
        given = {**SETTINGS, "store": store.as_uri(), **settings}
        self.nodes = {
            number: ClusterNode(number, directory, self.coordination, {**given, **own.get(number, {})})
            for number in range(1, count + 1)
        }

    def start(self) -> None:
        for node in self.nodes.values():
            node.begin_start()
        for node in self.nodes.values():
            node.wait_until_ready()

    def others(self, node_id: int) -> list[ClusterNode]:
        return [node for number, node in self.nodes.items() if number != node_id]

    def create(self, topic: str, partitions: int = 1, **config: object) -> None:
        """Create the topic, as soon as the node knows all three nodes."""
        wish = {"partitions": partitions, "replication_factor": 3, "config": config}
        until(lambda: call(f"{self.nodes[1].url}/v1/topics/{topic}", "PUT", wish))


def until(condition: Callable[[], bool]) -> None:
    """Retry until the condition holds: a node in the middle of a change may reject requests."""
    deadline = time.monotonic() + TIMEOUT_S
    reason = "it is not so"
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except urllib.error.HTTPError as error:
            reason = error.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            reason = repr(error)
        time.sleep(0.05)
    raise AssertionError(f"timed out: {reason}")


@contextmanager
def running_cluster(directory: Path, count: int = 3, own: Own = NOTHING, **settings: object) -> Iterator[Cluster]:
    with zookeeper_process(directory / "zookeeper") as zookeeper:
        cluster = Cluster(directory, f"127.0.0.1:{zookeeper.port}", count, own, **settings)
        try:
            cluster.start()
            yield cluster
        finally:
            for node in cluster.nodes.values():
                with suppress(AssertionError):  # not started
                    node.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as cluster:
        yield cluster


def produce(url: str, topic: str, value: object, partition: int = 0) -> int:
    """Produce with a key, so that a retry after the leader's death is stored once."""
    where = f"{url}/v1/topics/{topic}/partitions/{partition}/records?acks=all"
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"{topic}/{partition}/{value}"}
    request = urllib.request.Request(where, orjson.dumps({"records": [{"value": value}]}), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(orjson.loads(answer.read())["results"][0]["base_offset"])


def values(url: str, topic: str, partition: int = 0) -> list[Any]:
    found: list[Any] = []
    offset = 0
    while True:
        answer = call(f"{url}/v1/topics/{topic}/partitions/{partition}/records?offset={offset}")
        if not answer["records"]:
            return found
        found += [record["value"] for record in answer["records"]]
        offset = answer["next_offset"]


def described(url: str, topic: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = call(f"{url}/v1/topics/{topic}")["partitions"]
    return rows


def poll(url: str, group: str, **body: object) -> tuple[str, list[Any]]:
    """Poll a group as its one member. Return the token and the values."""
    found = call(f"{url}/v1/groups/{group}/members/m/poll", "POST", body)
    return found["token"], [record["value"] for part in found["partitions"] for record in part["records"]]


def group_coordinated_by(url: str, node_id: int) -> str:
    """Return the name of a group whose coordinator is on a node. Each partition of groups has three replicas."""
    poll(url, "any", topics=["t"])
    until(lambda: all(len(row["in_sync"]) == 3 and row["leader"] for row in described(url, "__groups")))
    leaders = [row["leader"] for row in described(url, "__groups")]
    names = (f"g{number}" for number in range(1000))
    return next(name for name in names if leaders[crc32(name.encode()) % len(leaders)] == node_id)


def test_any_node_takes_and_gives_records_and_the_death_of_the_leader_loses_none(cluster: Cluster) -> None:
    cluster.create("t")
    sent: list[int] = []
    for node in cluster.nodes.values():
        for _ in range(5):
            sent.append(len(sent))
            assert produce(node.url, "t", sent[-1]) == sent[-1]
    for node in cluster.nodes.values():
        until(lambda url=node.url: values(url, "t") == sent)
    leader = described(cluster.nodes[1].url, "t")[0]["leader"]
    group = group_coordinated_by(cluster.nodes[1].url, leader)
    token, read = poll(cluster.nodes[1].url, group, topics=["t"])
    assert read == sent
    first, second = cluster.others(leader)
    token, read = poll(first.url, group, token=token)
    assert read == []
    cluster.nodes[leader].kill()
    token, read = poll(second.url, group, token=token)
    assert read == [], "the committed position is known to the next coordinator"
    for node in cluster.others(leader):
        for _ in range(5):
            sent.append(len(sent))
            assert produce(node.url, "t", sent[-1]) == sent[-1], "a failover is a pause, no error"
    for node in cluster.others(leader):
        row = described(node.url, "t")[0]
        assert row["leader"] != leader
        assert leader not in row["in_sync"]
    token, read = poll(first.url, group, token=token, wait_ms=60_000)
    assert read == sent[15:]
    assert poll(second.url, group, topics=["t"])[1] == read, "without its token they are delivered again"
    cluster.nodes[leader].begin_start()
    url = cluster.nodes[leader].wait_until_ready()
    until(lambda: described(url, "t")[0]["in_sync"] == [1, 2, 3])
    sent.append(len(sent))
    assert produce(url, "t", sent[-1]) == sent[-1]
    for node in cluster.nodes.values():
        assert values(node.url, "t") == sent


async def test_a_stopping_leader_moves_its_leaderships_first_and_nothing_is_lost(cluster: Cluster) -> None:
    partitions = 6
    await asyncio.to_thread(cluster.create, "t", partitions)
    survivor, leaving = cluster.nodes[1], cluster.nodes[2]
    load = Load(survivor.url, "t", partitions, clients=6, acks=("all",))
    async with load.under_way() as ledger:
        await load.acknowledgements(30)
        assert 2 in {row["leader"] for row in await asyncio.to_thread(described, survivor.url, "t")}
        assert await asyncio.to_thread(leaving.stop) == 0
        await load.acknowledgements(ledger.acks_of.total() + 30)
        leaving.begin_start()
        await asyncio.to_thread(leaving.wait_until_ready)
        await load.acknowledgements(ledger.acks_of.total() + 30)
    assert not ledger.breaks
    assert not ledger.rejected, "producers in flight wait and get their acknowledgement from the next leader"
    (await read_log(survivor.url, "t", partitions)).assert_holds(ledger)
    everyone = [1, 2, 3]
    await asyncio.to_thread(until, lambda: all(row["in_sync"] == everyone for row in described(leaving.url, "t")))
