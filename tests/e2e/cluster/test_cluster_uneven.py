"""Three nodes of one, two and three shards, as real processes: parts of them stop and restart, and topics come and
go. Push goes on without the node that delivered.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from aiohttp import web

from loadtests.cluster.nodes import ClusterNode
from tests.e2e.cluster.test_cluster import TIMEOUT_S, Cluster, call, described, produce, running_cluster, until, values
from tests.e2e.lifecycle.test_shards import children
from tests.e2e.load import Load, read_log
from tests.replication.zookeeper_process import WHY_NOT, is_installed
from tests.scenarios.push.receiver import Receiver

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

EVERYONE = [1, 2, 3]
PUSH = {"push-targets": "127.0.0.0/8", "push-http": True}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEYS = 7


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    own = {number: {"shards": number} for number in EVERYONE}
    with running_cluster(tmp_path_factory.mktemp("uneven"), own=own, **PUSH) as cluster:
        yield cluster


def all_in_sync(url: str, topic: str) -> bool:
    return all(sorted(row["in_sync"]) == EVERYONE for row in described(url, topic))


@pytest.mark.long
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


class SilentReceiver(Receiver):
    """Takes events. Its answers wait for `may_answer`."""

    def __init__(self) -> None:
        super().__init__([SECRET])
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def _post(self, request: web.Request) -> web.Response:
        answer = await super()._post(request)
        await self.may_answer.wait()
        return answer

    async def taken_all(self, count: int) -> None:
        """Wait until that many different events are taken."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(set(self.values())) < count:
                await asyncio.sleep(0.02)


async def test_push_goes_on_at_another_node_and_only_what_was_not_committed_is_repeated(uneven: Cluster) -> None:
    receiver = SilentReceiver()
    await receiver.start()
    await asyncio.to_thread(uneven.create, "alerts", 2)
    url = uneven.nodes[1].url
    delivery = {"backoff_ms_min": 10, "backoff_ms_max": 50, "concurrency_max": 4}
    wish = {"url": receiver.url, "topics": ["alerts"], "secrets": [SECRET], "start": "earliest", "delivery": delivery}
    await asyncio.to_thread(until, lambda: call(f"{url}/v1/subscriptions/pager", "PUT", wish))
    await asyncio.to_thread(until, lambda: all_in_sync(url, "__groups"))
    await asyncio.to_thread(post, url, range(70))
    await receiver.taken_all(70)
    await asyncio.to_thread(until, lambda: committed(url, "pager") == 70)
    receiver.may_answer.clear()
    await asyncio.to_thread(post, url, range(70, 140))
    await receiver.taken_all(71)
    owner = await asyncio.to_thread(owner_of, url, "pager")
    lost = set(receiver.values()[70:])  # before the kill: afterwards the next owner's first attempts come too
    await asyncio.to_thread(uneven.nodes[owner].kill)
    receiver.may_answer.set()
    await receiver.taken_all(140)
    survivor = uneven.others(owner)[0]
    await asyncio.to_thread(until, lambda: committed(survivor.url, "pager") == 140)
    seen = receiver.values()
    repeated = {value for value in seen if seen.count(value) > 1}
    assert lost <= repeated, "their answers were lost"
    assert min(repeated) >= 70, "what was committed before is not repeated"
    for key in range(KEYS):
        mine = [value for value in dict.fromkeys(seen) if value % KEYS == key]
        assert mine == list(range(key, 140, KEYS)), "a key is out of order, or lacks a record"
    await asyncio.to_thread(call, f"{survivor.url}/v1/subscriptions/pager", "DELETE")
    await receiver.stop()
    uneven.nodes[owner].begin_start()
    await asyncio.to_thread(uneven.nodes[owner].wait_until_ready)


def post(url: str, numbers: range) -> None:
    records = [{"key": f"k{number % KEYS}", "value": number} for number in numbers]
    call(f"{url}/v1/topics/alerts/records?acks=all", "POST", {"records": records})


def committed(url: str, name: str) -> int:
    """Return how many records of a subscription are delivered and committed."""
    return sum(one["offset"] for one in call(f"{url}/v1/subscriptions/{name}")["offsets"])


def owner_of(url: str, name: str) -> int:
    """Return the node that delivers a subscription."""
    rows = described(url, "__groups")
    return int(rows[crc32(f"push:{name}".encode()) % len(rows)]["leader"])


@pytest.mark.long
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
