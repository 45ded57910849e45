"""Three nodes of one, two and three shards, as real processes: parts of them stop and restart, and topics come and
go.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.cluster.nodes import ClusterNode
from tests.e2e.cluster.test_cluster import Cluster, call, described, produce, running_cluster, until, values
from tests.e2e.lifecycle.test_shards import children
from tests.e2e.load import Load, read_log
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

EVERYONE = [1, 2, 3]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    own = {number: {"shards": number} for number in EVERYONE}
    with running_cluster(tmp_path_factory.mktemp("uneven"), own=own) as cluster:
        yield cluster


def all_in_sync(url: str, topic: str) -> bool:
    return all(sorted(row["in_sync"]) == EVERYONE for row in described(url, topic))


async def test_a_shard_that_is_killed_comes_back_and_what_it_held_is_in_sync_again(uneven: Cluster) -> None:
    partitions = 6
    await asyncio.to_thread(uneven.create, "parts", partitions)
    loads = [
        Load(node.url, "parts", partitions, clients=6, first_client=10 * number, acks=("all",))
        for number, node in uneven.nodes.items()
    ]
    async with loads[0].under_way() as one, loads[1].under_way() as two, loads[2].under_way() as three:
        ledgers = [one, two, three]
        for load in loads:
            await load.acknowledgements(20)
        shards = {name: pid for name, pid in children(uneven.nodes[3].pid).items() if "shard_process" in name}
        assert len(shards) == 3
        killed = next(iter(shards.values()))
        os.kill(killed, signal.SIGKILL)
        for load in loads[:2]:
            await load.acknowledgements(load.ledger.acks_of.total() + 30)
        await asyncio.to_thread(until, lambda: killed not in children(uneven.nodes[3].pid).values())
        await asyncio.to_thread(until, lambda: len(children(uneven.nodes[3].pid)) == 4)
        await asyncio.to_thread(until, lambda: all_in_sync(uneven.nodes[3].url, "parts"))
        for load in loads[:2]:
            await load.acknowledgements(load.ledger.acks_of.total() + 10)
    for node in uneven.nodes.values():
        log = await read_log(node.url, "parts", partitions)
        for ledger in ledgers:
            log.assert_holds(ledger)


def test_a_node_that_was_away_while_a_topic_was_made_again_follows_the_new_one_only(uneven: Cluster) -> None:
    here, away = uneven.nodes[1], uneven.nodes[3]
    uneven.create("again", 3)
    for number in range(9):
        produce(here.url, "again", f"old-{number}", number % 3)
    until(lambda: all_in_sync(here.url, "again"))
    old = directories(away, "again")
    assert len(old) == 3
    away.kill()
    until(lambda: [node["alive"] for node in call(f"{here.url}/v1/cluster")["nodes"]] == [True, True, False])
    call(f"{here.url}/v1/topics/again", "DELETE")
    call(f"{here.url}/v1/topics/again", "PUT", {"partitions": 2, "replication_factor": 2})
    new = [[f"new-{partition}.{n}" for n in range(3)] for partition in range(2)]
    for partition, produced in enumerate(new):
        for value in produced:
            produce(uneven.nodes[2].url, "again", value, partition)
    away.begin_start()
    away.wait_until_ready()
    assert [values(away.url, "again", partition) for partition in range(2)] == new
    until(lambda: not directories(away, "again"))
    call(f"{here.url}/v1/topics/again", "PATCH", {"replication_factor": 3})
    until(lambda: all_in_sync(away.url, "again"))
    assert len(directories(away, "again")) == 2
    assert not directories(away, "again") & old
    here.kill()
    for partition, produced in enumerate(new):
        produced.append(f"new-{partition}.3")
        produce(away.url, "again", produced[-1], partition)
        assert values(away.url, "again", partition) == produced


def directories(node: ClusterNode, topic: str) -> set[Path]:
    """Return the directories of the topic's partitions, for any topic id."""
    return {path for path in (node.data / "topics" / topic).glob("*/*") if path.is_dir()}
